/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* IPv6 addresses of clients. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "client.h"

/* An IPv6 address in network order, as two words, which compare in two instructions. */
struct addr6 {
	__u64 high, low;
};

/* Addresses of clients. slot_offset of the value is the client's slot itself. Written by user
 * space only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* user space: datapath.Network.Addrs6 */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct addr6);
	__type(value, struct client);
} clients6 SEC(".maps");

/* Networks behind clients, as those that are delegated to them, and the /64s of PPPoE sessions: the
 * entry of the client, as in clients6. Written by user space only. */
struct garden6_prefix {
	__u32 bits;
	__u8 addr[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct garden6_prefix);
	__type(value, struct client);
} networks6 SEC(".maps");
