/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* IPv6 packets from and to clients: as IPv4's, but for who has which address. Clients choose their
 * addresses themselves, so the daemon hears neighbour discovery and DHCPv6, and enters the
 * addresses (RFC 6620). The stack hears no more of neighbour discovery than solicitations of known
 * senders, and questions whether an address is free, which it answers for its own addresses:
 *
 *	client ──▶ solicitations, advertisements, DHCPv6, unknown addresses ──▶ heard6 ──▶ daemon
 *	client ──▶ solicitations of known senders, duplicate address detection ──▶ stack
 */
#pragma once

#include "known6.h"
#include "preauth6.h"

/* hear6 has the daemon hear a frame, or its beginning. It returns 0 where it does not. */
__noinline int hear6(struct __sk_buff *skb, enum sending kind, int known)
{
	__u64 bytes = skb->len;
	struct request *r;
	int whole = kind != IS_NEW;

	if (!may_send(skb, kind, known))
		return 0;
	if (!known && bpf_ringbuf_query(&heard6, BPF_RB_AVAIL_DATA) > HEARD6 / 2)
		return 0; /* half of the buffer is for clients that are known */
	if (!whole && bytes > ETH_HLEN + IP6_LEN)
		bytes = ETH_HLEN + IP6_LEN;
	if (bytes < ETH_HLEN + IP6_LEN)
		return 0;
	asm volatile("" : "+r"(bytes));
	if (bytes > REQUEST_MAX)
		return 0;
	if (bytes <= HEARD6_MOST)
		r = bpf_ringbuf_reserve(&heard6, offsetof(struct request, frame) + HEARD6_MOST, 0);
	else
		r = bpf_ringbuf_reserve(&heard6, sizeof(*r), 0);
	if (!r)
		return 0;
	if (bpf_skb_load_bytes(skb, 0, r->frame, bytes)) {
		bpf_ringbuf_discard(r, 0);
		return 0;
	}
	r->bytes = bytes;
	bpf_ringbuf_submit(r, 0);
	return 1;
}

/* nd_in handles a message of neighbour discovery. known: its source is an address of the client that
 * sent it. */
static __always_inline int nd_in(struct __sk_buff *skb, const struct ipv6hdr *ip, __u8 type,
	const struct client *c, int known)
{
	if (ip->hop_limit != ND_HOPS)
		return drop(skb, REASON_MALFORMED);
	if (!hear6(skb, SENDS_ND, known))
		return drop(skb, REASON_THROTTLED);
	if (type != ICMP6_NEIGHBOUR_SOLICITATION)
		return drop(skb, REASON_LOCAL);
	if (is_unspecified6(&ip->saddr))
		return pass(skb, REASON_LOCAL);
	if (!known)
		return drop(skb, REASON_NOT_LEASED);
	return spend_work6(c, WORK_QUESTION) ? pass(skb, REASON_LOCAL) : drop(skb, REASON_THROTTLED);
}

/* pass_here6 passes an admitted client's packet for this machine or a group to the stack. Behind
 * extension headers it could be neighbour discovery that the daemon does not hear (RFC 7113), so
 * no packet with them passes but multicast listener reports. The stack takes no neighbour
 * discovery from fragments (RFC 6980). */
__noinline int pass_here6(struct __sk_buff *skb)
{
	struct {
		__u8 next, length, options[6], type;
	} behind;
	__u8 next;

	if (bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, nexthdr), &next, 1))
		return drop(skb, REASON_MALFORMED);
	if (next == NEXT_HOP_BY_HOP && !bpf_skb_load_bytes(skb, ETH_HLEN + IP6_LEN, &behind, sizeof(behind)) &&
		behind.next == NEXT_ICMP6 && !behind.length &&
		((behind.type >= ICMP6_MLD_QUERY && behind.type <= ICMP6_MLD_DONE) || behind.type == ICMP6_MLD2_REPORT))
		return pass(skb, REASON_LOCAL);
	if (next == NEXT_HOP_BY_HOP || next == NEXT_ROUTING || next == NEXT_OPTIONS || next == NEXT_AH)
		return drop(skb, REASON_MALFORMED);
	return pass(skb, REASON_LOCAL);
}

/* across6 passes an admitted client's packet to another client, as forward_across does. */
static __always_inline int across6(struct __sk_buff *skb, const struct ipv6hdr *ip,
	const struct settings6 *s, const void *end, __u64 now)
{
	struct addr6 dst = addr6_at(&ip->daddr);
	const struct client *c = bpf_map_lookup_elem(&clients6, &dst);

	if (!c || is_link_local6(&ip->daddr))
		return drop(skb, REASON_NOT_LEASED);
	count(skb, REASON_STACK);
	if (now >= s->redirect_until)
		return TC_ACT_OK;
	if (!may_receive6(skb, ip, c, end, now))
		return TC_ACT_SHOT;
	set_judged(skb);
	count(skb, REASON_STACK);
	return TC_ACT_UNSPEC;
}

