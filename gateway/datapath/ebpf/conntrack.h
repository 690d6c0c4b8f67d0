/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Connection tracking, as far as learn.bpf.c reads it (linux, include/net/netfilter). */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

union nf_inet_addr {
	__be32 ip;
	__be32 ip6[4];
} __attribute__((preserve_access_index));

union nf_conntrack_man_proto {
	__be16 all;
} __attribute__((preserve_access_index));

struct nf_conntrack_man {
	union nf_inet_addr u3;
	union nf_conntrack_man_proto u;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} u;
	} dst;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} __attribute__((preserve_access_index));

struct nf_ct_ext {
	__u8 offset[1];
} __attribute__((preserve_access_index));

struct ip_ct_tcp {
	__u8 state;
} __attribute__((preserve_access_index));

/* Places in nf_ct_ext.offset, which depend on the kernel's configuration. */
enum nf_ct_ext_id { NF_CT_EXT_ECACHE = 4, NF_CT_EXT_TSTAMP = 5 };

struct nf_conntrack_ecache {
	__u16 ctmask; /* of the events that are reported */
} __attribute__((preserve_access_index));

struct nf_conntrack_zone {
	__u16 id;
} __attribute__((preserve_access_index));

struct nf_ct_udp {
	unsigned long stream_ts; /* jiffies: two seconds after the first packet */
} __attribute__((preserve_access_index));

union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
	struct nf_ct_udp udp;
} __attribute__((preserve_access_index));

struct nf_conn {
	__u32 timeout; /* jiffies */
	struct nf_conntrack_zone zone;
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
	__u32 mark;
	struct nf_ct_ext *ext;
	union nf_conntrack_proto proto;
} __attribute__((preserve_access_index));

struct sk_buff {
	unsigned long _nfct; /* the connection, and the packet's state in the lowest bits */
} __attribute__((preserve_access_index));

#define IP_CT_MASK 7
#define IP_CT_NEW 2

extern void *bpf_cast_to_kern_ctx(void *skb) __ksym;

struct bpf_ct_opts {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
	__u32 tuple_bytes, struct bpf_ct_opts *opts, __u32 opts_bytes) __ksym;
extern void bpf_ct_release(struct nf_conn *ct) __ksym;
extern int bpf_ct_change_timeout(struct nf_conn *ct, __u32 ms) __ksym;

/* Bits of a connection's status (nf_conntrack_common.h). */
#define EXPECTED (1 << 0)
#define SEEN_REPLY (1 << 1)
#define ASSURED (1 << 2)
#define SEQ_ADJUST (1 << 6)
#define DYING (1 << 9)
#define NAT_CLASH (1 << 12)
#define HELPER (1 << 13)
#define OFFLOAD (1 << 14)
#define HW_OFFLOAD (1 << 15)

#define DESTROYED (1 << 2) /* IPCT_DESTROY, of ctmask */

#define OTHERS (SEQ_ADJUST | DYING | HELPER | OFFLOAD | HW_OFFLOAD) /* somebody else reads or changes packets */
