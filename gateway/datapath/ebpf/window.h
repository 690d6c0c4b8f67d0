/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* TCP's windows, by which the connections of a client with a rate share its queue without losses.
 *
 * A window that grows back within two seconds whatever the round trip, as cubic's does, has eight
 * connections lose 4 % of their packets at 1 Mbit/s, and still 2 or 3 % with a queue twice as
 * long. While a client's packets wait one way, acknowledgements the other way therefore offer no
 * larger window than keeps the queue short. A window is never raised. Scales are known from a
 * connection's first packets (RFC 7323, 2.2). Without them, and for other protocols than TCP,
 * losses and marks tell senders. */
#pragma once

#include "packet.h"

#define SCALE_KIND 3
#define SCALE_MOST 14
#define SCALE_NONE 15
#define SCALE_UNKNOWN 16

/* A TCP connection of a client. */
struct connection {
	__u32 slot; /* the client's */
	__be32 remote;
	__be16 port, remote_port;
};

/* By how many bits windows are shifted. */
struct scales {
	__u8 opened;   /* as the request says; SCALE_NONE */
	__u8 up, down; /* in packets up and down; SCALE_UNKNOWN before the answer */
	__u8 pad;
};

/* Not pinned: connections older than the daemon are told by losses. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct connection);
	__type(value, struct scales);
} window_scales SEC(".maps");

#define IPV4_PLAIN 0x45 /* an IPv4 header's first byte: version 4, no options */

/* tcp_of is the TCP header of an IPv4 packet without options that is no fragment; NULL: it has
 * none. */
static __always_inline struct tcphdr *tcp_of(struct __sk_buff *skb, struct iphdr **ip)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = data + ETH_HLEN + sizeof(struct iphdr);

	*ip = data + ETH_HLEN;
	if ((void *)(tcp + 1) > end || *(__u8 *)*ip != IPV4_PLAIN || (*ip)->protocol != IPPROTO_TCP ||
		is_fragment(*ip))
		return 0;
	return tcp;
}

static __always_inline struct connection connection_of(const struct iphdr *ip,
	const struct tcphdr *tcp, __u32 slot,
							  int up)
{
	return (struct connection){
		.slot = slot, .remote = up ? ip->daddr : ip->saddr, .port = up ? tcp->source : tcp->dest,
		.remote_port = up ? tcp->dest : tcp->source,
	};
}

/* offered_scale is the scale in a SYN of so many bytes of headers; SCALE_NONE: it has none. */
static __always_inline __u8 offered_scale(struct __sk_buff *skb, __u32 headers)
{
	__u32 at = ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr), last = ETH_HLEN + headers;

	for (int i = 0; i < 10; i++) {
		__u8 option[3];

		if (at + sizeof(option) > last || bpf_skb_load_bytes(skb, at, option,
			sizeof(option)) || !option[0])
			break;
		if (option[0] == 1) { /* no operation */
			at++;
			continue;
		}
		if (option[0] == SCALE_KIND && option[1] == sizeof(option))
			return option[2] < SCALE_MOST ? option[2] : SCALE_MOST;
		if (option[1] < 2)
			break;
		at += option[1];
	}
	return SCALE_NONE;
}

/* note_scale notes the scale in a connection's request, and after the answer both. */
__noinline int note_scale(struct __sk_buff *skb, __u32 slot, int up)
{
	struct iphdr *ip;
	struct tcphdr *tcp = tcp_of(skb, &ip);
	struct connection key;
	struct scales *known, new = { .up = SCALE_UNKNOWN, .down = SCALE_UNKNOWN };
	int answer;
	__u8 scale;

	if (!tcp)
		return 0;
	key = connection_of(ip, tcp, slot, up);
	answer = tcp->ack;
	scale = offered_scale(skb, sizeof(*ip) + tcp->doff * 4);
	if (!answer) {
		new.opened = scale;
		return bpf_map_update_elem(&window_scales, &key, &new, BPF_ANY);
	}
	known = bpf_map_lookup_elem(&window_scales, &key);
	if (!known)
		return 0;
	new.opened = known->opened;
	if (new.opened == SCALE_NONE || scale == SCALE_NONE)
		new.up = new.down = 0;
	else
		new.up = up ? scale : new.opened, new.down = up ? new.opened : scale;
	*known = new;
	return 0;
}

