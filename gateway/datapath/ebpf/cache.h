/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Forwarding by the cache of flows, where netfilter has rules. */
#pragma once

#include "flow.h"
#include "forward.h"

#define TCP_FLAGS 13 /* offset of the byte in TCP's header */
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* caches reports whether the cache is in use, and returns the generation of its entries. */
static __always_inline int caches(__u64 now, __u32 *generation)
{
	__u32 zero = 0;
	const struct flow_settings *s = bpf_map_lookup_elem(&flow_settings, &zero);

	if (!s || now >= s->until)
		return 0;
	*generation = s->generation;
	return 1;
}

/* forget removes a flow's entries of both directions. */
static __noinline int forget(struct flow_key *k)
{
	struct flow_path *p = k ? bpf_map_lookup_elem(&flow_paths, k) : 0;
	struct flow_key back;

	if (!p)
		return 0;
	back = (struct flow_key){
		.saddr = p->daddr, .daddr = p->saddr, .sport = p->dport, .dport = p->sport,
		.protocol = k->protocol, .side = FROM_LAN + FROM_WAN - k->side,
	};
	p->until = 0; /* the entry stays: a reset that follows may ask for it */
	p = bpf_map_lookup_elem(&flow_paths, &back);
	if (p)
		p->until = 0;
	return 0;
}

/* key_of describes a packet that the cache may have; it returns 0 for what is the stack's. Connection
 * tracking follows TCP's SYN, FIN and RST: with these a flow's entries end. */
static __always_inline int key_of(const struct iphdr *ip, const void *end, enum side side, struct flow_key *k)
{
	const struct udphdr *udp = (const void *)(ip + 1);
	const struct tcphdr *tcp = (const void *)(ip + 1);
	const __u8 *flags = (const void *)(ip + 1) + TCP_FLAGS;

	if (ip->ihl != 5 || is_fragment(ip) || (const void *)(udp + 1) > end)
		return 0;
	*k = (struct flow_key){
		.saddr = ip->saddr, .daddr = ip->daddr, .sport = udp->source, .dport = udp->dest, .protocol = ip->protocol, .side = side,
	};
	if (ip->protocol == IPPROTO_UDP)
		return bpf_ntohs(udp->len) == bpf_ntohs(ip->tot_len) - sizeof(*ip);
	if (ip->protocol != IPPROTO_TCP || (const void *)(tcp + 1) > end)
		return 0;
	if ((*flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) != TCP_ACK) {
		forget(k);
		return 0;
	}
	return tcp->doff >= 5 && (!ip->tot_len || sizeof(*ip) + tcp->doff * 4 <= bpf_ntohs(ip->tot_len));
}

/* waits reports whether an entry of a flow is as it was while nothing was answered; an answer ends its flow's entries. */
static __always_inline int waits(struct flow_key *k, const struct flow_path *p)
{
	struct flow_key back = {
		.saddr = p->daddr, .daddr = p->saddr, .sport = p->dport, .dport = p->sport,
		.protocol = k->protocol, .side = FROM_LAN + FROM_WAN - k->side,
	};
	const struct flow_path *answer;

	if (p->answers == ANSWER) {
		forget(k);
		return 0;
	}
	answer = bpf_map_lookup_elem(&flow_paths, &back);
	return answer && answer->answers == ANSWER;
}

/* known finds the way of a packet's flow, if the packet may take it; 0: the stack's. */
static __always_inline int known(struct __sk_buff *skb, const struct iphdr *ip, const void *end, enum side side, __u64 now, struct flow_path *p)
{
	const struct flow_path *there;
	struct flow_key k;
	__u32 generation;

	if (!caches(now, &generation) || !key_of(ip, end, side, &k))
		return 0;
	there = bpf_map_lookup_elem(&flow_paths, &k);
	if (!there)
		return 0;
	*p = *there;
	asm volatile("" ::: "memory");
	if (p->answers != ANSWERED && !waits(&k, p))
		return 0;
	return p->generation == generation && now < p->until && same_class(p->tos, ip->tos) && sum_of(&k, p) == p->sum && simple(skb, ip, p->most, end);
}

/* follow sends a packet its flow's way, to a MAC address. */
static __always_inline int follow(struct __sk_buff *skb, const struct flow_path *p, const void *to, __u32 ifindex)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	struct ports *ports = (void *)(ip + 1);
	__u64 flags = 0;
	__u32 check;

	if ((void *)(ports + 1) > end)
		return drop(REASON_MALFORMED);
	check = ETH_HLEN + sizeof(*ip) + offsetof(struct tcphdr, check);
	if (ip->protocol == IPPROTO_UDP) {
		check = ETH_HLEN + sizeof(*ip) + offsetof(struct udphdr, check);
		flags = BPF_F_MARK_MANGLED_0;
	}
	/* A packet from a virtual link may have the sum of the pseudo-header only, which has no ports. */
	if (p->address_diff && bpf_l4_csum_replace(skb, check, 0, p->address_diff, flags | BPF_F_PSEUDO_HDR))
		return drop(REASON_MALFORMED);
	if (p->port_diff && bpf_l4_csum_replace(skb, check, 0, p->port_diff, flags))
		return drop(REASON_MALFORMED);
	if (p->address_diff || p->port_diff) {
		data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
		eth = data, ip = data + ETH_HLEN, ports = (void *)(ip + 1);
		if ((void *)(ports + 1) > end)
			return drop(REASON_MALFORMED);
		ip->check = ~fold((__u64)(__u16)~ip->check + p->address_diff);
		ip->saddr = p->saddr, ip->daddr = p->daddr;
		ports->source = p->sport, ports->dest = p->dport;
	}
	skb->mark = p->mark;
	skb->priority = p->priority;
	set_judged(skb);
	return readdress(skb, eth, ip, to, p->smac, ifindex);
}

/* shortcut_up forwards an admitted client's packet by the cache, or leaves it to the stack. */
static __always_inline int shortcut_up(struct __sk_buff *skb, const struct iphdr *ip, const void *end, __u64 now)
{
	struct flow_path p;

	if (!known(skb, ip, end, FROM_LAN, now, &p))
		return pass(REASON_STACK);
	return follow(skb, &p, p.dmac, wan_ifindex);
}

/* forward forwards an admitted packet of a client. The settings have the stack forward where the
 * destination alone does not determine the hop. */
static __always_inline int forward(struct __sk_buff *skb, struct ethhdr *eth, struct iphdr *ip, const void *end, __u64 now)
{
	__u32 zero = 0, slot;
	const struct settings *s = bpf_map_lookup_elem(&gateway_settings, &zero);
	struct hop *h;

	if (!s || !redirects(s, now))
		return shortcut_up(skb, ip, end, now);
	slot = (ip->daddr ^ ip->daddr >> 12 ^ ip->daddr >> 24) & (HOPS - 1);
	h = bpf_map_lookup_elem(&hops, &slot);
	if (!h)
		return pass(REASON_STACK);
	if (h->dst != ip->daddr || h->generation != s->generation || now >= h->until) {
		/* This packet goes through the stack, so that the stack keeps the
		 * neighbour entry up to date. */
		ask(skb, ip, h, s->generation, now);
		return pass(REASON_STACK);
	}
	if (!h->ifindex || !simple(skb, ip, h->mtu, end))
		return pass(REASON_STACK);
	return readdress(skb, eth, ip, h->dmac, h->smac, h->ifindex);
}
