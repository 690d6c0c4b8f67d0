/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What one device alone may reach before it logs in. */
#pragma once

#include "maps.h"

/* is_visit reports whether a device may reach a port of an address now, or may be reached from it. */
__noinline int is_visit(const struct visit *v)
{
	struct visit key;
	const __u64 *until;

	if (!v)
		return 0;
	key = *v; /* before Linux 6.2 a key must be on the function's own stack */
	until = bpf_map_lookup_elem(&visits, &key);
	return until && bpf_ktime_get_coarse_ns() < *until;
}

/* may_visit is is_visit for an IPv4 address, where the protocol is TCP. */
static __always_inline int may_visit(const __u8 *mac, __be32 addr, __be16 port, __u8 protocol)
{
	struct visit v = { .port = port, .addr = { [10] = 0xff, [11] = 0xff } };

	if (protocol != IPPROTO_TCP)
		return 0;
	__builtin_memcpy(v.mac, mac, sizeof(v.mac));
	__builtin_memcpy(v.addr + 12, &addr, sizeof(addr));
	return is_visit(&v);
}
