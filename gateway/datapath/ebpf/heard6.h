/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the daemon hears of clients' IPv6. */
#pragma once

#include "packet6.h"
#include "strangers.h"
#include "../../../ppp/pppoe/header.h"

/* put_session writes a frame that came in a PPPoE session behind its Ethernet addresses as it came, with
 * the headers that were taken off. It returns a negative error where the frame cannot be read. */
static __always_inline long put_session(struct __sk_buff *skb, struct request *r, __u64 bytes, __u32 session)
{
	__u16 *head = (void *)(r->frame + 2 * ETH_ALEN);

	head[0] = bpf_htons(ETH_P_PPP_DATA);
	head[1] = PPPOE_DATA;
	head[2] = session;
	head[3] = bpf_htons(bytes - ETH_HLEN + sizeof(__u16));
	head[4] = PPP_IPV6;
	return bpf_skb_load_bytes(skb, ETH_HLEN, r->frame + ETH_HLEN + PPPOE_LEN, bytes - ETH_HLEN);
}

/* hear6 has the daemon hear a frame, or its beginning. session is the PPPoE session it came in, network
 * order, or 0. It returns 0 where the daemon does not hear it. */
__noinline int hear6(struct __sk_buff *skb, enum sending kind, int known, __u32 session)
{
	__u64 bytes = skb->len;
	struct request *r;
	int whole = kind != IS_NEW;

	if (!may_send(skb, kind, known))
		return 0;
	if (!known && bpf_ringbuf_query(&heard6, BPF_RB_AVAIL_DATA) > HEARD6 / 2)
		return 0; /* half of the buffer is for clients that are known */
	if (!whole && bytes > ETH_HLEN + IP6_LEN)
		bytes = ETH_HLEN + IP6_LEN;
	if (bytes < ETH_HLEN + IP6_LEN)
		return 0;
	asm volatile("" : "+r"(bytes));
	if (bytes > REQUEST_MAX - PPPOE_LEN)
		return 0;
	if (bytes <= HEARD6_MOST - PPPOE_LEN)
		r = bpf_ringbuf_reserve(&heard6, offsetof(struct request, frame) + HEARD6_MOST, 0);
	else
		r = bpf_ringbuf_reserve(&heard6, sizeof(*r), 0);
	if (!r)
		return 0;
	if (bpf_skb_load_bytes(skb, 0, r->frame, bytes) || (session && put_session(skb, r, bytes, session) < 0)) {
		bpf_ringbuf_discard(r, 0);
		return 0;
	}
	r->bytes = session ? bytes + PPPOE_LEN : bytes;
	bpf_ringbuf_submit(r, 0);
	return 1;
}
