/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Clients' quotas and rates. A rate is shaped where the interface that packets leave by has a
 * queue that holds them back: the meter is ahead of the clock by as long as the next packet
 * waits. Elsewhere it is policed. */
#pragma once

#define PACKET 1500ULL        /* bytes, of a full packet on most links */
#define CALM_NS 20000000ULL   /* that packets may wait before senders are told */
#define LEAST_NS 100000000ULL /* that any queue may be long */

#include <linux/ipv6.h>

#include "window.h"

/* within_quota reports whether a client's quota of a direction, and that of both, are not used up. */
static __always_inline int within_quota(const struct limits *l, const struct counters *n, int up)
{
	if (up ? l->up_bytes && n->up_bytes >= l->up_bytes : l->down_bytes &&
		n->down_bytes >= l->down_bytes)
		return 0;
	return !l->total_bytes || n->up_bytes + n->down_bytes < l->total_bytes;
}

#define ECN_MASK 3
#define ECN_CE 3

#define ECN6_SHIFT 4 /* IPv6's second byte has the lower half of the traffic class first */

/* mark_congestion6 is mark_congestion for the first two bytes of an IPv6 header. */
static __always_inline int mark_congestion6(__u8 *header)
{
	if (!(header[1] >> ECN6_SHIFT & ECN_MASK))
		return 0;
	header[1] |= ECN_CE << ECN6_SHIFT;
	return 1;
}

/* mark_congestion marks a packet whose sender understands congestion marks (RFC 3168); 0: it
 * does not. */
static __always_inline int mark_congestion(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u8 ecn;

	if ((void *)(ip + 1) > end)
		return 0;
	if (ip->version == 6)
		return mark_congestion6((void *)ip);
	if (!(ip->tos & ECN_MASK))
		return 0;
	ecn = ip->tos & ECN_MASK;
	if (ecn == ECN_CE)
		return 1;
	ip->tos |= ECN_CE;
	ip->check = ~fold((__u64)(__u16)~ip->check + bpf_htons(ECN_CE - ecn));
	return 1;
}

/* is_early reports whether to warn TCP although a packet would fit, so that it notices
 * in time that it has reached its rate. A sender that notices only when the whole burst
 * is used loses a window at once and falls far below its rate, and what it leaves unused
 * beyond a burst is lost to it. When more than half of the burst is used and the use
 * still grows, one packet is marked or dropped for each further sixteenth. While the use shrinks,
 * as after the sender has slowed down, no packet is; told_ns follows at a
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

/* Verdicts of police and shape. If two CPUs meter one client at once, one of them tries again. */
#define TOO_MUCH 0
#define WITHIN_RATE 1
#define NO_QUEUE 2
#define AGAIN 3
#define TRIES 4

/* police uses the time that the packet needs at the client's rate. The meter is a
 * virtual clock that is at most the burst behind the real clock and never ahead of
 * it. */
__noinline int police(struct __sk_buff *skb, struct meter *m, __u64 ps_per_byte, __u64 burst_ns,
	__u64 bytes)
{
	__u64 need = bytes * ps_per_byte / 1000, now = bpf_ktime_get_ns(), was, used;

	if (!m)
		return TOO_MUCH;
	was = *(volatile __u64 *)&m->ns;
	used = was + burst_ns < now ? now - burst_ns : was;
	if (used + need > now || (is_early(&m->told_ns, burst_ns - (now - used), burst_ns) &&
		!mark_congestion(skb)))
		return TOO_MUCH;
	return __sync_val_compare_and_swap(&m->ns, was, used + need) == was ? WITHIN_RATE : AGAIN;
}

/* CREDIT_NS is what a silent client may send without waiting, as time at its rate. */
#define CREDIT_NS 20000000ULL

/* A packet that would wait longer is dropped: a second at most, at least a tenth, and between
 * these 160 full packets, with which eight connections find their rate at 2 % loss, but never
 * more packets than the class's queue holds. */
#define MOST_NS 1000000000ULL
#define MOST_PACKETS 160
#define CLASS_PACKETS 800

