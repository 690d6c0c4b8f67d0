/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The network with clients. */
#pragma once

#include <linux/types.h>
#include <bpf/bpf_endian.h>

/* What user space fills in of a network (datapath.Network) when it loads the programs. The
 * verifier takes it for constants, so it costs a packet nothing, where a map's value would cost
 * a look-up. */
struct network {
	__u32 base, size; /* its first address, host order, and how many it has */
	__u32 ifindex;
	__be32 gateway; /* the gateway's address in it */
	__u8 mac[6];    /* of the interface */
	__u16 number;   /* of several at the WAN */
};

volatile const struct network lan;
volatile const __u32 wan_ifindex;

/* NOBODY is the place of addresses that no client can have. */
#define NOBODY 0xffffffff

/* place is an address's index in the table of the network's addresses, NOBODY when it is outside. It
 * is the only thing that is computed from an address. Addresses of PPPoE clients outside have their
 * places behind those (owner_place). */
static __always_inline __u32 place(__be32 addr)
{
	__u32 at = bpf_ntohl(addr) - lan.base;

	return at < lan.size ? at : NOBODY;
}