/* forward_known_up6 forwards a packet whose connection is known; NOT_KNOWN6: it is not. */
static __always_inline int forward_known_up6(struct __sk_buff *skb, struct ethhdr *eth,
	struct ipv6hdr *ip, __u32 session, const struct settings6 *s, const void *end)
{
	const struct known6 *k = known6_at(ip, end, 1);
	const struct settings *common;
	__u64 now = clock_ns();
	__u32 zero = 0;

	if (!k || !is_known6(k, s, ip, end, 1) || now >= k->up_until || expired(&k->client, now) ||
		now >= s->redirect_until || mac_at(k->client.mac) != mac_at(eth->h_source) ||
		k->client.session != session || skb->pkt_type != PACKET_HOST || !may_bypass_stack6(skb, ip, k->mtu, end))
		return NOT_KNOWN6;
	common = bpf_map_lookup_elem(&gateway_settings, &zero);
	if (!common || k->generation != common->generation)
		return NOT_KNOWN6;
	if (unlikely(!within_limits(skb, 0, &k->client, on_wire6(skb, ip, end), 1, now)))
		return TC_ACT_SHOT;
	return readdress6(skb, eth, ip, k->dmac, k->smac, k->ifindex);
}

/* forward_up6 forwards an admitted client's packet. changes is settings6.changes before the client's
 * entry was read. */
static __always_inline int forward_up6(struct __sk_buff *skb, struct ethhdr *eth, struct ipv6hdr *ip,
	const struct client *c, const struct settings6 *s, const void *end, __u32 changes)
{
	struct known6 *k;

	__u32 zero = 0;
	struct addr6 dst = addr6_at(&ip->daddr);
	const struct settings *common = bpf_map_lookup_elem(&gateway_settings, &zero);
	struct hop6 *h = cached_hop6(dst);
	__u64 now = clock_ns();
	int way = WAY6_OUT;

	if (!common || !h)
		return TC_ACT_SHOT;
	if (!same6(h->dst, dst) || h->generation != common->generation || now >= h->until)
		way = ask_for_hop6(skb, common->generation);
	if (way == WAY6_LOCAL && !(is_link_local6(&ip->daddr) && bpf_map_lookup_elem(&clients6, &dst)))
		return pass_here6(skb);
	if (is_link_local6(&ip->saddr) || is_link_local6(&ip->daddr)) /* RFC 4291, 2.5.6 */
		return drop(skb, REASON_FOREIGN_SOURCE);
	if (!within_limits(skb, 0, c, on_wire6(skb, ip, end), 1, now))
		return TC_ACT_SHOT;
	if (way == WAY6_LAN)
		return across6(skb, ip, s, end, now);
	note_asked6(skb);
	if (way == WAY6_STACK || now >= s->redirect_until || !may_bypass_stack6(skb, ip, h->mtu, end))
		return pass(skb, REASON_STACK);
	k = know6(s, changes, c, ip, end, 1);
	if (k)
		know_up6(k, h);
	return readdress6(skb, eth, ip, h->dmac, h->smac, h->ifindex);
}

/* unknown6 handles a packet from an address that no client is known to have. */
static __always_inline int unknown6(struct __sk_buff *skb, const struct ipv6hdr *ip,
	const struct settings6 *s)
{
	if (!is_link_local6(&ip->saddr) && !is_of_lan6(s, addr6_at(&ip->saddr)))
		return drop(skb, REASON_FOREIGN_SOURCE);
	hear6(skb, IS_NEW, 0);
	return drop(skb, REASON_NOT_LEASED);
}

