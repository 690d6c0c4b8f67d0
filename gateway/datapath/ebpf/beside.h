/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Several networks that share a WAN. All of them have these maps; user space fills them in. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define NETWORKS 64

/* Two networks whose clients reach each other. */
struct pair {
	__u32 from, to; /* their interfaces */
};

/* The networks' numbers, by their interfaces. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NETWORKS);
	__type(key, __u32);
	__type(value, __u32);
} members SEC(".maps");

/* Both directions of pairs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NETWORKS * NETWORKS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pair);
	__type(value, __u8);
} reaches SEC(".maps");
