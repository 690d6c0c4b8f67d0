/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What was found lately of a client's connection, so that its next packets need one look-up in an
 * array where the first ones need two in hash tables and one of the next hop. Only TCP and UDP,
 * whose packets are most of the traffic, are known so. Each CPU has its own array, in which
 * connections replace each other; the larger the network, the longer.
 *
 * A known connection's packets are redirected to the next hop in its entry while nothing in netfilter
 * sees forwarded packets (until redirect_until). Otherwise they take the way that the cache of flows has
 * learned from the stack (cache6.h), of which the entry has a copy. */
#pragma once

#include "asked6.h"
#include "cache6.h"

#define KNOWN6_NS SECOND_NS

/* How many of a hash's 64 bits do not choose the place; set by user space. */
volatile const __u32 known6_shift;

struct known6 {
	struct asked6_key key;
	/* ns of CLOCK_MONOTONIC, coarse, until which the entry may be used for the client's packets,
	 * and for those to it; 0: it may not */
	__u64 up_until, down_until;
	struct client client; /* the entry of its address, which is admitted */
	__u32 changes;        /* settings6.changes before that was read */
	/* of the next hop, see hop6. mtu 0: no hop is known, and up or down may have the way */
	__u32 generation, ifindex, mtu;
	__u8 dmac[6], smac[6];
	__u32 pad;
	struct copied6 up, down; /* copies of the ways that the cache of flows has */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* user space: 2^knownBits where clients have IPv6 */
	__type(key, __u32);
	__type(value, struct known6);
} known6 SEC(".maps");

/* known6_at is the place of what is known of a packet's connection, and its hash; NULL: it has no
 * ports. */
static __always_inline struct known6 *known6_at(const struct ipv6hdr *ip, const void *end, int up,
	__u64 *mixed)
{
	const struct ports *p = (const void *)(ip + 1);
	const struct in6_addr *client = up ? &ip->saddr : &ip->daddr, *remote = up ? &ip->daddr : &ip->saddr;
	__u32 at;

	if ((ip->nexthdr != IPPROTO_TCP && ip->nexthdr != IPPROTO_UDP) || (const void *)(p + 1) > end)
		return 0;
	*mixed = mix6(addr6_at(client), addr6_at(remote), up ? p->source : p->dest, up ? p->dest : p->source);
	at = *mixed >> known6_shift;
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
	__u64 mixed;
	struct known6 *k = known6_at(ip, end, up, &mixed);

	if (!k || changes != s->changes)
		return 0;
	if (!is_known6(k, s, ip, end, up)) {
		k->up_until = k->down_until = k->up.until = k->down.until = 0;
		asked6_of(&k->key, ip, end, up);
		k->client = *c;
		k->changes = changes;
	}
	return k;
}

/* know_up6 notes the next hop of a client's packet, whose connection is in asked6. */
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

/* know_client6 notes that the client of a packet is known, whose connection is in asked6 and whose way is
 * in the cache. */
static __always_inline void know_client6(struct known6 *k, __u64 now)
{
	k->mtu = 0;
	k->up_until = now + KNOWN6_NS;
}

/* forward_cached_up6 forwards a packet by the cache of flows, which has only connections that the stack
 * has forwarded to the WAN; NOT_KNOWN6: it has no way for the packet. */
static __always_inline int forward_cached_up6(struct __sk_buff *skb, struct ethhdr *eth,
	struct ipv6hdr *ip, const struct client *c, const struct settings6 *s, const void *end, __u64 now,
	__u32 changes)
{
	struct known6 *k = know6(s, changes, c, ip, end, 1);

	if (!k || !has_path6(skb, &k->up, now, 1))
		return NOT_KNOWN6;
	note_asked6(skb);
	know_client6(k, now);
	return send_by_path6(skb, eth, ip, c, &k->up, end, now, 1);
}

/* forward_cached_down6 forwards a packet to a client by the cache of flows, or leaves it to the
 * stack. */
static __always_inline int forward_cached_down6(struct __sk_buff *skb, struct ethhdr *eth,
	struct ipv6hdr *ip, const struct client *c, const struct settings6 *s, const void *end, __u64 now,
	__u32 changes)
{
	struct known6 *k;

	if (c->state != STATE_ADMITTED || expired(c, now) || c->session || !may_enter6(skb))
		return TC_ACT_OK;
	k = know6(s, changes, c, ip, end, 0);
	if (!k || !has_path6(skb, &k->down, now, 0))
		return TC_ACT_OK;
	k->down_until = now + KNOWN6_NS;
	return send_by_path6(skb, eth, ip, c, &k->down, end, now, 0);
}

/* pull6 makes a frame's first headers readable; 0: it has no IPv6 header. */
static __always_inline int pull6(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 most = ETH_HLEN + IP6_LEN + sizeof(struct tcphdr), want = skb->len < most ? skb->len : most;

	if (likely(data + most <= end))
		return 1;
	return want >= ETH_HLEN + IP6_LEN && !bpf_skb_pull_data(skb, want);
}

