/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* ARP from the LAN: whom senders may speak for, and who is new. */
#pragma once

#include "preauth.h"

/* An ARP packet for IPv4 on Ethernet. */
struct arp {
	__be16 hardware, protocol;
	__u8 hardware_len, protocol_len;
	__be16 operation;
	__u8 sender_mac[ETH_ALEN];
	__be32 sender;
	__u8 target_mac[ETH_ALEN];
	__be32 target;
} __attribute__((packed));

#define ARP_REQUEST bpf_htons(1)

/* report_newcomer reports an address that nobody is known to have, and the sender of its frame. */
static __always_inline void report_newcomer(struct __sk_buff *skb, __be32 addr, const void *mac)
{
	struct newcomer *n;

	if (!may_send(skb, IS_NEW, 0))
		return;
	n = bpf_ringbuf_reserve(&newcomers, sizeof(*n), 0);
	if (!n)
		return;
	n->addr = addr;
	__builtin_memcpy(n->mac, mac, ETH_ALEN);
	n->pad[0] = n->pad[1] = 0;
	bpf_ringbuf_submit(n, 0);
}

static __always_inline int arp_in(struct __sk_buff *skb, const void *data, const void *end)
{
	const struct arp *a = data + ETH_HLEN;
	const struct ethhdr *eth = data;
	const struct client *c;
	__u32 at;

	if ((const void *)(a + 1) > end || a->hardware_len != ETH_ALEN ||
		a->protocol_len != sizeof(a->sender))
		return drop(skb, REASON_MALFORMED);
	if (mac_at(a->sender_mac) != mac_at(eth->h_source)) /* in another device's name */
		return drop(skb, REASON_ARP_SPOOF);
	if (!a->sender) /* asks whether an address is free */
		return may_send(skb, PROBES, 0) ? TC_ACT_OK : drop(skb, REASON_THROTTLED);
	at = place(a->sender);
	c = bpf_map_lookup_elem(&clients, &at);
	if (!c || a->sender == lan.gateway)
		return drop(skb, REASON_ARP_SPOOF);
	if (c->state == STATE_NONE) {
		/* The stack would enter the sender into its neighbour table, whoever that is. The
		 * daemon answers a newcomer that it takes up. */
		if (!learn)
			return drop(skb, REASON_ARP_SPOOF);
		report_newcomer(skb, a->sender, eth->h_source);
		return TC_ACT_SHOT;
	}
	if (mac_at(c->mac) != mac_at(eth->h_source) || c->session)
		return drop(skb, REASON_ARP_SPOOF);
	if (a->operation == ARP_REQUEST && !spend_work(a->sender, WORK_QUESTION))
		return drop(skb, REASON_THROTTLED);
	return TC_ACT_OK;
}