/* dhcp6_in handles a message of a DHCPv6 client or server. */
static __always_inline int dhcp6_in(struct __sk_buff *skb, struct ports p, int known)
{
	if (p.dest != DHCP6_SERVER) {
		hear6(skb, SENDS_DHCP, known);
		return drop(skb, REASON_ROGUE_DHCP);
	}
	return drop(skb, hear6(skb, SENDS_DHCP, known) ? REASON_LOCAL : REASON_THROTTLED);
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

/* ip6_in handles a packet from a client: session is the PPPoE session it came in, network order,
 * or 0. */
__noinline int ip6_in(struct __sk_buff *skb, __u32 session)
{
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	const struct client *c;
	struct icmp6hdr *icmp;
	struct ethhdr *eth;
	struct ipv6hdr *ip;
	struct addr6 src;
	struct ports p;
	__u32 changes;
	void *end;
	int known, verdict;

	if (!s || !s->on)
		return drop(skb, REASON_IPV6);
	if (unlikely(!pull6(skb)))
		return drop(skb, REASON_MALFORMED);
	eth = (void *)(long)skb->data, ip = (void *)(eth + 1), end = (void *)(long)skb->data_end;
	icmp = (void *)(ip + 1);
	if ((void *)(ip + 1) > end || !is_sound6(skb, ip))
		return drop(skb, REASON_MALFORMED);
	if (unlikely(skb->pkt_type == PACKET_OTHERHOST))
		return TC_ACT_SHOT;
	verdict = forward_known_up6(skb, eth, ip, session, s, end);
	if (likely(verdict != NOT_KNOWN6))
		return verdict;
	changes = *(volatile const __u32 *)&s->changes;
	src = addr6_at(&ip->saddr);
	c = bpf_map_lookup_elem(&clients6, &src);
	known = c && mac_at(c->mac) == mac_at(eth->h_source) && c->session == session;
	if (unlikely(ip->nexthdr == NEXT_ICMP6 && (void *)(icmp + 1) <= end &&
		icmp->type >= ICMP6_ROUTER_SOLICITATION && icmp->type <= ICMP6_REDIRECT))
		return nd_in(skb, ip, icmp->type, known ? c : 0, known);
	p = ports6_of(ip, end);
	if (unlikely(ip->nexthdr == IPPROTO_UDP && (p.dest == DHCP6_SERVER ||
		(p.source == DHCP6_SERVER && p.dest == DHCP6_CLIENT))))
		return dhcp6_in(skb, p, known);
	if (unlikely(!c))
		return unknown6(skb, ip, s);
	if (unlikely(!known))
		return drop(skb, REASON_WRONG_MAC);
	if (unlikely(c->state != STATE_ADMITTED || expired(c, clock_ns())))
		return PREAUTH6;
	/* The stack does not forward frames sent to a group's address. */
	if (unlikely(is_multicast6(&ip->daddr) || skb->pkt_type != PACKET_HOST))
		return pass_here6(skb);
	return forward_up6(skb, eth, ip, c, s, end, changes);
}

/* from_client6 handles a packet from a client. */
static __always_inline int from_client6(struct __sk_buff *skb)
{
	int verdict = ip6_in(skb, 0);

	if (unlikely(verdict == PREAUTH6))
		verdict = preauth6(skb);
	if (unlikely(verdict == RESET6))
		return reset6(skb);
	if (unlikely(verdict == PROHIBIT6))
		return prohibit6(skb);
	return verdict;
}

/* nobodys6 handles a packet from the WAN for an address that no client has. The stack would ask the
 * LAN for its owner: whoever scans the LAN would fill the neighbour table. */
static __always_inline int nobodys6(struct __sk_buff *skb, const struct ipv6hdr *ip,
	const struct settings6 *s)
{
	struct bpf_fib_lookup fib;

	if (!is_of_lan6(s, addr6_at(&ip->daddr)) || route6(skb, ip, &fib) == BPF_FIB_LKUP_RET_NOT_FWDED)
		return TC_ACT_OK;
	return drop(skb, REASON_NOT_LEASED);
}

/* to_known6 forwards a packet to a client whose connection is known; NOT_KNOWN6: it is not. */
static __always_inline int to_known6(struct __sk_buff *skb, struct ethhdr *eth, struct ipv6hdr *ip,
	const struct settings6 *s, __u32 mtu, const void *end)
{
	const struct known6 *k = known6_at(ip, end, 0);
	__u64 now = clock_ns();
	__u8 mac[ETH_ALEN];

	if (!k || !is_known6(k, s, ip, end, 0) || now >= k->down_until || expired(&k->client, now) ||
		now >= s->redirect_until || !may_bypass_stack6(skb, ip, mtu, end))
		return NOT_KNOWN6;
	if (unlikely(!within_limits(skb, 0, &k->client, on_wire6(skb, ip, end), 0, now)))
		return TC_ACT_SHOT;
	set_judged(skb);
	copy_lan_mac(mac);
	return readdress6(skb, eth, ip, k->client.mac, mac, lan.ifindex);
}

/* judge_down6 handles a packet from the WAN that is not of a known connection. */
static __always_inline int judge_down6(struct __sk_buff *skb, struct ethhdr *eth, struct ipv6hdr *ip,
	const struct settings6 *s, __u32 mtu, const void *end)
{
	__u32 changes = *(volatile const __u32 *)&s->changes;
	struct addr6 dst = addr6_at(&ip->daddr);
	const struct client *c;
	__u8 mac[ETH_ALEN];
	struct known6 *k;
	__u64 now;

	if (unlikely(is_of_lan6(s, addr6_at(&ip->saddr))))
		return drop(skb, REASON_FOREIGN_SOURCE);
	c = bpf_map_lookup_elem(&clients6, &dst);
	if (unlikely(!c))
		return nobodys6(skb, ip, s);
	now = clock_ns();
	if (now >= s->redirect_until || is_martian6(&ip->saddr)) /* lan_out will see it */
		return TC_ACT_OK;
	if (!c->session && unlikely(c->state == STATE_ADMITTED && !expired(c, now) &&
		!may_bypass_stack6(skb, ip, mtu, end)))
		return TC_ACT_OK; /* also what is too long: the stack says so (RFC 4443, 3.2) */
	if (c->state == STATE_ADMITTED && unlikely(!may_enter6(skb)))
		return drop(skb, REASON_UNASKED);
	if (!may_receive6(skb, ip, c, end, now))
		return TC_ACT_SHOT;
	set_judged(skb);
	if (c->state != STATE_ADMITTED || expired(c, now) || c->session)
		return TC_ACT_UNSPEC; /* of the garden, or on PPPoE */
	k = know6(s, changes, c, ip, end, 0);
	if (k)
		k->down_until = now + KNOWN6_NS;
	copy_lan_mac(mac);
	return readdress6(skb, eth, ip, c->mac, mac, lan.ifindex);
}

/* ip6_down handles a packet from the WAN. */
__noinline int ip6_down(struct __sk_buff *skb)
{
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	const struct settings *common = bpf_map_lookup_elem(&gateway_settings, &zero);
	struct ethhdr *eth;
	struct ipv6hdr *ip;
	void *end;
	int verdict;

	if (!s || !s->on || !common || unlikely(!pull6(skb)))
		return TC_ACT_OK;
	eth = (void *)(long)skb->data, ip = (void *)(eth + 1), end = (void *)(long)skb->data_end;
	if ((void *)(ip + 1) > end || !is_sound6(skb, ip) || skb->pkt_type != PACKET_HOST ||
		is_multicast6(&ip->daddr) || is_link_local6(&ip->daddr))
		return TC_ACT_OK;
	verdict = to_known6(skb, eth, ip, s, common->lan_mtu, end);
	return likely(verdict != NOT_KNOWN6) ? verdict : judge_down6(skb, eth, ip, s, common->lan_mtu, end);
}

/* ip6_out judges a packet that the stack sends to the LAN. */
__noinline int ip6_out(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	struct ethhdr *eth = data;
	struct ipv6hdr *ip = data + ETH_HLEN;
	const struct client *c;
	struct addr6 dst;
	int admitted;
	__u64 now;

	if (!s || !s->on || (void *)(ip + 1) > end)
		return TC_ACT_OK;
	dst = addr6_at(&ip->daddr);
	c = bpf_map_lookup_elem(&clients6, &dst);
	now = clock_ns();
	admitted = c && c->state == STATE_ADMITTED && !expired(c, now);
	if (!skb->ingress_ifindex) { /* of this machine */
		if (c && !admitted && same6(addr6_at(&ip->saddr), s->gateway))
			from_portal6(skb, ip, s, end);
		return TC_ACT_OK;
	}
	if (is_multicast6(&ip->daddr))
		return TC_ACT_OK;
	if (!c)
		return drop(skb, REASON_NOT_LEASED);
	if (admitted && skb->ingress_ifindex != lan.ifindex && !may_enter6(skb))
		return drop(skb, REASON_UNASKED);
	if (!may_receive6(skb, ip, c, end, now))
		return TC_ACT_SHOT;
	if (mac_at(eth->h_dest) != mac_at(c->mac))
		bpf_skb_store_bytes(skb, 0, c->mac, ETH_ALEN, 0);
	return admitted ? pass(skb, REASON_STACK) : TC_ACT_OK;
}

/* portal_lookup6 is portal_lookup for IPv6. */
static __always_inline int portal_lookup6(struct bpf_sk_lookup *ctx)
{
	__u32 zero = 0, one = 1;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	const struct client *c;
	struct bpf_sock *sk;
	struct addr6 src;

	/* Each word is read by itself: the verifier allows no other access to this context. */
	const volatile struct bpf_sk_lookup *at = ctx;
	__u32 here[4] = { at->local_ip6[0], at->local_ip6[1], at->local_ip6[2], at->local_ip6[3] };
	__u32 there[4] = { at->remote_ip6[0], at->remote_ip6[1], at->remote_ip6[2], at->remote_ip6[3] };

	if (!s || !same6(addr6_at(here), s->gateway))
		return SK_PASS;
	src = addr6_at(there);
	c = bpf_map_lookup_elem(&clients6, &src);
	if (!c || (c->state == STATE_ADMITTED && !expired(c, bpf_ktime_get_coarse_ns())))
		return SK_PASS;
	sk = bpf_map_lookup_elem(&portal, &one);
	if (!sk)
		return SK_PASS;
	bpf_sk_assign(ctx, sk, 0);
	bpf_sk_release(sk);
	return SK_PASS;
}