/* forward_known_up6 forwards a packet whose connection is known; NOT_KNOWN6: it is not. */
static __always_inline int forward_known_up6(struct __sk_buff *skb, struct ethhdr *eth,
	struct ipv6hdr *ip, __u32 session, const struct settings6 *s, const void *end)
{
	__u64 mixed = 0, now = clock_ns();
	struct known6 *k = known6_at(ip, end, 1, &mixed);
	const struct settings *common;
	__u32 zero = 0;

	if (!k || !is_known6(k, s, ip, end, 1) || now >= k->up_until || expired(&k->client, now) ||
		mac_at(k->client.mac) != mac_at(eth->h_source) || k->client.session != session ||
		skb->pkt_type != PACKET_HOST)
		return NOT_KNOWN6;
	if (now >= s->redirect_until) {
		if (unlikely(!is_copied6(skb, &k->up, ip, end, mixed, now) && !has_path6(skb, &k->up, now, 1)))
			return NOT_KNOWN6;
		return send_by_path6(skb, eth, ip, &k->client, &k->up, end, now, 1);
	}
	if (!may_bypass_stack6(skb, ip, k->mtu, end))
		return NOT_KNOWN6;
	common = bpf_map_lookup_elem(&gateway_settings, &zero);
	if (!common || k->generation != common->generation)
		return NOT_KNOWN6;
	if (unlikely(!within_limits(skb, 0, &k->client, on_wire6(skb, ip, end), 1, now)))
		return TC_ACT_SHOT;
	return readdress6(skb, eth, ip, k->dmac, k->smac, k->ifindex);
}

/* known_up6 forwards a client's packet that is of a known connection, and drops what is no packet of
 * IPv6; NOT_KNOWN6: the connection is not known. */
__noinline int known_up6(struct __sk_buff *skb, __u32 session)
{
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	struct ethhdr *eth;
	struct ipv6hdr *ip;
	void *end;

	if (!s || !s->on)
		return drop(skb, REASON_IPV6);
	if (unlikely(!pull6(skb)))
		return drop(skb, REASON_MALFORMED);
	eth = (void *)(long)skb->data, ip = (void *)(eth + 1), end = (void *)(long)skb->data_end;
	if ((void *)(ip + 1) > end || !is_sound6(skb, ip))
		return drop(skb, REASON_MALFORMED);
	if (unlikely(skb->pkt_type == PACKET_OTHERHOST))
		return TC_ACT_SHOT;
	return forward_known_up6(skb, eth, ip, session, s, end);
}

/* mtu_to is the largest IP packet to a client, bytes. lan_mtu is the LAN's. */
static __always_inline __u32 mtu_to(const struct client *c, __u32 lan_mtu)
{
	return c->session ? c->mtu : lan_mtu;
}

/* to_known6 forwards a packet to a client whose connection is known; NOT_KNOWN6: it is not. */
static __always_inline int to_known6(struct __sk_buff *skb, struct ethhdr *eth, struct ipv6hdr *ip,
	const struct settings6 *s, __u32 mtu, const void *end)
{
	__u64 mixed = 0, now = clock_ns();
	struct known6 *k = known6_at(ip, end, 0, &mixed);

	if (!k || !is_known6(k, s, ip, end, 0) || now >= k->down_until || expired(&k->client, now))
		return NOT_KNOWN6;
	if (now >= s->redirect_until) {
		if (unlikely(k->client.session || (!is_copied6(skb, &k->down, ip, end, mixed, now) &&
			!has_path6(skb, &k->down, now, 0))))
			return NOT_KNOWN6;
		return send_by_path6(skb, eth, ip, &k->client, &k->down, end, now, 0);
	}
	if (!may_bypass_stack6(skb, ip, mtu_to(&k->client, mtu), end))
		return NOT_KNOWN6;
	if (unlikely(!within_limits(skb, 0, &k->client, on_wire6(skb, ip, end), 0, now)))
		return TC_ACT_SHOT;
	set_judged(skb);
	return readdress6(skb, eth, ip, k->client.mac, 0, lan.ifindex);
}

/* known_down6 forwards a packet from the WAN that is of a known connection, and leaves to the stack
 * what is not to be forwarded by IPv6; NOT_KNOWN6: the connection is not known. */
__noinline int known_down6(struct __sk_buff *skb)
{
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	const struct settings *common = bpf_map_lookup_elem(&gateway_settings, &zero);
	struct ethhdr *eth;
	struct ipv6hdr *ip;
	void *end;

	if (!s || !s->on || !common || unlikely(!pull6(skb)))
		return TC_ACT_OK;
	eth = (void *)(long)skb->data, ip = (void *)(eth + 1), end = (void *)(long)skb->data_end;
	if ((void *)(ip + 1) > end || !is_sound6(skb, ip) || skb->pkt_type != PACKET_HOST ||
		is_multicast6(&ip->daddr) || is_link_local6(&ip->daddr))
		return TC_ACT_OK;
	return to_known6(skb, eth, ip, s, common->lan_mtu, end);
}
