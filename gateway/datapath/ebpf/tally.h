/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Packets that pass by the cache of flows, for the log of connections: connection tracking does
 * not count them. A connection keeps its tally until user space has heard of its end, whatever
 * becomes of its entries in the cache; one that has no room for a tally is not cached. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define TALLIES 262144 /* the first is nobody's */

/* A connection as connection tracking has it: addresses and ports of its first packet, network
 * order. */
struct tally_key {
	/* ns since 1970: a later connection of the same addresses and ports has another */
	__u64 start;
	__u32 saddr, daddr;
	__u16 sport, dport;
	__u16 protocol;
	__u16 pad;
};

/* IP packets, and their bytes. */
struct tally {
	__u64 up_bytes, up_packets;
	__u64 down_bytes, down_packets;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TALLIES);
	__type(key, __u32);
	__type(value, struct tally);
} flow_tallies SEC(".maps");

/* Where in flow_tallies a connection is. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TALLIES);
	__type(key, struct tally_key);
	__type(value, __u32);
} flow_tallied SEC(".maps");

volatile const __u8 tallying; /* connections are logged */
