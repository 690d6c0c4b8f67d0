/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Maps and settings of the gateway's programs. User space's types are generated from
 * these. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "client.h"
#include "network.h"

/* What a client may do. */
enum state {
	STATE_NONE,    /* the address was never leased, or no longer is */
	STATE_PREAUTH, /* DHCP, DNS and the portal here, and the walled garden */
	STATE_ADMITTED,
};

/* flags of a client */
enum {
	LIMITED = 1, /* it has an entry in limits worth reading */
	LEARN = 2,   /* of a PPPoE session's /64: the daemon hears from which of its addresses it sends */
};

/* Why a packet was forwarded or dropped. Index into stats. */
enum reason {
	REASON_FORWARDED,      /* redirected to its next hop */
	REASON_STACK,          /* admitted, left to the kernel's stack */
	REASON_LOCAL,          /* for the gateway itself */
	REASON_GARDEN,         /* to or from the walled garden, before login */
	REASON_PORTAL,         /* HTTP before login, given to the portal */
	REASON_REJECTED,       /* before login: answered with RST or ICMP */
	REASON_BLOCKED,        /* before login: dropped without an answer */
	REASON_NOT_LEASED,     /* from or to an address of the LAN nobody leased */
	REASON_WRONG_MAC,      /* from a leased address, by another MAC or not in its session */
	REASON_FOREIGN_SOURCE, /* from the LAN with a source outside it, or the reverse */
	REASON_ROGUE_DHCP,     /* a DHCP server's reply from the LAN */
	REASON_ARP_SPOOF,      /* ARP for an address its sender did not lease */
	REASON_IPV6,
	REASON_RATE,           /* beyond the client's rate limit */
	REASON_QUOTA,          /* beyond its quota, or after its time was up */
	REASON_MALFORMED,
	REASON_TAGGED,         /* of a VLAN: another network on the same wire, left to the stack */
	REASON_OVERFLOW,       /* for the DHCP server, which is behind */
	REASON_UNASKED,        /* by IPv6 from outside, and the client did not ask for it */
	REASON_THROTTLED,      /* beyond what a client may ask before login, or a DHCP client at all */
	REASON_OTHER_NETWORK,  /* from a client of another network at the same WAN */
	REASON_COUNT,
};

/* What a client sent and received through the gateway: bytes of IP packets as on the
 * wire, without Ethernet's padding. The values only grow, so that user space can use differences.
 * Written by the programs only. */
struct counters {
	__u64 up_bytes, up_packets;
	__u64 down_bytes, down_packets;
	__u64 seen; /* ns of CLOCK_MONOTONIC, coarse, of the client's last packet */
	__u64 dropped;
};

/* A client's limits, read only if the client is LIMITED. Quotas are values of the
 * counters at which forwarding stops; 0: none. */
struct limits {
	__u64 up_ps_per_byte, down_ps_per_byte; /* picoseconds; 0: no limit */
	__u64 up_burst_ns, down_burst_ns;       /* time at the full rate that may come at once */
	__u64 up_bytes, down_bytes, total_bytes;
};

/* A rate limiter's state. */
struct meter {
	/* of CLOCK_MONOTONIC, up to which the rate has been used; ahead of the clock while
	 * packets are held */
	__u64 ns;
	__u64 told_ns; /* how much of the burst was used when TCP was last told so; 0: not lately */
};

struct meters {
	struct meter up, down;
};

/* By what packets beyond a client's rate are held back until it is their turn. */
enum holder {
	HOLDER_NONE,  /* nothing: they are dropped */
	HOLDER_TIME,  /* the interface's fq: packets carry the time at which they may leave */
	HOLDER_CLASS, /* its htb, in which each client has a class */
};

/* How rates are kept. User space changes it while the programs run. */
struct shaping {
	/* ns of CLOCK_MONOTONIC until which packets are held, see settings.redirect_until */
	__u64 until;
	__u32 up, down; /* enum holder, of the WAN's interface and the LAN's */
};

/* Flows of a client that are told apart. A power of two. */
#define HELD_FLOWS 64

/* What is held of a client in one direction. */
struct queue {
	__u64 lane_ns; /* up to which packets that passed waiting ones have used the rate */
	/* that connections may have, bytes, 0: any; until when it stays */
	__u64 window, settled_ns;
	/* when the last held packet of a flow has left, 2^20 ns modulo 2^32, by two hashes of
	 * the flow */
	__u32 last[2 * HELD_FLOWS];
};

