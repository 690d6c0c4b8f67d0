/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which IPv4 packets a client may receive, from the WAN and from other clients. */
#pragma once

#include "preauth.h"

/* drop_unowned handles a packet for an address of the LAN that nobody leased. Where the stack would
 * look for its owner in the LAN it is dropped: whoever scans the LAN would otherwise fill the
 * neighbour table. The stack keeps what it would deliver here or send elsewhere. */
__noinline int drop_unowned(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	struct bpf_fib_lookup fib;
	long answer;

	if ((void *)(ip + 1) > end)
		return drop(skb, REASON_MALFORMED);
	answer = route(skb, ip, &fib);
	if ((answer == BPF_FIB_LKUP_RET_SUCCESS || answer == BPF_FIB_LKUP_RET_NO_NEIGH) &&
		fib.ifindex == lan.ifindex)
		return drop(skb, REASON_NOT_LEASED);
	return TC_ACT_OK;
}

/* may_receive reports whether a packet may go to a client that has an entry, and counts it. */
static __always_inline int may_receive(struct __sk_buff *skb, const struct iphdr *ip, __u32 at,
	const struct client *c, const void *end, __u64 now)
{
	if (c->state != STATE_ADMITTED || expired(c, now)) {
		struct ports p = ports_of(ip, end);
		int ok = is_open_garden(ip->saddr, p.source, ip->protocol) ||
			may_visit(c->mac, ip->saddr, p.source, ip->protocol);

		count(skb, ok ? REASON_GARDEN : REASON_BLOCKED);
		return ok;
	}
	return within_limits(skb, at, c, on_wire(skb, ip, end), 0, now);
}

/* forward_across passes an admitted client's packet to another client, if that client may
 * receive it. Where the stack forwards, lan_out checks this. */
static __always_inline int forward_across(struct __sk_buff *skb, const struct iphdr *ip, __u32 to,
	const void *end, __u64 now)
{
	__u32 zero = 0;
	const struct settings *s = bpf_map_lookup_elem(&gateway_settings, &zero);
	const struct client *c = bpf_map_lookup_elem(&clients, &to);

	if (!s || !c)
		return TC_ACT_SHOT;
	/* as the sender's; lan_out or what follows counts it as the receiver's */
	count(skb, REASON_STACK);
	if (c->state == STATE_NONE)
		return drop_unowned(skb);
	if (!may_redirect(s, now))
		return TC_ACT_OK;
	if (!may_receive(skb, ip, to, c, end, now))
		return TC_ACT_SHOT;
	set_judged(skb);
	count(skb, REASON_STACK);
	return TC_ACT_UNSPEC;
}
