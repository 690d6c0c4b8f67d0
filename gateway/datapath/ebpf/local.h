/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Packets for the gateway itself. */
#pragma once

#include "strangers.h"

/* is_leased reports whether an address is a client's. ip_in has compared the MAC address. */
static __always_inline int is_leased(__be32 addr)
{
	__u32 at = place(addr);
	const struct client *c = bpf_map_lookup_elem(&clients, &at);

	return c && c->state != STATE_NONE;
}

/* hand_over passes a frame to the DHCP server. With a packet socket instead, the kernel
 * would clone every packet that goes through the stack. */
static __noinline int hand_over(struct __sk_buff *skb, __be32 from)
{
	__u64 bytes = skb->len;
	struct request *r;

	/* Half of the buffer is for clients that renew a lease, whatever others send. */
	if (!is_leased(from) && bpf_ringbuf_query(&requests, BPF_RB_AVAIL_DATA) > REQUESTS / 2)
		return drop(REASON_OVERFLOW);

	/* Two separate checks, because the verifier does not understand the compiler's combined one. */
	if (bytes < ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr))
		return drop(REASON_MALFORMED);
	asm volatile("" : "+r"(bytes));
	if (bytes > REQUEST_MAX)
		return drop(REASON_MALFORMED);
	if (bytes <= REQUEST_MOST)
		r = bpf_ringbuf_reserve(&requests, offsetof(struct request, frame) + REQUEST_MOST, 0);
	else
		r = bpf_ringbuf_reserve(&requests, sizeof(*r), 0);
	if (!r)
		return drop(REASON_OVERFLOW);
	if (bpf_skb_load_bytes(skb, 0, r->frame, bytes)) {
		bpf_ringbuf_discard(r, 0);
		return drop(REASON_MALFORMED);
	}
	r->bytes = bytes;
	bpf_ringbuf_submit(r, 0);
	return drop(REASON_LOCAL);
}

/* local handles a packet for the gateway itself: a complete DHCP request, to this machine
 * or to all, goes to the DHCP server, anything else to the stack. */
static __always_inline int local(struct __sk_buff *skb, const struct iphdr *ip, const void *end)
{
	if (ip->protocol != IPPROTO_UDP || ports_of(ip, end).dest != DHCP_SERVER)
		return pass(REASON_LOCAL);
	if (!may_send(skb, SENDS_DHCP, is_leased(ip->saddr)))
		return drop(REASON_THROTTLED);
	if (hear_dhcp && !is_fragment(ip) && (skb->pkt_type == PACKET_HOST || skb->pkt_type == PACKET_BROADCAST))
		return hand_over(skb, ip->saddr);
	return pass(REASON_LOCAL);
}