struct queues {
	struct queue up, down;
	__u32 class; /* minor number of the client's classes; 0: it has none */
	__u32 pad;
};

/* What an unauthenticated client can have the gateway do, as in package datapath. */
enum work {
	WORK_DATAGRAM,   /* answer a datagram to the gateway's DNS, or a ping */
	WORK_CONNECTION, /* handle the first packet of a TCP connection to the gateway's ports */
	WORK_SEGMENT,    /* and a further one */
	WORK_CAPTURE,    /* answer a TCP connection to port 80 of another address */
	WORK_GARDEN,     /* forward the first packet of a connection to the walled garden */
	WORK_LASTING,    /* that, of a protocol that may keep the kernel's entry for days */
	WORK_REFUSAL,    /* answer with a reset or an ICMP error */
	WORK_QUESTION,   /* answer an ARP request, of admitted clients too */
	WORKS,
};

/* A token bucket's rate. */
struct budget {
	__u64 cost_ns; /* time in which it allows one */
	__u64 most_ns; /* time in which it allows what may come at once */
};

/* Token buckets of an address or a MAC address, one for each kind of work. A bucket is the time
 * up to which its budget has been used, see spend. */
struct buckets {
	__u64 until[WORKS];
};

struct device {
	__u8 mac[6];
	__u8 pad[2];
};

/* Kinds of frames that a MAC address sends without a lease, each with a token bucket. */
enum sending { SENDS_DHCP, PROBES, IS_NEW, SENDS_ND, SENDINGS };

struct sender {
	__u8 mac[6];
	__u16 kind; /* enum sending */
};

/* A connection of an unauthenticated client, in network order. */
struct flow {
	__u32 client, dest;
	__u32 id; /* ports, or what distinguishes connections of the protocol */
	__u32 protocol;
};

/* A next hop from the kernel's routing, cached for a second or until the routing
 * changes. One table per CPU, so that no other CPU sees a partly written entry. */
struct hop {
	__u32 dst;
	__u32 generation;
	__u64 until; /* ns of CLOCK_MONOTONIC, coarse */
	__u32 ifindex; /* 0: the stack must take it */
	__u32 mtu;
	__u8 dmac[6], smac[6];
	__u32 pad;
};

/* Settings that user space changes while the programs run. */
struct settings {
	__u32 generation; /* one more whenever routes, neighbours or links change */
	__u32 lan_mtu;
	/* ns of CLOCK_MONOTONIC until which packets are redirected; afterwards the programs
	 * admit and leave the rest to the stack. The daemon moves it on twice a second, because
	 * without the daemon nobody notices new rules and routes. 0: not redirected. */
	__u64 redirect_until;
	__u64 epoch; /* drawn when the counters began at 0 */
};

/* A client that user space does not know yet. */
struct newcomer {
	__u32 addr; /* network order */
	__u8 mac[6];
	__u8 pad[2];
};

/* A DHCP client's message on its way to the server, unchanged. Messages longer than
 * REQUEST_MOST have a record of the full size. */
#define REQUEST_MOST 640
#define REQUEST_MAX 1514

struct request {
	__u32 bytes; /* of the frame; what follows it in the record is not of it */
	__u8 frame[REQUEST_MAX];
};

/* The client's end of a connection to port 80 before login. */
struct caller {
	__u32 addr;  /* network order */
	__u16 port;  /* network order */
	__u16 pad;
};

/* A prefix of the walled garden, or behind a client, as a key of an LPM trie. */
struct prefix {
	__u32 bits;
	__u32 addr; /* network order */
};

#define HOPS 4096 /* a power of two */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* user space: the size of the LAN */
	__type(key, __u32);
	__type(value, struct client);
} clients SEC(".maps");

/* Counters, limits and meters are by slot: user space gives each client one, and the entries of
 * all its addresses lead to it (slot_offset). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} client_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct limits);
} client_limits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct meters);
} client_meters SEC(".maps");

/* Not pinned: the daemon that loads the programs says anew what is held, and how. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shaping);
} rate_shaping SEC(".maps");

/* Queues of clients with a rate, by their slots. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* user space: the size of the LAN */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct queues);
} client_queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOPS);
	__type(key, __u32);
	__type(value, struct hop);
} hops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} gateway_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASON_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} stats SEC(".maps");

