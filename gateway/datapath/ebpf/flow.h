/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Flows that the kernel's stack has decided about: what it would do with the next packet of each.
 * learn.bpf.c enters them where packets leave, behind all of netfilter; lan_in and wan_in
 * use them. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define FLOWS 262144       /* entries, two for each flow */
#define FLOW_NS 16000000000ULL /* a packet of each direction goes through the stack at least this often, which keeps
                               * its entries of connection and neighbour alive. With it goes the rest of the driver's poll:
                               * Linux hands a poll's packets from layer to layer together. */
#define UNHEARD_NS 1000000000ULL /* the same for a connection whose deletion the kernel does not report, or to which
                                  * nothing is answered: the answer may come where no program sees it */
#define COUNT_NS 1000000000ULL
#define FLOWS_OF_CLIENT 2048  /* entries that a client's packets may make in COUNT_NS */

enum side { FROM_LAN = 1, FROM_WAN };

/* To netfilter's rules each packet of a UDP flow is new until an answer comes. The first answer must
 * go through the stack, and end that. */
enum answers {
	ANSWERED,   /* both sides have sent: packets are forwarded by the entry */
	UNANSWERED, /* forwarded by the entry while the flow's ANSWER is there too */
	ANSWER,     /* of the packets that would answer: nothing is forwarded by it, and the first answer
		     * removes it */
};

/* A packet as it comes in. Network order. */
struct flow_key {
	__u32 saddr, daddr;
	__u16 sport, dport;
	__u16 protocol;
	__u16 side;
};

/* The same packet as it leaves. */
struct flow_path {
	__u64 until; /* ns of CLOCK_MONOTONIC, coarse, until which packets may take it */
	__u32 generation;
	__u32 at;    /* the client's place in the array clients */
	__u32 saddr, daddr;
	__u16 sport, dport;
	__u32 address_diff, port_diff; /* for bpf_l4_csum_replace; 0: unchanged */
	__u32 mark, priority;          /* of the packet, for what comes behind */
	__u16 most; /* bytes of the longest packet that the stack forwarded whole */
	__u8 tos;   /* by which routes and rules may decide */
	__u8 answers; /* enum answers */
	__u32 tally;  /* the place in flow_tallies, while connections are logged */
	__u8 dmac[6], smac[6];
	/* over the key and what is above: another CPU may be writing this entry, or reuse it */
	__u64 sum;
	/* the connection's mark, as the packet left it; learning alone reads it */
	__u32 ct_mark;
	__u32 network; /* its number, of several at the WAN */
};

/* Settings of user space. */
struct flow_settings {
	/* ns of CLOCK_MONOTONIC until which entries are made and used; 0: never */
	__u64 until;
	__u32 generation; /* entries of another one are void */
	__u32 unanswered; /* flows to which nothing is answered are cached too */
	/* rules set connections' marks, by which they may decide about the next packet */
	__u32 marks;
	__u32 pad;
};

/* How many entries a client's packets made since a time. */
struct flow_count {
	__u64 since;
	__u64 n;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FLOWS);
	__type(key, struct flow_key);
	__type(value, struct flow_path);
} flow_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2); /* IPv4's, IPv6's */
	__type(key, __u32);
	__type(value, struct flow_settings);
} flow_settings SEC(".maps");

static __always_inline __u64 sum_of_key(const struct flow_key *k)
{
	const __u64 *a = (const void *)k;

	/* Keys differ by little, and in the same places: their halves must not cancel. */
	return 0x9e3779b97f4a7c15ULL ^ a[0] ^ a[1] * 0x9e3779b97f4a7c15ULL;
}

/* sum_of is what a whole entry has in sum. */
static __always_inline __u64 sum_of(const struct flow_key *k, const struct flow_path *p)
{
	const __u64 *b = (const void *)p;
	__u64 sum = sum_of_key(k);

#pragma unroll
	for (unsigned i = 0; i < offsetof(struct flow_path, sum) / 8; i++)
		sum ^= b[i];
	return sum;
}

/* same_class reports whether two packets have the same DSCP, which routes and rules may read.
 * The other two bits of the field change on the way (RFC 3168). */
static __always_inline int same_class(__u8 a, __u8 b) { return !((a ^ b) & 0xfc); }