static __always_inline __u64 longest_wait(__u64 ps_per_byte)
{
	__u64 ns = MOST_PACKETS * PACKET * ps_per_byte / 1000,
		fits = CLASS_PACKETS * PACKET * ps_per_byte / 1000;

	if (ns < LEAST_NS)
		ns = fits < LEAST_NS ? fits : LEAST_NS;
	return ns < MOST_NS ? ns : MOST_NS;
}

/* From CALM_NS on packets are marked or dropped at random, the more the longer they would wait:
 * of 5,000 one for each full packet ahead. One connection then keeps a queue of some 20 packets,
 * and each of eight has a window in which it recovers from a loss without a time-out. */
#define RAMP 5000ULL

static __always_inline int drops_by_chance(__u64 wait, __u64 ps_per_byte)
{
	__u64 ahead;

	if (wait < CALM_NS)
		return 0;
	ahead = (wait - CALM_NS) * 1000 / (ps_per_byte + 1); /* bytes */
	return bpf_get_prandom_u32() < ahead * ((1ULL << 32) / (RAMP * PACKET));
}

/* A small packet of a flow of which none waits passes those that wait, so that a bulk transfer
 * delays no names, keys, echoes, voices and acknowledgements. The rate pays for it all the same,
 * so what passes is at most an eighth of it, and LANE_NS at once: with more, or with full
 * packets, bulk transfers of many connections would pass too, and notice their rate by losses
 * alone. */
#define LANE_SHARE 8
#define LANE_NS 200000000ULL
#define LANE_BYTES 600

static __always_inline int may_overtake(struct queue *q, __u64 need, __u64 bytes, __u64 now)
{
	__u64 lane = q->lane_ns > now ? q->lane_ns : now;

	if (bytes > LANE_BYTES || lane > now + LANE_NS)
		return 0;
	q->lane_ns = lane + need * LANE_SHARE;
	return 1;
}

/* hash_of6 is hash_of for a frame with an IPv6 packet. Packets with extension headers are one flow
 * for each pair of addresses. */
static __always_inline __u32 hash_of6(const void *data, const void *end)
{
	const struct ipv6hdr *ip = data + ETH_HLEN;
	const __u32 *from = (const void *)&ip->saddr, *to = (const void *)&ip->daddr;
	const struct ports *p = (const void *)(ip + 1);
	__u32 hash;

	if ((const void *)(p + 1) > end)
		return 0;
	hash = from[0] ^ from[1] ^ from[2] ^ from[3] ^ to[0] ^ to[1] ^ to[2] ^ to[3] ^ ip->nexthdr;
	if (ip->nexthdr == IPPROTO_TCP || ip->nexthdr == IPPROTO_UDP)
		hash ^= p->source ^ (__u32)p->dest << 16;
	hash *= 0x9e3779b1;
	return hash ^ hash >> 15;
}

/* hash_of is the number of a packet's flow. It has a place in each of two tables: that of
 * another flow is rarely the same in both. */
static __always_inline __u32 hash_of(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 hash = 0;
	struct ports p;

	if ((void *)(ip + 1) <= end && ip->version == 6)
		return hash_of6(data, end);
	if ((void *)(ip + 1) <= end) {
		p = ports_of(ip, end);
		hash = ip->saddr ^ ip->daddr ^ ip->protocol ^ p.source ^ (__u32)p.dest << 16;
		hash *= 0x9e3779b1;
		hash ^= hash >> 15;
	}
	return hash;
}

static __always_inline __u32 *first_place(struct queue *q, __u32 hash)
{
	return &q->last[hash & (HELD_FLOWS - 1)];
}

static __always_inline __u32 *second_place(struct queue *q, __u32 hash)
{
	return &q->last[HELD_FLOWS + (hash >> 16 & (HELD_FLOWS - 1))];
}

/* A queue may be late by a tick and more. */
#define TICK_SHIFT 20
#define SLACK_TICKS 2
#define MOST_TICKS ((__u32)(MOST_NS >> TICK_SHIFT) + SLACK_TICKS + 1)

/* ticks_ahead is how many ticks a place is ahead of now; 0: it is past. Ticks wrap after 52 days, so
 * what is further ahead than any packet waits is of a flow that was held long ago. */
static __always_inline __u32 ticks_ahead(__u32 place, __u32 now)
{
	__u32 ticks = place - now;

	return ticks <= MOST_TICKS ? ticks : 0;
}

