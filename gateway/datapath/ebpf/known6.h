/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What was found lately of a client's connection, so that its next packets need one look-up in an
 * array where the first ones need two in hash tables and one of the next hop. Only TCP and UDP,
 * whose packets are most of the traffic, are known so. Each CPU has its own array, in which
 * connections replace each other. */
#pragma once

#include "forward6.h"
#include "asked6.h"

#define KNOWN6 4096 /* a power of two; 0.5 MB for each CPU */
#define KNOWN6_NS SECOND_NS
#define NOT_KNOWN6 0x6f /* a verdict: the tables decide */

struct known6 {
	struct asked6_key key;
	/* ns of CLOCK_MONOTONIC, coarse, until which this is so of the client's packets, and of
	 * those to it; 0: it is not */
	__u64 up_until, down_until;
	struct client client; /* the entry of its address, which is admitted */
	__u32 changes;        /* settings6.changes before that was read */
	__u32 generation, ifindex, mtu; /* of the next hop, see hop6 */
	__u8 dmac[6], smac[6];
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* user space: KNOWN6 where clients have IPv6 */
	__type(key, __u32);
	__type(value, struct known6);
} known6 SEC(".maps");

/* known6_at is the place of what is known of a packet's connection; NULL: it has no ports. */
static __always_inline struct known6 *known6_at(const struct ipv6hdr *ip, const void *end, int up)
{
	const struct ports *p = (const void *)(ip + 1);
	const struct in6_addr *client = up ? &ip->saddr : &ip->daddr, *remote = up ? &ip->daddr : &ip->saddr;
	__u64 mixed;
	__u32 at;

	if ((ip->nexthdr != IPPROTO_TCP && ip->nexthdr != IPPROTO_UDP) || (const void *)(p + 1) > end)
		return 0;
	mixed = addr6_at(client).low ^ addr6_at(remote).low * 0x9e3779b97f4a7c15ULL ^ addr6_at(remote).high ^
		(__u64)(up ? p->source : p->dest) << 24 ^ (__u64)(up ? p->dest : p->source) << 40;
	at = mixed * 0x9e3779b97f4a7c15ULL >> 52; /* the upper 12 bits: KNOWN6 */
	return bpf_map_lookup_elem(&known6, &at);
}

/* is_known6 reports whether what is known is about a packet's connection and client, as user space
 * has it now. The packet has ports. */
static __always_inline int is_known6(const struct known6 *k, const struct settings6 *s,
	const struct ipv6hdr *ip, const void *end, int up)
{
	const struct ports *p = (const void *)(ip + 1);

	return (const void *)(p + 1) <= end && k->changes == s->changes && k->key.protocol == ip->nexthdr &&
	       k->key.client_port == (up ? p->source : p->dest) && k->key.remote_port == (up ? p->dest : p->source) &&
	       same6(k->key.client, addr6_at(up ? &ip->saddr : &ip->daddr)) &&
	       same6(k->key.remote, addr6_at(up ? &ip->daddr : &ip->saddr));
}

/* know6 notes what is known of a packet's connection in both directions, and returns it; NULL: there
 * is no room. changes is settings6.changes before the client's entry was read. */
static __always_inline struct known6 *know6(const struct settings6 *s, __u32 changes,
	const struct client *c, const struct ipv6hdr *ip, const void *end, int up)
{
	struct known6 *k = known6_at(ip, end, up);

	if (!k || changes != s->changes)
		return 0;
	if (!is_known6(k, s, ip, end, up)) {
		k->up_until = k->down_until = 0;
		asked6_of(&k->key, ip, end, up);
		k->client = *c;
		k->changes = changes;
	}
	return k;
}

/* know_up6 notes the way of a client's packet, which asked6 has. */
static __always_inline void know_up6(struct known6 *k, const struct hop6 *h)
{
	k->up_until = 0; /* until the entry is whole */
	k->generation = h->generation;
	k->ifindex = h->ifindex;
	k->mtu = h->mtu;
	__builtin_memcpy(k->dmac, h->dmac, ETH_ALEN);
	__builtin_memcpy(k->smac, h->smac, ETH_ALEN);
	k->up_until = h->until;
}
