/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Forwarding of IPv6 by the cache of flows, where netfilter has rules. Each CPU copies the entries that
 * it uses: a table with long keys costs half as much as all the rest of a packet. */
#pragma once

#include "cache.h"
#include "flow6.h"
#include "forward6.h"

#define NOT_KNOWN6 0x6f /* a verdict: the tables decide */

/* What the cache knows of a packet. */
enum found6 { NO_PATH6, ON_PATH6, ENDS6 };

/* key_of6 is key_of for IPv6, but that ENDS6 says that a flow's entries end. */
static __always_inline enum found6 key_of6(const struct ipv6hdr *ip, const void *end, enum side side,
	struct flow6_key *k)
{
	const struct udphdr *udp = (const void *)(ip + 1);
	const struct tcphdr *tcp = (const void *)(ip + 1);
	const __u8 *flags = (const void *)(ip + 1) + TCP_FLAGS;

	if (unlikely((const void *)(udp + 1) > end))
		return NO_PATH6;
	k->saddr = addr6_at(&ip->saddr);
	k->daddr = addr6_at(&ip->daddr);
	__builtin_memcpy(&k->sport, udp, sizeof(k->sport) + sizeof(k->dport));
	k->protocol = ip->nexthdr;
	k->side = side;
	if (unlikely(ip->nexthdr == IPPROTO_UDP))
		return udp->len == ip->payload_len ? ON_PATH6 : NO_PATH6;
	if (unlikely(ip->nexthdr != IPPROTO_TCP || (const void *)(tcp + 1) > end))
		return NO_PATH6;
	if (unlikely((*flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) != TCP_ACK))
		return ENDS6;
	return tcp->doff >= 5 && (!ip->payload_len || tcp->doff * 4 <= bpf_ntohs(ip->payload_len))
		? ON_PATH6 : NO_PATH6;
}

/* void_flow6 removes the entries of a packet's flow in both directions. */
__noinline int void_flow6(struct __sk_buff *skb, int up)
{
	struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HLEN;
	void *end = (void *)(long)skb->data_end;
	struct flow6_key k = {};
	struct flow6_path *p;

	if ((void *)(ip + 1) > end)
		return 0;
	key_of6(ip, end, up ? FROM_LAN : FROM_WAN, &k);
	p = bpf_map_lookup_elem(&flow6_paths, &k);
	if (p)
		p->until = 0; /* the entry stays: a reset that follows may ask for it */
	k = answer_to6(&k);
	p = bpf_map_lookup_elem(&flow6_paths, &k);
	if (p)
		p->until = 0;
	stamp_flow6(&k);
	return 0;
}

/* is_answer_awaited6 is is_answer_awaited for IPv6, of a flow that is not answered. */
static __always_inline int is_answer_awaited6(const struct flow6_key *k)
{
	struct flow6_key back = answer_to6(k);
	const struct flow6_path *answer = bpf_map_lookup_elem(&flow6_paths, &back);

	return answer && answer->answers == ANSWER;
}

/* A copy of an entry, for one CPU. */
struct copied6 {
	__u64 until; /* ns of CLOCK_MONOTONIC, coarse; 0: there is none */
	__u64 stamp; /* that its flow had before it was copied */
	__u32 generation, head, mark, priority; /* as flow6_path */
	__u16 most;
	__u8 dmac[6], smac[6], pad[2];
};

/* copy_path6 copies an entry, each word read once; 0: it is not whole. */
static __always_inline int copy_path6(const struct flow6_key *k, const struct flow6_path *from,
	struct flow6_path *to)
{
	const volatile __u64 *in = (const void *)from;
	__u64 *out = (void *)to, sum = sum_of_key6(k);

#pragma unroll
	for (unsigned i = 0; i < FLOW6_WORDS; i++) {
		__u64 word = in[i];

		out[i] = word;
		sum ^= word;
	}
	return sum == *(const volatile __u64 *)&from->sum;
}

/* find_path6 looks the way of a packet's flow up, and copies it. Of a flow that nobody answers each
 * packet is looked up, because the entry for the answer may go. It returns whether the packet may take
 * it. */