/* has_waiting reports whether a packet of a flow waits. */
static __always_inline int has_waiting(struct queue *q, __u32 hash, __u64 now)
{
	__u32 tick = now >> TICK_SHIFT;

	return ticks_ahead(*first_place(q, hash), tick) && ticks_ahead(*second_place(q, hash), tick);
}

/* note_wait has a flow's packets wait until a time, if they do not wait longer. */
static __always_inline void note_wait(struct queue *q, __u32 hash, __u64 now, __u64 when)
{
	__u32 tick = now >> TICK_SHIFT, until = (__u32)(when >> TICK_SHIFT) + SLACK_TICKS;

	if (ticks_ahead(*first_place(q, hash), tick) < until - tick)
		*first_place(q, hash) = until;
	if (ticks_ahead(*second_place(q, hash), tick) < until - tick)
		*second_place(q, hash) = until;
}

/* leave_at has a packet leave at a time. */
static __always_inline void leave_at(struct __sk_buff *skb, const struct queues *q, int up,
	enum holder by, __u64 when)
{
	if (by == HOLDER_CLASS)
		skb->priority = (up ? WAN_CLASSES : LAN_CLASSES) | q->class;
	else if (timed)
		bpf_skb_set_tstamp(skb, when, BPF_SKB_TSTAMP_DELIVERY_MONO);
}

/* is_windowed reports whether a packet is of a connection whose window can be kept small. */
__noinline int is_windowed(struct __sk_buff *skb, __u32 slot, int up)
{
	struct iphdr *ip;
	struct tcphdr *tcp;
	struct connection key;
	struct scales *known;

	tcp = tcp_of(skb, &ip);
	if (!tcp)
		return 0;
	key = connection_of(ip, tcp, slot, up);
	known = bpf_map_lookup_elem(&window_scales, &key);
	return known && known->up <= SCALE_MOST;
}

/* is_spared reports whether a packet's sender need not be told but by its window, unless the
 * queue is long all the same: the client has too many. */
static __always_inline int is_spared(struct __sk_buff *skb, __u32 slot, const struct queue *q,
	int up, __u64 wait,
				     __u64 most)
{
	return q->window && wait <= most / 4 * 3 && is_windowed(skb, slot, up);
}

#define SHAPED_UP (1ULL << 32) /* in the number for shape, beside a client's slot */
#define SHAPED_BY 33           /* where the holder is in it */

/* shape holds a packet until the rate has come to it, or until those before it of its flow have
 * left, unless it would wait too long. which is the client's slot, the direction and who holds
 * the packet. */
__noinline int shape(struct __sk_buff *skb, struct meter *m, __u64 which, __u64 ps_per_byte,
	__u64 bytes)
{
	__u32 slot = which, flow = hash_of(skb);
	struct queues *all = bpf_map_lookup_elem(&client_queues, &slot);
	__u64 need = bytes * ps_per_byte / 1000, most = longest_wait(ps_per_byte),
		now = bpf_ktime_get_ns(), was, used, wait;
	enum holder by = which >> SHAPED_BY;
	int up = !!(which & SHAPED_UP), first;
	struct queue *q;

	if (!m || !all || (by != HOLDER_TIME && !all->class))
		return NO_QUEUE;
	q = up ? &all->up : &all->down;
	was = *(volatile __u64 *)&m->ns;
	used = was + CREDIT_NS < now ? now - CREDIT_NS : was;
	wait = used > now ? used - now : 0;
	first = !has_waiting(q, flow, now) &&
		(!wait || (wait <= most + LEAST_NS && may_overtake(q, need, bytes, now)));
	if (!first && (wait > most || (drops_by_chance(wait, ps_per_byte) &&
		!is_spared(skb, slot, q, up, wait, most) && !mark_congestion(skb))))
		return TOO_MUCH;
	if (__sync_val_compare_and_swap(&m->ns, was, used + need) != was)
		return AGAIN;
	if (!first) {
		m->told_ns = 0; /* of policing, before */
		/* a small one that found the lane full: the next may pass again */
		if (bytes > LANE_BYTES)
			note_wait(q, flow, now, now + wait);
		leave_at(skb, all, up, by, now + wait);
	}
	return WITHIN_RATE;
}

#define CALM_SINCE_NS 4000000ULL

