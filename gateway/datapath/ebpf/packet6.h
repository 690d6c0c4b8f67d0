/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reading IPv6 headers. */
#pragma once

#include <linux/ipv6.h>

#include "maps6.h"
#include "packet.h"

#define AF_INET6 10
#define NEXT_HOP_BY_HOP 0 /* a router must read this extension header (RFC 8200, 4.3) */
#define NEXT_ROUTING 43
#define NEXT_AH 51
#define NEXT_ICMP6 58
#define NEXT_OPTIONS 60
#define IP6_LEN sizeof(struct ipv6hdr)
#define ND_HOPS 255 /* the hop limit of neighbour discovery: the sender is on the link (RFC 4861) */

#define DHCP6_CLIENT bpf_htons(546)
#define DHCP6_SERVER bpf_htons(547)

struct icmp6hdr {
	__u8 type, code;
	__u16 checksum;
	__u32 rest;
};

enum icmp6_type {
	ICMP6_UNREACHABLE = 1,
	ICMP6_TOO_BIG = 2,
	ICMP6_ECHO = 128,
	ICMP6_ECHO_REPLY = 129,
	ICMP6_MLD_QUERY = 130,
	ICMP6_MLD_DONE = 132,
	ICMP6_ROUTER_SOLICITATION = 133,
	ICMP6_NEIGHBOUR_SOLICITATION = 135,
	ICMP6_REDIRECT = 137,
	ICMP6_MLD2_REPORT = 143,
};

#define ICMP6_PROHIBITED 1 /* code of "unreachable": administratively prohibited (RFC 4443, 3.1) */

/* Words of a header, which the compiler would put together from bytes: it does not know that addresses
 * in packets are aligned, behind an Ethernet header that begins two bytes before a multiple of 8. */
typedef __u64 __attribute__((may_alias)) word6;

static __always_inline struct addr6 addr6_at(const void *p)
{
	const word6 *w = p;

	return (struct addr6){ w[0], w[1] };
}

static __always_inline int same6(struct addr6 a, struct addr6 b) { return a.high == b.high && a.low == b.low; }

static __always_inline int is_multicast6(const struct in6_addr *a) { return a->s6_addr[0] == 0xff; }

static __always_inline int is_link_local6(const struct in6_addr *a)
{
	return a->s6_addr[0] == 0xfe && (a->s6_addr[1] & 0xc0) == 0x80;
}

static __always_inline int is_unspecified6(const struct in6_addr *a)
{
	struct addr6 it = addr6_at(a);

	return !(it.high | it.low);
}

/* is_martian6 reports whether the stack forwards no packet from this address (RFC 4291, 2.5):
 * multicast, link-local, loopback, unspecified and IPv4-mapped ones. */
static __always_inline int is_martian6(const struct in6_addr *a)
{
	return is_multicast6(a) || is_link_local6(a) || !addr6_at(a).high;
}

/* is_beyond_link6 reports whether one address of a packet is link-local and the other one is not, so
 * that no router forwards it (RFC 4291, 2.5.6), and it is not for the gateway's own address. The
 * kernel's routing says of all packets with a link-local address that it does not forward them. */
static __always_inline int is_beyond_link6(const struct ipv6hdr *ip, const struct settings6 *s)
{
	const struct addr6 *to = (const void *)&ip->daddr;

	if (is_link_local6(&ip->daddr))
		return !is_link_local6(&ip->saddr);
	return is_link_local6(&ip->saddr) && (to->high != s->gateway.high || to->low != s->gateway.low);
}

/* is_of_lan6 reports whether an address is in a prefix of the LAN. */
static __always_inline int is_of_lan6(const struct settings6 *s, struct addr6 a)
{
	int found = 0;

#pragma unroll
	for (int i = 0; i < PREFIXES6; i++)
		found |= s->prefixes[i].mask && (a.high & s->prefixes[i].mask) == s->prefixes[i].bits;
	return found;
}

/* behind6 is the entry of the client behind which an address is; NULL: it is behind none. */
static __noinline const struct client *behind6(__u64 high, __u64 low)
{
	struct addr6 addr = { high, low };
	struct garden6_prefix key = { .bits = 128 };

	__builtin_memcpy(key.addr, &addr, sizeof(key.addr));
	return bpf_map_lookup_elem(&networks6, &key);
}

/* client6 is the entry of the client that an address is of: its own, or one in a network behind it;
 * NULL: it is nobody's. */
static __always_inline const struct client *client6(struct addr6 addr)
{
	const struct client *c = bpf_map_lookup_elem(&clients6, &addr);

	return likely(c) || !routed6 ? c : behind6(addr.high, addr.low);
}

/* is_sound6 reports whether a header's version and length match the packet. A buffer beyond
 * 64 KB has no length. */
static __always_inline int is_sound6(const struct __sk_buff *skb, const struct ipv6hdr *ip)
{
	__u32 payload = bpf_ntohs(ip->payload_len);

	if (unlikely(ip->version != 6))
		return 0;
	if (unlikely(!payload && skb->gso_size))
		return 1;
	return IP6_LEN + payload <= skb->len - ETH_HLEN;
}

/* ports6_of are the ports right behind the header; both 0 where there are none. */
static __always_inline struct ports ports6_of(const struct ipv6hdr *ip, const void *end)
{
	const struct ports *p = (const void *)(ip + 1);

	if ((ip->nexthdr != IPPROTO_TCP && ip->nexthdr != IPPROTO_UDP) || (const void *)(p + 1) > end)
		return (struct ports){};
	return *p;
}

/* on_wire6 is on_wire for IPv6. */
static __always_inline struct wire on_wire6(const struct __sk_buff *skb, const struct ipv6hdr *ip,
	const void *end)
{
	struct wire w = { .bytes = IP6_LEN + bpf_ntohs(ip->payload_len), .packets = 1 };
	const struct tcphdr *tcp = (const void *)(ip + 1);
	__u32 headers = IP6_LEN, segment = skb->gso_size, all = skb->len - ETH_HLEN;

	if (!segment)
		return w;
	if (ip->nexthdr == IPPROTO_UDP)
		headers += sizeof(struct udphdr);
	else if ((const void *)(tcp + 1) <= end)
		headers += tcp->doff * 4;
	w.packets = skb->gso_segs;
	if (!w.packets)
		w.packets = all > headers ? (all - headers + segment - 1) / segment : 1;
	w.bytes = all + (__u64)(w.packets - 1) * headers;
	return w;
}

/* route6 is route for IPv6. */
static __always_inline long route6(struct __sk_buff *skb, const struct ipv6hdr *ip,
	struct bpf_fib_lookup *fib)
{
	*fib = (struct bpf_fib_lookup){ .family = AF_INET6, .tot_len = IP6_LEN, .ifindex = skb->ifindex };
	__builtin_memcpy(fib->ipv6_src, &ip->saddr, sizeof(fib->ipv6_src));
	__builtin_memcpy(fib->ipv6_dst, &ip->daddr, sizeof(fib->ipv6_dst));
	return bpf_fib_lookup(skb, fib, sizeof(*fib), 0);
}
