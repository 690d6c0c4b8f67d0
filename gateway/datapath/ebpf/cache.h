/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Forwarding by the cache of flows, where netfilter has rules. */
#pragma once

#include "flow.h"
#include "forward.h"
#include "tally.h"

#define TCP_FLAGS 13 /* offset of the byte in TCP's header */
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* is_cache_on reports whether the cache is in use, and returns the generation of its entries. */
static __always_inline int is_cache_on(__u64 now, __u32 *generation)
{
	__u32 zero = 0;
	const struct flow_settings *s = bpf_map_lookup_elem(&flow_settings, &zero);

	if (unlikely(!s || now >= s->until))
		return 0;
	*generation = s->generation;
	return 1;
}

/* void_flow removes a flow's entries of both directions. */
__noinline int void_flow(struct flow_key *k)
{
	struct flow_path *p;
	struct flow_key key;

	if (!k)
		return 0;
	key = *k; /* before Linux 6.2 a key must be on the function's own stack */
	p = bpf_map_lookup_elem(&flow_paths, &key);
	if (!p)
		return 0;
	key = (struct flow_key){
		.saddr = p->daddr, .daddr = p->saddr, .sport = p->dport, .dport = p->sport,
		.protocol = key.protocol, .side = FROM_LAN + FROM_WAN - key.side,
	};
	p->until = 0; /* the entry stays: a reset that follows may ask for it */
	p = bpf_map_lookup_elem(&flow_paths, &key);
	if (p)
		p->until = 0;
	return 0;
}

/* write_key writes a key in words of the size in which hashing reads it: a read of what two
 * writes have just written waits for both. */
static __always_inline void write_key(struct flow_key *k, const struct iphdr *ip, const void *ports,
	__u32 side)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	__u32 kind = ip->protocol | side << 16;
#else
	__u32 kind = (__u32)ip->protocol << 16 | side;
#endif

	__builtin_memcpy(&k->saddr, &ip->saddr, sizeof(k->saddr));
	__builtin_memcpy(&k->daddr, &ip->daddr, sizeof(k->daddr));
	__builtin_memcpy(&k->sport, ports, sizeof(k->sport) + sizeof(k->dport));
	__builtin_memcpy(&k->protocol, &kind, sizeof(kind));
}

/* key_of writes the key of a packet's flow to k; it returns 0 if the stack must handle the packet.
 * Connection tracking follows TCP's SYN, FIN and RST: with these a flow's entries end. */
static __always_inline int key_of(const struct iphdr *ip, const void *end, enum side side,
	struct flow_key *k)
{
	const struct udphdr *udp = (const void *)(ip + 1);
	const struct tcphdr *tcp = (const void *)(ip + 1);
	const __u8 *flags = (const void *)(ip + 1) + TCP_FLAGS;

	if (unlikely(ip->ihl != 5 || is_fragment(ip) || (const void *)(udp + 1) > end))
		return 0;
	write_key(k, ip, udp, side);
	if (unlikely(ip->protocol == IPPROTO_UDP))
		return bpf_ntohs(udp->len) == bpf_ntohs(ip->tot_len) - sizeof(*ip);
	if (unlikely(ip->protocol != IPPROTO_TCP || (const void *)(tcp + 1) > end))
		return 0;
	if (unlikely((*flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) != TCP_ACK)) {
		void_flow(k);
		return 0;
	}
	return tcp->doff >= 5 && (!ip->tot_len || sizeof(*ip) + tcp->doff * 4 <= bpf_ntohs(ip->tot_len));
}

/* copy_path copies the entry of a key, each word read once; 0: another CPU was writing it. */
static __always_inline int copy_path(const struct flow_key *k, const struct flow_path *from,
	struct flow_path *to)
{
	const volatile __u64 *in = (const void *)from;
	__u64 *out = (void *)to, sum = sum_of_key(k);

#pragma unroll
	for (unsigned i = 0; i < offsetof(struct flow_path, sum) / 8; i++) {
		__u64 word = in[i];

		out[i] = word;
		sum ^= word;
	}
	return sum == *(const volatile __u64 *)&from->sum;
}

/* is_answer_awaited reports whether an entry of a flow is as it was while nothing was answered;
 * an answer ends its flow's entries. */
static __always_inline int is_answer_awaited(struct flow_key *k, const struct flow_path *p)
{
	struct flow_key back = {
		.saddr = p->daddr, .daddr = p->saddr, .sport = p->dport, .dport = p->sport,
		.protocol = k->protocol, .side = FROM_LAN + FROM_WAN - k->side,
	};
	const struct flow_path *answer;

	if (p->answers == ANSWER) {
		void_flow(k);
		return 0;
	}
	answer = bpf_map_lookup_elem(&flow_paths, &back);
	return answer && answer->answers == ANSWER;
}

/* find_path copies to p the entry by which the cache may forward a packet; 0: the stack must. */
static __always_inline int find_path(struct __sk_buff *skb, const struct iphdr *ip, const void *end,
	enum side side, __u64 now, struct flow_path *p)
{
	const struct flow_path *there;
	struct flow_key k;
	__u32 generation;
	int whole;

	if (unlikely(!is_cache_on(now, &generation) || !key_of(ip, end, side, &k)))
		return 0;
	there = bpf_map_lookup_elem(&flow_paths, &k);
	if (unlikely(!there))
		return 0;
	whole = copy_path(&k, there, p);
	if (unlikely(p->answers != ANSWERED && !is_answer_awaited(&k, p)))
		return 0;
	return whole && p->generation == generation && now < p->until &&
		same_class(p->tos, ip->tos) && may_bypass_stack(skb, ip, p->most, end);
}

