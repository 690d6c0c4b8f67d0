/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Bounds on what unauthenticated clients make the gateway keep and send. Each address has a token
 * bucket for each kind of work, and so has each MAC address. A further bucket of each MAC address is
 * for frames whose source address is not known to be its own. Of admitted clients only DHCP and ARP
 * requests come here. */
#pragma once

#include "packet.h"

/* SINCE makes a bucket that was never used a full one, also where the clock has run for less
 * than the bucket takes to fill: ns, more than a day. */
#define SINCE (1ull << 50)

/* spend takes one token from a bucket, and reports whether there was one. A token comes back after
 * cost ns; an empty bucket is full again after most ns. *used is the time until which tokens are
 * used up: SINCE and CLOCK_MONOTONIC, ns, never later than now. If two CPUs spend at once, one of
 * them tries again. */
__noinline int spend(__u64 *used, __u64 cost, __u64 most)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u64 now = SINCE + bpf_ktime_get_coarse_ns(), was, next;

		if (!used)
			return 0;
		was = *(volatile __u64 *)used;
		next = (was + most < now ? now - most : was) + cost;
		if (next > now)
			return 0;
		if (__sync_val_compare_and_swap(used, was, next) == was)
			return 1;
	}
	return 0;
}

static const struct buckets unused;

/* spend_work_of reports whether the client of a slot and a MAC address may have work done, and
 * counts that. */
__noinline int spend_work_of(__u32 slot, const struct device *mac, enum work kind)
{
	struct buckets *u = bpf_map_lookup_elem(&strangers, &slot);
	struct device key;
	__u64 i = kind;

	asm volatile("" : "+r"(i)); /* one copy, whose bounds the verifier then knows */
	if (!mac || !u || i >= WORKS)
		return 0;
	key = *mac; /* before Linux 6.2 a key must be on the function's own stack */
	if (!spend(&u->until[i], budgets[i].cost_ns, budgets[i].most_ns))
		return 0;
	u = bpf_map_lookup_elem(&devices, &key);
	if (!u) {
		bpf_map_update_elem(&devices, &key, &unused, BPF_NOEXIST);
		u = bpf_map_lookup_elem(&devices, &key);
	}
	if (!u)
		return 0;
	return spend(&u->until[i], budgets[i].cost_ns, budgets[i].most_ns);
}

/* spend_work is spend_work_of for the client that has an address. */
__noinline int spend_work(__be32 addr, enum work kind)
{
	__u32 at = place(addr);
	const struct client *c = bpf_map_lookup_elem(&clients, &at);
	struct device key = {};

	if (!c)
		return 0;
	__builtin_memcpy(key.mac, c->mac, ETH_ALEN);
	return spend_work_of(at, &key, kind);
}

/* flow_of describes a packet as connection tracking would: ICMP by its type and identifier,
 * other protocols by what are ports in most of them. What a packet lacks is 0, as the ports of a
 * later fragment. */
static __always_inline void flow_of(struct __sk_buff *skb, const struct iphdr *ip, struct flow *f)
{
	__u8 icmp[8];

	*f = (struct flow){ .client = ip->saddr, .dest = ip->daddr, .protocol = ip->protocol };
	if (ip->frag_off & bpf_htons(IP_OFFSET))
		return;
	if (ip->protocol == IPPROTO_ICMP) {
		bpf_skb_load_bytes(skb, ETH_HLEN + ip->ihl * 4, icmp, sizeof(icmp));
		f->id = icmp[0] | icmp[1] << 8 | icmp[4] << 16 | (__u32)icmp[5] << 24;
	} else {
		bpf_skb_load_bytes(skb, ETH_HLEN + ip->ihl * 4, &f->id, sizeof(f->id));
	}
}

/* may_flow reports whether an unauthenticated client's packet may pass. The first packet of a flow
 * spends from the budget first, later ones from further; where that is WORKS they are free. A flow
 * into the garden that is neither UDP nor ICMP spends from WORK_LASTING too, because connection
 * tracking keeps such flows for long. */
static __always_inline int may_flow(struct __sk_buff *skb, const struct iphdr *ip, enum work first,
	enum work further)
{
	struct flow f;
	__u8 seen = 1;

	flow_of(skb, ip, &f);
	if (bpf_map_lookup_elem(&flows, &f))
		return further == WORKS || spend_work(ip->saddr, further);
	if (!spend_work(ip->saddr, first))
		return 0;
	if (first == WORK_GARDEN && ip->protocol != IPPROTO_UDP && ip->protocol != IPPROTO_ICMP &&
		!spend_work(ip->saddr, WORK_LASTING))
		return 0;
	bpf_map_update_elem(&flows, &f, &seen, BPF_ANY);
	return 1;
}

/* may_send reports whether the sender of a frame may send another DHCP request, ARP probe, or
 * packet from an address that nobody is known to have. MAC addresses that are not remembered
 * share a bucket, so that a device that makes them up gets no more. leased: the frame's MAC address
 * has a lease, so it need not share. */
__noinline int may_send(struct __sk_buff *skb, enum sending kind, int leased)
{
	struct sender key = { .kind = kind };
	__u64 *used, full = 0;
	__u32 i = kind;

	if (bpf_skb_load_bytes(skb, ETH_ALEN, key.mac, ETH_ALEN))
		return 0;
	used = bpf_map_lookup_elem(&senders, &key);
	if (!used) {
		__u64 *shared = bpf_map_lookup_elem(&new_senders, &i);

		if (!leased && !spend(shared, new_senders_budget.cost_ns, new_senders_budget.most_ns))
			return 0;
		bpf_map_update_elem(&senders, &key, &full, BPF_NOEXIST);
		used = bpf_map_lookup_elem(&senders, &key);
	}
	return spend(used, sender_budget.cost_ns, sender_budget.most_ns);
}
