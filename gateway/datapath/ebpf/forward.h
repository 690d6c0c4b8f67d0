/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Accounting, limits, and forwarding of admitted packets. */
#pragma once

#include "packet.h"

#define HOP_NS 1000000000ULL /* a hop is asked for again after a second */

static __always_inline int within(const struct limits *l, const struct counters *n, int up)
{
	if (up ? l->up_bytes && n->up_bytes >= l->up_bytes : l->down_bytes && n->down_bytes >= l->down_bytes)
		return 0;
	return !l->total_bytes || n->up_bytes + n->down_bytes < l->total_bytes;
}

/* is_early reports whether to drop a packet although it would fit, so that TCP notices
 * in time that it has reached its rate. A sender that notices only when the whole burst
 * is used loses a window at once and falls far below its rate, and what it leaves unused
 * beyond a burst is lost to it. When more than half of the burst is used and the use
 * still grows, one packet is dropped for each further sixteenth. While the use shrinks,
 * as after the sender has slowed down, no packet is dropped; told_ns follows at a
 * distance that a window sent at once does not exceed. */
static __always_inline int is_early(__u64 *told_ns, __u64 used_ns, __u64 burst_ns)
{
	__u64 told = *(volatile __u64 *)told_ns, half = burst_ns / 2, step = burst_ns / 16;

	if (used_ns < half) {
		if (told)
			*told_ns = 0;
		return 0;
	}
	if (used_ns >= (told > half ? told : half) + step) {
		*told_ns = used_ns;
		return 1;
	}
	if (used_ns + step < told)
		*told_ns = used_ns + step;
	return 0;
}

/* meter uses the time that the packet needs at the client's rate. The meter is a
 * virtual clock that is at most the burst behind the real clock and never ahead of
 * it. If two CPUs meter one client at once, one of them tries again. */
static __always_inline int meter(struct meter *m, __u64 ps_per_byte, __u64 burst_ns, __u64 bytes)
{
	__u64 need = bytes * ps_per_byte / 1000;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u64 now = bpf_ktime_get_ns();
		__u64 was = *(volatile __u64 *)&m->ns;
		__u64 used = was + burst_ns < now ? now - burst_ns : was;

		if (used + need > now || is_early(&m->told_ns, burst_ns - (now - used), burst_ns))
			return 0;
		if (__sync_val_compare_and_swap(&m->ns, was, used + need) == was)
			return 1;
	}
	return 0;
}

/* limit applies a client's limits to a packet; 0: the packet must be dropped. */
static __noinline int limit(__u32 at, struct counters *n, __u64 bytes, __u32 packets, int up)
{
	const struct limits *l = bpf_map_lookup_elem(&client_limits, &at);
	struct meters *m = bpf_map_lookup_elem(&client_meters, &at);
	__u64 ps;

	if (!l || !m || !n)
		return 0;
	if (!within(l, n, up)) {
		__sync_fetch_and_add(&n->dropped, packets);
		count(REASON_QUOTA);
		return 0;
	}
	ps = up ? l->up_ps_per_byte : l->down_ps_per_byte;
	if (ps && !meter(up ? &m->up : &m->down, ps, up ? l->up_burst_ns : l->down_burst_ns, bytes)) {
		__sync_fetch_and_add(&n->dropped, packets);
		count(REASON_RATE);
		return 0;
	}
	return 1;
}

/* admit applies an admitted client's limits to a packet and counts it; it returns 0 if
 * the packet must be dropped. */
static __always_inline int admit(__u32 at, const struct client *c, struct wire w, int up, __u64 now)
{
	struct counters *n = bpf_map_lookup_elem(&client_counters, &at);

	if (!n)
		return 0;
	n->seen = now;
	if (unlikely(c->flags & LIMITED) && !limit(at, n, w.bytes, w.packets, up))
		return 0;
	__sync_fetch_and_add(up ? &n->up_bytes : &n->down_bytes, w.bytes);
	__sync_fetch_and_add(up ? &n->up_packets : &n->down_packets, w.packets);
	return 1;
}

#define PADDED 46 /* an Ethernet frame's shortest payload */

/* simple reports whether a packet may bypass the stack: it needs only a next hop, and
 * the frame has no uncounted bytes after the packet. */
static __always_inline int simple(const struct __sk_buff *skb, const struct iphdr *ip, __u32 mtu, const void *end)
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

/* readdress sets the packet's Ethernet addresses and decrements its TTL. */
static __always_inline int readdress(struct __sk_buff *skb, struct ethhdr *eth, struct iphdr *ip, const void *to, const void *from, __u32 ifindex)
{
	__u32 sum = ip->check + bpf_htons(0x0100);

	__builtin_memcpy(eth->h_dest, to, ETH_ALEN);
	__builtin_memcpy(eth->h_source, from, ETH_ALEN);
	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
	count(REASON_FORWARDED);
	return bpf_redirect(ifindex, 0);
}

/* ask gets the packet's next hop from the kernel's routing and caches it. */
static __always_inline void ask(struct __sk_buff *skb, const struct iphdr *ip, struct hop *h, __u32 generation, __u64 now)
{
	struct bpf_fib_lookup fib;
	long answer = route(skb, ip, &fib);
	struct hop asked = { .dst = ip->daddr, .generation = generation, .until = now + HOP_NS };

	/* Routes into the LAN, and errors, are left to the stack, and so is 0.0.0.0/8, which the
	 * stack does not forward. */
	if (answer == BPF_FIB_LKUP_RET_SUCCESS && fib.ifindex != lan_ifindex && bpf_ntohl(ip->daddr) >> 24) {
		asked.ifindex = fib.ifindex;
		asked.mtu = fib.mtu_result;
		__builtin_memcpy(asked.dmac, fib.dmac, ETH_ALEN);
		__builtin_memcpy(asked.smac, fib.smac, ETH_ALEN);
	} else if (answer == BPF_FIB_LKUP_RET_NO_NEIGH) {
		asked.until = 0; /* the stack is about to ask the neighbour */
	}
	*h = asked;
}

/* redirects reports whether packets may be redirected. */
static __always_inline int redirects(const struct settings *s, __u64 now) { return now < s->redirect_until; }
