/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the programs read of a packet. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>

#include "maps.h"

#define TC_ACT_OK 0
#define TC_ACT_SHOT 2

#define IP_MF 0x2000
#define IP_OFFSET 0x1fff

#define DHCP_SERVER bpf_htons(67)
#define DHCP_CLIENT bpf_htons(68)
#define DNS bpf_htons(53)
#define HTTP bpf_htons(80)

static __always_inline void count(enum reason why)
{
	__u32 key = why;
	__u64 *n = bpf_map_lookup_elem(&stats, &key);

	if (n)
		(*n)++;
}

static __always_inline int drop(enum reason why)
{
	count(why);
	return TC_ACT_SHOT;
}

static __always_inline int pass(enum reason why)
{
	count(why);
	return TC_ACT_OK;
}

/* place is an address's index in the LAN, lan_size or more when it is outside. */
static __always_inline __u32 place(__be32 addr)
{
	return bpf_ntohl(addr) - lan_base;
}

static __always_inline int is_fragment(const struct iphdr *ip)
{
	return (ip->frag_off & bpf_htons(IP_MF | IP_OFFSET)) != 0;
}

static __always_inline int is_multicast(__be32 addr)
{
	return (addr & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || addr == bpf_htonl(INADDR_BROADCAST);
}

/* Ethernet addresses are compared as one number: MAC in the lower six bytes. */
static __always_inline __u64 mac_at(const void *p)
{
	const __u16 *half = p;

	return (__u64)half[0] | (__u64)half[1] << 16 | (__u64)half[2] << 32;
}

/* A constant is known only once user space has filled it in, so it is read byte by
 * byte: the compiler would take it for the zeros it sees. */
static __always_inline void from_lan(__u8 *mac)
{
	for (int i = 0; i < ETH_ALEN; i++)
		mac[i] = lan_mac[i];
}

/* ports of a first fragment's transport header; both 0 where there are none. */
struct ports {
	__be16 source, dest;
};

static __always_inline struct ports ports_of(const struct iphdr *ip, const void *end)
{
	struct ports none = {};
	const struct ports *p = (const void *)ip + ip->ihl * 4;

	if ((ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP) ||
	    (ip->frag_off & bpf_htons(IP_OFFSET)) || (const void *)(p + 1) > end)
		return none;
	return *p;
}

/* Bytes of the IP packets in skb as they are on the wire: one that was
 * aggregated has had a header for each of its segments. */
static __always_inline __u64 wire_bytes(const struct __sk_buff *skb, const struct iphdr *ip, const void *end)
{
	__u64 bytes = skb->len - ETH_HLEN;
	__u32 headers = ip->ihl * 4;
	const struct tcphdr *tcp = (const void *)ip + ip->ihl * 4;

	if (skb->gso_segs < 2)
		return bytes;
	if (ip->protocol == IPPROTO_UDP)
		headers += sizeof(struct udphdr);
	else if ((const void *)(tcp + 1) <= end)
		headers += tcp->doff * 4;
	return bytes + (skb->gso_segs - 1) * headers;
}

static __always_inline __u32 wire_packets(const struct __sk_buff *skb)
{
	return skb->gso_segs > 1 ? skb->gso_segs : 1;
}
