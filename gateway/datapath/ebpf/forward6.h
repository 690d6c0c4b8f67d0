/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Forwarding of admitted IPv6 packets. */
#pragma once

#include "forward.h"
#include "garden6.h"

/* Where the kernel's routing sends a packet. */
enum way6 {
	WAY6_STACK, /* the stack must find it */
	WAY6_LOCAL, /* to this machine */
	WAY6_LAN,   /* to the LAN */
	WAY6_OUT,   /* out by another interface, to the next hop */
};

/* may_bypass_stack6 is may_bypass_stack for IPv6. */
static __always_inline int may_bypass_stack6(const struct __sk_buff *skb, const struct ipv6hdr *ip,
	__u32 mtu, const void *end)
{
	const struct tcphdr *tcp = (const void *)(ip + 1);

	if (unlikely(ip->nexthdr == NEXT_HOP_BY_HOP || ip->hop_limit <= 1))
		return 0;
	if (!skb->gso_size) {
		__u32 all = skb->len - ETH_HLEN;

		return all <= mtu && (all <= PADDED || all == IP6_LEN + bpf_ntohs(ip->payload_len));
	}
	if (ip->nexthdr != IPPROTO_TCP || (const void *)(tcp + 1) > end)
		return 0;
	return IP6_LEN + tcp->doff * 4 + skb->gso_size <= mtu;
}

/* readdress6 is readdress for IPv6. */
static __always_inline int readdress6(struct __sk_buff *skb, struct ethhdr *eth, struct ipv6hdr *ip,
	const void *to, const void *from, __u32 ifindex)
{
	set_mac(eth->h_dest, to);
	set_mac(eth->h_source, from);
	ip->hop_limit--;
	count(skb, REASON_FORWARDED);
	return bpf_redirect(ifindex, 0);
}

/* cached_hop6 is the place in the cache of the hop to an address. */
static __always_inline struct hop6 *cached_hop6(struct addr6 dst)
{
	__u64 both = dst.high ^ dst.low;
	__u32 fold = both ^ both >> 32, slot = (fold ^ fold >> 12 ^ fold >> 24) & (HOPS - 1);

	return bpf_map_lookup_elem(&hops6, &slot);
}

/* ask_for_hop6 asks the kernel's routing for a packet's way, and caches the answer. */
__noinline int ask_for_hop6(struct __sk_buff *skb, __u32 generation)
{
	struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HLEN;
	void *end = (void *)(long)skb->data_end;
	struct bpf_fib_lookup fib;
	struct hop6 *h;
	long answer;

	if ((void *)(ip + 1) > end)
		return WAY6_STACK;
	h = cached_hop6(addr6_at(&ip->daddr));
	answer = route6(skb, ip, &fib);
	if (answer == BPF_FIB_LKUP_RET_NOT_FWDED)
		return WAY6_LOCAL;
	if ((answer == BPF_FIB_LKUP_RET_SUCCESS || answer == BPF_FIB_LKUP_RET_NO_NEIGH) &&
		fib.ifindex == lan.ifindex)
		return WAY6_LAN;
	if (answer == BPF_FIB_LKUP_RET_SUCCESS && h) {
		h->until = 0; /* until the entry is whole: this CPU alone reads it, and an interrupt may come */
		h->dst = addr6_at(&ip->daddr); /* fib has the next hop there by now */
		h->generation = generation;
		h->ifindex = fib.ifindex;
		h->mtu = fib.mtu_result;
		__builtin_memcpy(h->dmac, fib.dmac, ETH_ALEN);
		__builtin_memcpy(h->smac, fib.smac, ETH_ALEN);
		h->until = clock_ns() + HOP_NS;
	}
	return WAY6_STACK; /* this packet keeps the stack's neighbour entry up to date */
}

/* may_receive6 is may_receive for IPv6. */
static __always_inline int may_receive6(struct __sk_buff *skb, const struct ipv6hdr *ip,
	const struct client *c, const void *end, __u64 now)
{
	if (c->state != STATE_ADMITTED || expired(c, now)) {
		struct ports p = ports6_of(ip, end);
		int ok = is_open_garden6(&ip->saddr, p.source, ip->nexthdr) ||
			may_visit6(c->mac, &ip->saddr, p.source, ip->nexthdr);

		count(skb, ok ? REASON_GARDEN : REASON_BLOCKED);
		return ok;
	}
	return within_limits(skb, 0, c, on_wire6(skb, ip, end), 0, now);
}
