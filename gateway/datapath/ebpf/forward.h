/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Accounting and forwarding of admitted packets. */
#pragma once

#include "limit.h"

#define HOP_NS 1000000000ULL /* a hop is asked for again after a second */

/* within_limits applies an admitted client's limits to a packet of its address at a place, and counts
 * it; it returns 0 if the packet must be dropped. */
static __always_inline int within_limits(struct __sk_buff *skb, __u32 at, const struct client *c,
	struct wire w, int up,
				 __u64 now)
{
	__u32 slot = at + c->slot_offset;
	struct counters *n = bpf_map_lookup_elem(&client_counters, &slot);

	if (!n)
		return 0;
	n->seen = now;
	if (unlikely(c->flags & LIMITED) && !limit(skb, slot, n, (__u64)w.packets << 32 | w.bytes, up))
		return 0;
	__sync_fetch_and_add(up ? &n->up_bytes : &n->down_bytes, w.bytes);
	__sync_fetch_and_add(up ? &n->up_packets : &n->down_packets, w.packets);
	return 1;
}

#define PADDED 46 /* an Ethernet frame's shortest payload */

/* may_bypass_stack reports whether a packet may bypass the stack: it needs only a next hop, and
 * the frame has no uncounted bytes after the packet. */
static __always_inline int may_bypass_stack(const struct __sk_buff *skb, const struct iphdr *ip,
	__u32 mtu, const void *end)
{
	const struct tcphdr *tcp = (const void *)(ip + 1);

	if (unlikely(ip->ihl != 5 || is_fragment(ip) || ip->ttl <= 1))
		return 0;
	if (!skb->gso_size) {
		__u32 all = skb->len - ETH_HLEN;

		return all <= mtu && (all <= PADDED || all == bpf_ntohs(ip->tot_len));
	}
	if (ip->protocol != IPPROTO_TCP || (const void *)(tcp + 1) > end)
		return 0;
	return sizeof(*ip) + tcp->doff * 4 + skb->gso_size <= mtu;
}

/* readdress sets the packet's Ethernet addresses, see set_mac, and decrements its TTL. */
static __always_inline int readdress(struct __sk_buff *skb, struct ethhdr *eth, struct iphdr *ip,
	const void *to, const void *from, __u32 ifindex)
{
	__u32 sum = ip->check + bpf_htons(0x0100);

	set_mac(eth->h_dest, to);
	set_mac(eth->h_source, from);
	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
	count(skb, REASON_FORWARDED);
	return bpf_redirect(ifindex, 0);
}

/* ask_for_hop gets the packet's next hop from the kernel's routing and caches it. */
static __always_inline void ask_for_hop(struct __sk_buff *skb, const struct iphdr *ip,
	struct hop *h, __u32 generation, __u64 now)
{
	struct bpf_fib_lookup fib;
	long answer = route(skb, ip, &fib);
	struct hop asked = { .dst = ip->daddr, .generation = generation, .until = now + HOP_NS };

	/* Routes into the LAN, and errors, are left to the stack, and so is 0.0.0.0/8, which the
	 * stack does not forward. */
	if (answer == BPF_FIB_LKUP_RET_SUCCESS && fib.ifindex != lan.ifindex &&
		bpf_ntohl(ip->daddr) >> 24) {
		asked.ifindex = fib.ifindex;
		asked.mtu = fib.mtu_result;
		__builtin_memcpy(asked.dmac, fib.dmac, ETH_ALEN);
		__builtin_memcpy(asked.smac, fib.smac, ETH_ALEN);
	} else if (answer == BPF_FIB_LKUP_RET_NO_NEIGH) {
		asked.until = 0; /* the stack is about to ask the neighbour */
	}
	*h = asked;
}

/* may_redirect reports whether packets may be redirected. */
static __always_inline int may_redirect(const struct settings *s,
	__u64 now) { return now < s->redirect_until; }
