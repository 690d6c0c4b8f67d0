/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Maps of IPv6 clients. An address of a client is a key of a hash table, because a network has too
 * many addresses for an array. Its entry names the client's slot, by which counters, limits and
 * budgets are found as those of IPv4 are. */
#pragma once

#include "clients6.h"
#include "maps.h"

/* Clients may have IPv6. Without it the verifier sees that nothing of it is reached, and spares
 * itself the time: opening takes half as long. */
volatile const __u8 ipv6;

/* networks6 has entries: user space changes it while the programs run */
volatile __u32 routed6;

/* The first 64 bits of a prefix of the LAN, and which of them count. */
struct prefix6 {
	__u64 bits, mask; /* network order; mask 0: none */
};

#define PREFIXES6 8 /* present and former ones of a LAN at the same time */

/* Settings that user space changes while the programs run. */
struct settings6 {
	__u64 redirect_until; /* as settings.redirect_until, for IPv6 */
	struct addr6 gateway; /* the gateway's address in the LAN: the portal's */
	struct prefix6 prefixes[PREFIXES6];
	__u32 on; /* clients have IPv6; 0: their packets are dropped */
	__u32 changes; /* how often an admitted client's entry in clients6, or a prefix, has changed */
};

/* Not pinned: the daemon that loads the programs fills it in before they are attached. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings6);
} gateway_settings6 SEC(".maps");

/* What the kernel's routing says of a destination, see struct hop. */
struct hop6 {
	struct addr6 dst;
	__u64 until; /* ns of CLOCK_MONOTONIC, coarse */
	__u32 generation;
	__u32 ifindex; /* 0: the stack must take it */
	__u32 mtu;
	__u8 dmac[6], smac[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOPS);
	__type(key, __u32);
	__type(value, struct hop6);
} hops6 SEC(".maps");

/* Prefixes of the walled garden, and ports in them: see garden and garden_ports. */
struct garden6_port {
	__u32 bits;  /* 32 more than the prefix has */
	__u16 port;  /* network order */
	__u8 protocol;
	__u8 pad;
	__u8 addr[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct garden6_prefix);
	__type(value, __u64);
} garden6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct garden6_port);
	__type(value, __u64);
} garden6_ports SEC(".maps");

/* The original destination of unauthenticated clients' HTTP, see called. */
struct caller6 {
	struct addr6 addr;
	__u16 port; /* network order */
	__u16 pad[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct caller6);
	__type(value, struct addr6);
} called6 SEC(".maps");

/* What clients say to the gateway about their addresses: neighbour discovery, DHCPv6, and the
 * headers of packets from addresses that nobody is known to have. Not pinned: what was not read
 * is said again. */
#define HEARD6 (4096 * 1024) /* bytes: what 5,000 strangers say who come at once, and as many known clients */
#define HEARD6_MOST 192      /* of a frame; longer ones have a record of the full size */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, HEARD6);
} heard6 SEC(".maps");