__noinline int find_path6(struct __sk_buff *skb, struct copied6 *to, __u64 now, int up)
{
	struct ethhdr *eth = (void *)(long)skb->data;
	struct ipv6hdr *ip = (void *)(eth + 1);
	void *end = (void *)(long)skb->data_end;
	__u32 which = SETTINGS_OF_FLOWS6;
	const struct flow_settings *s = bpf_map_lookup_elem(&flow_settings, &which);
	const struct flow6_path *there;
	__u64 *stamp, stamped;
	struct flow6_key k;
	struct flow6_path p;
	enum found6 found;

	if (unlikely(!s || !to || now >= s->until || (void *)(ip + 1) > end))
		return NO_PATH6;
	to->until = 0;
	found = key_of6(ip, end, up ? FROM_LAN : FROM_WAN, &k);
	if (unlikely(found != ON_PATH6))
		return found;
	stamp = stamp6_of(up ? mix6(k.saddr, k.daddr, k.sport, k.dport) : mix6(k.daddr, k.saddr, k.dport, k.sport));
	if (!stamp)
		return NO_PATH6;
	stamped = __sync_val_compare_and_swap(stamp, 0, 0); /* a read that what follows does not overtake */
	there = bpf_map_lookup_elem(&flow6_paths, &k);
	if (unlikely(!there || !copy_path6(&k, there, &p)))
		return NO_PATH6;
	if (unlikely(p.answers == ANSWER))
		return ENDS6; /* this packet is the answer */
	if (unlikely(p.answers == UNANSWERED && !is_answer_awaited6(&k)))
		return NO_PATH6;
	if (unlikely(p.generation != s->generation || now >= p.until || p.head != head6_of(ip) ||
		!may_bypass_stack6(skb, ip, p.most, end)))
		return NO_PATH6;
	to->stamp = stamped, to->generation = p.generation, to->head = p.head;
	to->mark = p.mark, to->priority = p.priority, to->most = p.most;
	__builtin_memcpy(to->dmac, p.dmac, ETH_ALEN);
	__builtin_memcpy(to->smac, p.smac, ETH_ALEN);
	to->until = p.answers == ANSWERED ? p.until : 0;
	return ON_PATH6;
}

/* is_copied6 reports whether a packet may take a way that was copied; mixed is its connection's hash. */
static __always_inline int is_copied6(const struct __sk_buff *skb, const struct copied6 *p,
	const struct ipv6hdr *ip, const void *end, __u64 mixed, __u64 now)
{
	const struct tcphdr *tcp = (const void *)(ip + 1);
	const struct udphdr *udp = (const void *)(ip + 1);
	const __u8 *flags = (const void *)(ip + 1) + TCP_FLAGS;
	__u32 which = SETTINGS_OF_FLOWS6;
	const struct flow_settings *s = bpf_map_lookup_elem(&flow_settings, &which);
	const __u64 *stamp = stamp6_of(mixed);

	if (!s || !stamp || now >= s->until || now >= p->until || p->generation != s->generation ||
		p->stamp != *(const volatile __u64 *)stamp || p->head != head6_of(ip))
		return 0;
	if (likely(ip->nexthdr == IPPROTO_TCP)) {
		if ((const void *)(tcp + 1) > end || (*flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) != TCP_ACK ||
			tcp->doff < 5 || (ip->payload_len && tcp->doff * 4 > bpf_ntohs(ip->payload_len)))
			return 0;
	} else if ((const void *)(udp + 1) > end || udp->len != ip->payload_len) {
		return 0;
	}
	return may_bypass_stack6(skb, ip, p->most, end);
}

/* has_path6 reports whether the cache knows a packet's way, and copies it. */
static __always_inline int has_path6(struct __sk_buff *skb, struct copied6 *to, __u64 now, int up)
{
	int found = find_path6(skb, to, now, up);

	if (unlikely(found == ENDS6))
		void_flow6(skb, up);
	return found == ON_PATH6;
}

/* send_by_path6 sends a packet its flow's way, within its client's limits. A priority that holds it for
 * these stays. */
static __always_inline int send_by_path6(struct __sk_buff *skb, struct ethhdr *eth,
	struct ipv6hdr *ip, const struct client *c, const struct copied6 *p, const void *end, __u64 now, int up)
{
	if (unlikely(!within_limits(skb, 0, c, on_wire6(skb, ip, end), up, now)))
		return TC_ACT_SHOT;
	skb->mark = p->mark;
	if (!is_held(skb))
		skb->priority = p->priority;
	set_judged(skb);
	return readdress6(skb, eth, ip, up ? p->dmac : c->mac, p->smac, up ? wan_ifindex : lan.ifindex);
}
