/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The entry of a client's address. */
#pragma once

#include <linux/types.h>

/* An address of a client, by its place. Written by user space only. The
 * first eight bytes change in one store, so MAC and state always match. */
struct client {
	__u8 mac[6];
	__u8 state;
	__u8 flags;
	__u64 until; /* nanoseconds of CLOCK_MONOTONIC at which admission ends; 0: never */
	/* PPPoE's, network order, in which alone the address is used; 0: on Ethernet */
	__u16 session;
	__u16 mtu;     /* of the session */
	/* The client's slot less the place of this address, modulo 2^32: 0 for the address that
	 * it was first known by. */
	__u32 slot_offset;
};
