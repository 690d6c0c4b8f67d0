/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Packets for the gateway itself. */
#pragma once

#include "strangers.h"

/* is_leased reports whether an address is the client's that sent the frame. */
static __always_inline int is_leased(const struct ethhdr *eth, __be32 addr)
{
	__u32 at = place(addr);
	const struct client *c = bpf_map_lookup_elem(&clients, &at);

	return c && c->state != STATE_NONE && mac_at(c->mac) == mac_at(eth->h_source);
}

/* pass_to_server passes a frame to the DHCP server. With a packet socket instead, the kernel
 * would clone every packet that goes through the stack. */
__noinline int pass_to_server(struct __sk_buff *skb, int leased)
{
	__u64 bytes = skb->len;
	struct request *r;

	/* Half of the buffer is for clients that renew a lease, whatever others send. */
	if (!leased && bpf_ringbuf_query(&requests, BPF_RB_AVAIL_DATA) > REQUESTS / 2)
		return drop(skb, REASON_OVERFLOW);

	/* Two separate checks, because the verifier does not understand the compiler's combined
	 * one. */
	if (bytes < ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr))
		return drop(skb, REASON_MALFORMED);
	asm volatile("" : "+r"(bytes));
	if (bytes > REQUEST_MAX)
		return drop(skb, REASON_MALFORMED);
	if (bytes <= REQUEST_MOST)
		r = bpf_ringbuf_reserve(&requests, offsetof(struct request, frame) + REQUEST_MOST, 0);
	else
		r = bpf_ringbuf_reserve(&requests, sizeof(*r), 0);
	if (!r)
		return drop(skb, REASON_OVERFLOW);
	if (bpf_skb_load_bytes(skb, 0, r->frame, bytes)) {
		bpf_ringbuf_discard(r, 0);
		return drop(skb, REASON_MALFORMED);
	}
	r->bytes = bytes;
	bpf_ringbuf_submit(r, 0);
	return drop(skb, REASON_LOCAL);
}

/* request handles a DHCP client's message. Whatever address it comes from, also another
 * network's or another client's: a device that has moved, or whose lease has gone to another,
 * must hear of that. */
static __always_inline int request(struct __sk_buff *skb, const struct ethhdr *eth,
	const struct iphdr *ip)
{
	int leased = is_leased(eth, ip->saddr);

	if (!may_send(skb, SENDS_DHCP, leased))
		return drop(skb, REASON_THROTTLED);
	if (hear_dhcp && (skb->pkt_type == PACKET_HOST || skb->pkt_type == PACKET_BROADCAST))
		return pass_to_server(skb, leased);
	return pass(skb, REASON_LOCAL);
}
