/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Flows of IPv6 that the kernel's stack has decided about, as flow.h has those of IPv4. What is
 * translated (NAT66, NPTv6) is the stack's, so a packet leaves with the addresses and ports with
 * which it came in. */
#pragma once

#include <bpf/bpf_endian.h>

#include "clients6.h"
#include "flow.h"

#define SETTINGS_OF_FLOWS6 1 /* the place in flow_settings */

/* A packet. Network order. */
struct flow6_key {
	struct addr6 saddr, daddr;
	__u16 sport, dport;
	__u16 protocol;
	__u16 side;
};

/* How it leaves. */
struct flow6_path {
	__u64 until; /* ns of CLOCK_MONOTONIC, coarse, until which packets may take it */
	__u32 generation;
	__u32 head;           /* version, DSCP and flow label, by which routes and rules may decide */
	__u32 mark, priority; /* of the packet, for what comes behind */
	__u16 most; /* bytes of the longest packet that the stack forwarded whole */
	__u8 answers; /* enum answers */
	__u8 pad;
	__u8 dmac[6], smac[6];
	/* over the key and what is above: another CPU may be writing this entry, or reuse it */
	__u64 sum;
	/* the connection's mark, as the packet left it; learning alone reads it */
	__u32 ct_mark, pad2;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FLOWS); /* user space: one where clients have no IPv6 */
	__type(key, struct flow6_key);
	__type(value, struct flow6_path);
} flow6_paths SEC(".maps");

/* A number of flows with a hash, which changes when an entry of one of them ends or becomes another:
 * who has copied an entry looks at this array instead of the table (see known6.h). */
#define FLOW6_STAMPS 65536 /* a power of two */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOW6_STAMPS); /* user space: one where there is no cache */
	__type(key, __u32);
	__type(value, __u64);
} flow6_stamps SEC(".maps");

/* mix6 is a hash of a connection, the same in both directions: the ports are those of the client and
 * of the other side, network order. Its upper bits are the best. */
static __always_inline __u64 mix6(struct addr6 client, struct addr6 remote, __u16 client_port,
	__u16 remote_port)
{
	return (client.low ^ remote.low * 0x9e3779b97f4a7c15ULL ^ remote.high ^ (__u64)client_port << 24 ^
		(__u64)remote_port << 40) * 0x9e3779b97f4a7c15ULL;
}

/* stamp6_of is the stamp of a flow with a hash. */
static __always_inline __u64 *stamp6_of(__u64 mixed)
{
	__u32 at = mixed >> 48;

	return bpf_map_lookup_elem(&flow6_stamps, &at);
}

/* stamp_flow6 has copies of a flow's entries end, after the entries themselves have. */
static __always_inline void stamp_flow6(const struct flow6_key *k)
{
	__u64 *stamp = stamp6_of(k->side == FROM_LAN ? mix6(k->saddr, k->daddr, k->sport, k->dport)
		: mix6(k->daddr, k->saddr, k->dport, k->sport));

	if (stamp)
		__sync_fetch_and_add(stamp, 1);
}

#define FLOW6_WORDS (offsetof(struct flow6_path, sum) / 8)

static __always_inline __u64 sum_of_key6(const struct flow6_key *k)
{
	const __u64 *a = (const void *)k;

	/* Keys differ by little, and in the same places: their words must not cancel. */
	return 0x9e3779b97f4a7c15ULL ^ a[0] * 3 ^ a[1] * 0x9e3779b97f4a7c15ULL ^ a[2] * 5 ^
	       a[3] * 0xc2b2ae3d27d4eb4fULL ^ a[4];
}

/* sum_of6 is what a whole entry has in sum. */
static __always_inline __u64 sum_of6(const struct flow6_key *k, const struct flow6_path *p)
{
	const __u64 *b = (const void *)p;
	__u64 sum = sum_of_key6(k);

#pragma unroll
	for (unsigned i = 0; i < FLOW6_WORDS; i++)
		sum ^= b[i];
	return sum;
}

/* answer_to6 is the key of packets that answer one. */
static __always_inline struct flow6_key answer_to6(const struct flow6_key *k)
{
	return (struct flow6_key){
		.saddr = k->daddr, .daddr = k->saddr, .sport = k->dport, .dport = k->sport,
		.protocol = k->protocol, .side = FROM_LAN + FROM_WAN - k->side,
	};
}

/* head6_of is a header's first word without ECN's bits, which change on the way (RFC 3168). */
#define HEAD6_ECN bpf_htonl(0x00300000)

static __always_inline __be32 head6_of(const void *ip)
{
	return *(const __be32 *)ip & ~HEAD6_ECN;
}
