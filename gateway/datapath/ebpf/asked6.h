/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the WAN may send to clients by IPv6, whose addresses it can reach without NAT: only what a
 * client has asked for by a packet of the same connection, and errors about such packets (RFC 6092,
 * "simple security"). */
#pragma once

#include "packet6.h"

/* A connection of a client. Of protocols without ports, and of pairs of addresses, ports are 0. */
struct asked6_key {
	struct addr6 client, remote;
	__u16 client_port, remote_port; /* network order; of echoes the identifier, and 0 */
	__u32 protocol; /* PAIR6: any protocol between the two, for fragments */
};

#define PAIR6 256
#define NEXT_FRAGMENT 44

/* When a client last sent a packet of a connection, ns of CLOCK_MONOTONIC, to within two NOTED_NS. A
 * full map drops connections that were idle longest; the client's next packet enters them again.
 * Pinned, so that downloads go on under the daemon's successor. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct asked6_key);
	__type(value, __u64);
} asked6 SEC(".maps");

/* Networks behind the WAN whose hosts may reach clients unasked. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct garden6_prefix);
	__type(value, __u8);
} inbound6 SEC(".maps");

#define NOTED_NS 1000000000ULL
#define SECOND_NS 1000000000ULL
#define ASKED_TCP_NS (7440 * SECOND_NS) /* RFC 6092, REC-35: 2 hours 4 minutes */
#define ASKED_NS (300 * SECOND_NS)      /* REC-14, of UDP; also of what is neither */

/* asked6_of writes the key of a packet's connection, seen from the client. */
static __always_inline void asked6_of(struct asked6_key *k, const struct ipv6hdr *ip, const void *end,
	int up)
{
	const struct ports *p = (const void *)(ip + 1);
	const struct icmp6hdr *icmp = (const void *)(ip + 1);

	*k = (struct asked6_key){
		.client = addr6_at(up ? &ip->saddr : &ip->daddr), .remote = addr6_at(up ? &ip->daddr : &ip->saddr),
		.protocol = ip->nexthdr,
	};
	if (ip->nexthdr == NEXT_FRAGMENT) {
		k->protocol = PAIR6;
	} else if (ip->nexthdr == NEXT_ICMP6) {
		if ((const void *)(icmp + 1) <= end && (icmp->type == ICMP6_ECHO || icmp->type == ICMP6_ECHO_REPLY))
			k->client_port = icmp->rest & 0xffff; /* the identifier's bytes come first */
	} else if ((ip->nexthdr == IPPROTO_TCP || ip->nexthdr == IPPROTO_UDP) && (const void *)(p + 1) <= end) {
		k->client_port = up ? p->source : p->dest;
		k->remote_port = up ? p->dest : p->source;
	}
}

/* note_asked6 notes that a client has sent a packet of a connection. */
__noinline int note_asked6(struct __sk_buff *skb)
{
	struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HLEN;
	void *end = (void *)(long)skb->data_end;
	struct asked6_key key;
	__u64 now = clock_ns(), *noted;

	if ((void *)(ip + 1) > end)
		return 0;
	asked6_of(&key, ip, end, 1);
	noted = bpf_map_lookup_elem(&asked6, &key);
	if (likely(noted && now - *noted < NOTED_NS))
		return 0;
	bpf_map_update_elem(&asked6, &key, &now, BPF_ANY);
	key.client_port = key.remote_port = 0;
	key.protocol = PAIR6;
	return bpf_map_update_elem(&asked6, &key, &now, BPF_ANY);
}

/* was_asked6 reports whether the client has lately sent a packet of a connection. */
static __always_inline int was_asked6(const struct asked6_key *key, __u64 now)
{
	const __u64 *noted = bpf_map_lookup_elem(&asked6, key);

	return noted && now - *noted < (key->protocol == IPPROTO_TCP ? ASKED_TCP_NS : ASKED_NS);
}

/* is_error6 reports whether a packet is an ICMPv6 error, and reads the key of the connection of the
 * client's packet that it quotes. */
static __always_inline int is_error6(const struct ipv6hdr *ip, const void *end, struct asked6_key *k)
{
	const struct icmp6hdr *icmp = (const void *)(ip + 1);
	const struct ipv6hdr *quoted = (const void *)(icmp + 1);

	if (ip->nexthdr != NEXT_ICMP6 || (const void *)(quoted + 1) > end || icmp->type >= ICMP6_ECHO ||
		!same6(addr6_at(&quoted->saddr), addr6_at(&ip->daddr)))
		return 0;
	asked6_of(k, quoted, end, 1);
	return 1;
}

/* may_enter6 reports whether a packet from outside the LAN may come to a client. */
__noinline int may_enter6(struct __sk_buff *skb)
{
	struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HLEN;
	void *end = (void *)(long)skb->data_end;
	struct garden6_prefix from = { .bits = 128 };
	struct asked6_key key;
	__u64 now = clock_ns();

	if ((void *)(ip + 1) > end)
		return 0;
	__builtin_memcpy(from.addr, &ip->saddr, sizeof(from.addr));
	asked6_of(&key, ip, end, 0);
	if (likely(was_asked6(&key, now)))
		return 1;
	if (is_error6(ip, end, &key) && was_asked6(&key, now))
		return 1;
	return bpf_map_lookup_elem(&inbound6, &from) != 0;
}