/* apply_rate applies a client's rate to a packet; 0: the packet must be dropped. now is coarse. */
static __always_inline int apply_rate(struct __sk_buff *skb, __u32 slot, const struct limits *l,
	struct meters *m, __u64 bytes,
				int up, __u64 now)
{
	__u64 ps = up ? l->up_ps_per_byte : l->down_ps_per_byte;
	const struct shaping *s;
	struct meter *of = up ? &m->up : &m->down;
	enum holder by;
	__u32 zero = 0;
	__u64 was, used, burst, which;
	int verdict = AGAIN;

	if (!ps)
		return 1;
	s = bpf_map_lookup_elem(&rate_shaping, &zero);
	by = s && now < s->until ? (up ? s->up : s->down) : HOLDER_NONE;
	burst = by != HOLDER_NONE ? CREDIT_NS : up ? l->up_burst_ns : l->down_burst_ns;
	was = *(volatile __u64 *)&of->ns;
	used = (was + burst < now ? now - burst : was) + bytes * ps / 1000;
	/* The client is below its rate, nothing of it has waited lately, and TCP need not be
	 * told. */
	if (used + (by != HOLDER_NONE ? CALM_SINCE_NS : burst / 2) <= now && !of->told_ns &&
		__sync_val_compare_and_swap(&of->ns, was, used) == was) {
		/* past the classes: htb asks neither its table nor class_of, which costs a tenth
		 * of the packet */
		if (by == HOLDER_CLASS)
			skb->priority = up ? WAN_CLASSES : LAN_CLASSES;
		return 1;
	}
	which = slot | (up ? SHAPED_UP : 0) | (__u64)by << SHAPED_BY;
	if (by != HOLDER_NONE) {
		for (int i = 0; i < TRIES && verdict == AGAIN; i++)
			verdict = shape(skb, of, which, ps, bytes);
		if (verdict != NO_QUEUE)
			return verdict == WITHIN_RATE;
	}
	verdict = AGAIN;
	for (int i = 0; i < TRIES && verdict == AGAIN; i++)
		verdict = police(skb, of, ps, up ? l->up_burst_ns : l->down_burst_ns, bytes);
	return verdict == WITHIN_RATE;
}

/* keep_queue_short keeps a client's queue of the other way short by what a packet acknowledges,
 * while the rate there is used. */
static __always_inline void keep_queue_short(struct __sk_buff *skb, __u32 slot,
	const struct limits *l, struct meters *m, int up,
				 __u64 now)
{
	__u64 ps = up ? l->down_ps_per_byte : l->up_ps_per_byte, used = *(volatile __u64 *)(up
		? &m->down.ns : &m->up.ns);
	__u32 zero = 0;
	const struct shaping *s;
	struct iphdr *ip;
	struct tcphdr *tcp;

	if (!ps)
		return;
	if (used + CREDIT_NS / 2 > now) {
		s = bpf_map_lookup_elem(&rate_shaping, &zero);
		if (s && now < s->until && (up ? s->down : s->up) != HOLDER_NONE)
			offer_smaller_window(skb, slot, ps, used > now ? used - now : 0, up);
	}
	tcp = tcp_of(skb, &ip);
	if (tcp && tcp->syn)
		note_scale(skb, slot, up);
}

/* limit applies a client's limits to a packet; 0: the packet must be dropped. size is its
 * packets on the wire in the upper half, and their bytes. */
__noinline int limit(struct __sk_buff *skb, __u32 slot, struct counters *n, __u64 size, int up)
{
	const struct limits *l = bpf_map_lookup_elem(&client_limits, &slot);
	struct meters *m = bpf_map_lookup_elem(&client_meters, &slot);
	__u32 bytes = size, packets = size >> 32;

	if (!l || !m || !n)
		return 0;
	if (!within_quota(l, n, up)) {
		__sync_fetch_and_add(&n->dropped, packets);
		count_packets(REASON_QUOTA, packets);
		return 0;
	}
	if (!apply_rate(skb, slot, l, m, bytes, up, n->seen)) {
		__sync_fetch_and_add(&n->dropped, packets);
		count_packets(REASON_RATE, packets);
		return 0;
	}
	keep_queue_short(skb, slot, l, m, up, n->seen);
	return 1;
}