/* lacks_ports reports whether a checksum to which bpf_l4_csum_replace added the difference of
 * addresses lacks that of ports. A packet from a virtual link may have the sum of the
 * pseudo-header only, which has no ports: such a field grew by the difference, while a whole
 * sum, which is stored inverted, shrank. So one call does for both, unless the addresses make no
 * difference. */
static __always_inline int lacks_ports(__u16 was, __u16 is, __u16 addresses)
{
	return fold((__u64)is + (__u16)~was) != addresses;
}

/* send_by_path forwards a packet as its flow's entry says, to a MAC address. */
static __always_inline int send_by_path(struct __sk_buff *skb, const struct flow_path *p,
	const void *to, __u32 ifindex)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	struct ports *ports = (void *)(ip + 1);
	__u16 was, addresses = fold(p->address_diff), *sum;
	__u64 flags = 0;
	__u32 at;
	int tells = addresses && addresses != 0xffff;

	if ((void *)(ports + 1) > end)
		return drop(skb, REASON_MALFORMED);
	if (p->address_diff || p->port_diff) {
		at = ETH_HLEN + sizeof(*ip) + offsetof(struct tcphdr, check);
		if (ip->protocol == IPPROTO_UDP) {
			at = ETH_HLEN + sizeof(*ip) + offsetof(struct udphdr, check);
			flags = BPF_F_MARK_MANGLED_0;
		}
		sum = data + at;
		if ((void *)(sum + 1) > end)
			return drop(skb, REASON_MALFORMED);
		was = *sum;
		if (p->address_diff && bpf_l4_csum_replace(skb, at, 0, p->address_diff, flags | BPF_F_PSEUDO_HDR))
			return drop(skb, REASON_MALFORMED);
		if (p->port_diff && !tells && bpf_l4_csum_replace(skb, at, 0, p->port_diff, flags))
			return drop(skb, REASON_MALFORMED);
		data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
		eth = data, ip = data + ETH_HLEN, ports = (void *)(ip + 1), sum = data + at;
		if ((void *)(ports + 1) > end || (void *)(sum + 1) > end)
			return drop(skb, REASON_MALFORMED);
		if (p->port_diff && tells && (was || !flags) && lacks_ports(was, *sum, addresses)) {
			*sum = ~fold((__u64)(__u16)~*sum + p->port_diff);
			if (!*sum && flags) /* UDP's 0 is no sum */
				*sum = 0xffff;
		}
		ip->check = ~fold((__u64)(__u16)~ip->check + p->address_diff);
		ip->saddr = p->saddr, ip->daddr = p->daddr;
		ports->source = p->sport, ports->dest = p->dport;
	}
	skb->mark = p->mark;
	if (!is_held(skb))
		skb->priority = p->priority;
	set_judged(skb);
	return readdress(skb, eth, ip, to, p->smac, ifindex);
}

/* add_to_tally counts a packet that the cache forwards, for the log of connections (tally.h). */
static __always_inline void add_to_tally(const struct flow_path *p, struct wire w, enum side side)
{
	__u32 at = p->tally;
	struct tally *t;

	if (!tallying)
		return;
	t = bpf_map_lookup_elem(&flow_tallies, &at);
	if (!t)
		return;
	__sync_fetch_and_add(side == FROM_LAN ? &t->up_bytes : &t->down_bytes, w.bytes);
	__sync_fetch_and_add(side == FROM_LAN ? &t->up_packets : &t->down_packets, w.packets);
}

/* forward_by_cache_up forwards an admitted client's packet by the cache, or leaves it to the
 * stack. */
static __always_inline int forward_by_cache_up(struct __sk_buff *skb, const struct iphdr *ip,
	const void *end, __u64 now)
{
	struct flow_path p;

	if (!find_path(skb, ip, end, FROM_LAN, now, &p))
		return pass(skb, REASON_STACK);
	add_to_tally(&p, on_wire(skb, ip, end), FROM_LAN);
	return send_by_path(skb, &p, p.dmac, wan_ifindex);
}

/* forward forwards an admitted packet of a client. The settings have the stack forward where the
 * destination alone does not determine the hop. */
static __always_inline int forward(struct __sk_buff *skb, struct ethhdr *eth, struct iphdr *ip,
	const void *end, __u64 now)
{
	__u32 zero = 0, slot;
	const struct settings *s = bpf_map_lookup_elem(&gateway_settings, &zero);
	struct hop *h;

	if (!s || !may_redirect(s, now))
		return forward_by_cache_up(skb, ip, end, now);
	slot = (ip->daddr ^ ip->daddr >> 12 ^ ip->daddr >> 24) & (HOPS - 1);
	h = bpf_map_lookup_elem(&hops, &slot);
	if (!h)
		return pass(skb, REASON_STACK);
	if (h->dst != ip->daddr || h->generation != s->generation || now >= h->until) {
		/* This packet goes through the stack, so that the stack keeps the
		 * neighbour entry up to date. */
		ask_for_hop(skb, ip, h, s->generation, now);
		return pass(skb, REASON_STACK);
	}
	if (!h->ifindex || !may_bypass_stack(skb, ip, h->mtu, end))
		return pass(skb, REASON_STACK);
	return readdress(skb, eth, ip, h->dmac, h->smac, h->ifindex);
}
