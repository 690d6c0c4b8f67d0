/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The walled garden's IPv6 addresses. */
#pragma once

#include "packet6.h"
#include "visit.h"

/* is_garden6 is is_garden for IPv6. Single addresses alone end: where one has ended, the longest
 * prefix around it holds. */
__noinline int is_garden6(const struct addr6 *addr)
{
	struct garden6_prefix key = {};

	if (!addr)
		return 0;
	__builtin_memcpy(key.addr, addr, sizeof(key.addr));
	for (int bits = 128; bits >= 127; bits--) {
		const __u64 *until;

		key.bits = bits;
		until = bpf_map_lookup_elem(&garden6, &key);
		if (!until)
			return 0;
		if (!*until || bpf_ktime_get_coarse_ns() < *until)
			return 1;
	}
	return 0;
}

/* garden6_port_state is garden_port_state for IPv6. */
__noinline int garden6_port_state(const struct addr6 *addr, __be16 port, __u8 protocol)
{
	struct garden6_port key = { .port = port, .protocol = protocol };
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!addr)
		return 0;
	__builtin_memcpy(key.addr, addr, sizeof(key.addr));
	for (int bits = 160; bits >= 159; bits--) {
		const __u64 *until;

		key.bits = bits;
		until = bpf_map_lookup_elem(&garden6_ports, &key);
		if (!until)
			return 0;
		if (!(*until & ~PORT_SHUT) || now < (*until & ~PORT_SHUT))
			return *until & PORT_SHUT ? -1 : 1;
	}
	return 0;
}

/* may_visit6 is may_visit for IPv6. */
static __always_inline int may_visit6(const __u8 *mac, const struct in6_addr *at, __be16 port, __u8 protocol)
{
	struct visit v = { .port = port };

	if (protocol != IPPROTO_TCP)
		return 0;
	__builtin_memcpy(v.mac, mac, sizeof(v.mac));
	__builtin_memcpy(v.addr, at, sizeof(v.addr));
	return is_visit(&v);
}

/* is_open_garden6 reports whether a port of an address is in the walled garden now. */
static __always_inline int is_open_garden6(const struct in6_addr *at, __be16 port, __u8 protocol)
{
	struct addr6 addr = addr6_at(at);
	int state = garden6_port_state(&addr, port, protocol);

	return state ? state > 0 : is_garden6(&addr);
}