/* A queue is kept at some SHORT_NS or SHORT_PACKETS, whichever is longer, by windows of at least
 * LEAST_WINDOW bytes: with less a sender would not notice a loss but by a time-out. */
#define SHORT_NS 20000000ULL
#define SHORT_PACKETS 16
#define LEAST_WINDOW (6 * PACKET)
#define MOST_WINDOW (8ULL << 20)

/* window_now is the window, bytes, that keeps the wait of a queue where it should be; 0: any. It
 * changes once a round trip, in proportion. */
static __always_inline __u64 window_now(struct queue *q, __u64 now, __u64 wait, __u64 ps_per_byte)
{
	__u64 packets = SHORT_PACKETS * PACKET * ps_per_byte / 1000, want = packets > SHORT_NS
		? packets : SHORT_NS;
	__u64 window = q->window;

	if (q->settled_ns > now)
		return window;
	if (!window) {
		if (wait < want)
			return 0;
		/* what may be under way on a path of 100 ms */
		window = (wait + LEAST_NS) * 1000 / (ps_per_byte + 1);
	} else if (wait > 2 * want) {
		window /= 2;
	} else if (wait > want) {
		window = window * want / wait;
	} else {
		window += window / 8;
	}
	if (window < LEAST_WINDOW)
		window = LEAST_WINDOW;
	q->window = window > MOST_WINDOW ? 0 : window;
	q->settled_ns = now + wait + CALM_NS;
	return q->window;
}

#define LOWER 0x10000 /* in cb[0], beside a window: lower puts it into the packet */

/* offer_smaller_window has a packet offer no larger window than keeps the queue of the other way
 * short: wait is that queue's. */
__noinline int offer_smaller_window(struct __sk_buff *skb, __u32 slot, __u64 ps_per_byte,
	__u64 wait, int up)
{
	struct iphdr *ip;
	struct tcphdr *tcp = tcp_of(skb, &ip);
	struct connection key;
	struct scales *known;
	struct queues *q;
	__u64 window;
	__u8 scale;

	if (!tcp || tcp->syn || tcp->rst || !tcp->ack)
		return 0;
	key = connection_of(ip, tcp, slot, up);
	known = bpf_map_lookup_elem(&window_scales, &key);
	q = bpf_map_lookup_elem(&client_queues, &slot);
	if (!known || !q)
		return 0;
	scale = up ? known->up : known->down;
	if (scale > SCALE_MOST)
		return 0;
	window = window_now(up ? &q->down : &q->up, bpf_ktime_get_ns(), wait, ps_per_byte) >> scale;
	if (!window && (up ? q->down.window : q->up.window))
		window = 1;
	if (window && window < bpf_ntohs(tcp->window))
		skb->cb[0] = LOWER | window;
	return 0;
}

/* write_window changes the window in a packet that was judged. */
__noinline int write_window(struct __sk_buff *skb)
{
	const __u32 header = ETH_HLEN + sizeof(struct iphdr);
	__be16 is, least = bpf_htons(skb->cb[0]);

	if (bpf_skb_load_bytes(skb, header + offsetof(struct tcphdr, window), &is, sizeof(is)))
		return 0;
	bpf_l4_csum_replace(skb, header + offsetof(struct tcphdr, check), is, least, sizeof(is));
	return bpf_skb_store_bytes(skb, header + offsetof(struct tcphdr, window), &least,
		sizeof(least), 0);
}

/* write_window_after is the verdict about a packet whose window is lowered if it was judged too
 * large. */
static __always_inline int write_window_after(struct __sk_buff *skb, int verdict)
{
	if (unlikely(skb->cb[0]))
		write_window(skb);
	return verdict;
}