/* The clock, as it was when a CPU last asked for it: see clock_ns. */
struct tick {
	__u64 jiffies, ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tick);
} ticks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u64); /* ns of CLOCK_MONOTONIC at which it ends; 0: never */
} garden SEC(".maps");

/* A port of addresses in the walled garden that is open alone, or shut. It is a key of an LPM
 * trie, which matches the port, the protocol and a prefix of the address: bits is 32 more than
 * the prefix has. */
struct garden_port {
	__u32 bits;
	__u16 port; /* network order */
	__u8 protocol;
	__u8 pad;
	__u32 addr; /* network order */
};

#define PORT_SHUT (1ULL << 63)

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct garden_port);
	__type(value, __u64); /* as garden's, with PORT_SHUT where the port is closed */
} garden_ports SEC(".maps");

/* A TCP port of an address that one device alone may reach before it logs in. */
struct visit {
	__u8 mac[6];
	__u16 port;    /* network order */
	__u8 addr[16]; /* of IPv4: ::ffff:0:0/96 (RFC 4291, 2.5.5.2) */
};

/* Not pinned: a daemon that begins anew knows of no visits. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct visit);
	__type(value, __u64); /* ns of CLOCK_MONOTONIC at which it ends */
} visits SEC(".maps");

/* Networks behind clients on lines: the place of the client's first address. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u32);
} networks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} newcomers SEC(".maps");

#define REQUESTS (4 * 1024 * 1024) /* bytes, some 6,000 requests */

/* Not pinned: requests that were not read are not answered by a successor. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, REQUESTS);
} requests SEC(".maps");

/* Token buckets of unauthenticated clients, by the address's place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* user space: the size of the LAN */
	__type(key, __u32);
	__type(value, struct buckets);
} strangers SEC(".maps");

/* The same token buckets by MAC address, because a device can have many addresses, one after the
 * other. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* user space: datapath.MostStrangers */
	__type(key, struct device);
	__type(value, struct buckets);
} devices SEC(".maps");

/* Connections that unauthenticated clients have begun, which cost them nothing more. One that
 * a full map has dropped costs as much as a new one. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct flow);
	__type(value, __u8);
} flows SEC(".maps");

/* Token buckets of MAC addresses, for what they send without a lease. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* user space: datapath.MostSenders */
	__type(key, struct sender);
	__type(value, __u64);
} senders SEC(".maps");

/* One bucket for all MAC addresses that are not in senders. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SENDINGS);
	__type(key, __u32);
	__type(value, __u64);
} new_senders SEC(".maps");

/* The original destination of unauthenticated clients' HTTP, in network order. The portal
 * gets the packets with the gateway's address as destination; answers get this address as
 * source. A full map drops the connections that were idle longest. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct caller);
	__type(value, __u32);
} called SEC(".maps");

/* The portal's listening sockets, IPv4's and IPv6's. The kernel removes them when they are closed. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} portal SEC(".maps");

/* Types for user space that no map contains: variables make them part of the
 * type information. */
const enum reason unused_reason __attribute__((unused));
const enum state unused_state __attribute__((unused));

const enum work unused_work __attribute__((unused));
const enum holder unused_holder __attribute__((unused));

/* Constants, set when the programs are loaded. */
/* network order, on lan.gateway; 0: none. The first gets redirected HTTP. */
volatile const __u16 portal_ports[4];
volatile const __u8 hear_dhcp;    /* the DHCP server reads requests: the stack does not see them */
volatile const struct budget budgets[WORKS], sender_budget, new_senders_budget;
volatile const __u8 timed;        /* the kernel lets programs set when a packet leaves (5.18) */
volatile const __u8 beside;       /* there are other networks at the WAN */
volatile const __u8 lines;        /* there are clients on PPPoE lines */
volatile const __u32 cutter_ifindex; /* of the link that cuts aggregated packets */
/* there are networks behind clients: user space changes it while the programs run */
volatile __u32 routed;
volatile const __u8 learn;        /* addresses are leased by others: tell user space of newcomers */
