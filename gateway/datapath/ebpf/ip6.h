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

#include "heard6.h"
#include "known6.h"
#include "preauth6.h"

/* nd_in handles a message of neighbour discovery. known: its source is an address of the client that
 * sent it. */
static __always_inline int nd_in(struct __sk_buff *skb, const struct ipv6hdr *ip, __u8 type,
	const struct client *c, int known, __u32 session)
{
	if (ip->hop_limit != ND_HOPS)
		return drop(skb, REASON_MALFORMED);
	if (!hear6(skb, SENDS_ND, known, session))
		return drop(skb, REASON_THROTTLED);
	if (type != ICMP6_NEIGHBOUR_SOLICITATION || session) /* in a session the daemon answers */
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
	const struct client *c = client6(dst);

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
	if (unlikely(is_beyond_link6(ip, s)))
		return drop(skb, REASON_FOREIGN_SOURCE);
	if (now >= s->redirect_until) {
		int verdict = forward_cached_up6(skb, eth, ip, c, s, end, now, changes);

		if (verdict != NOT_KNOWN6)
			return verdict;
	}
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
	const struct settings6 *s, __u32 session)
{
	if (!is_link_local6(&ip->saddr) && !is_of_lan6(s, addr6_at(&ip->saddr)))
		return drop(skb, REASON_FOREIGN_SOURCE);
	hear6(skb, IS_NEW, 0, session);
	return drop(skb, REASON_NOT_LEASED);
}

/* dhcp6_in handles a message of a DHCPv6 client or server. */
static __always_inline int dhcp6_in(struct __sk_buff *skb, struct ports p, int known, __u32 session)
{
	if (p.dest != DHCP6_SERVER) {
		hear6(skb, SENDS_DHCP, known, session);
		return drop(skb, REASON_ROGUE_DHCP);
	}
	return drop(skb, hear6(skb, SENDS_DHCP, known, session) ? REASON_LOCAL : REASON_THROTTLED);
}

/* judge_up6 handles a client's packet that is not of a known connection, after known_up6. */
__noinline int judge_up6(struct __sk_buff *skb, __u32 session)
{
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	struct ethhdr *eth = (void *)(long)skb->data;
	struct ipv6hdr *ip = (void *)(eth + 1);
	struct icmp6hdr *icmp = (void *)(ip + 1);
	void *end = (void *)(long)skb->data_end;
	const struct client *c;
	struct addr6 src;
	struct ports p;
	__u32 changes;
	int known;

	if (!s || (void *)(ip + 1) > end)
		return drop(skb, REASON_MALFORMED);
	changes = *(volatile const __u32 *)&s->changes;
	src = addr6_at(&ip->saddr);
	c = client6(src);
	known = c && mac_at(c->mac) == mac_at(eth->h_source) && c->session == session;
	if (unlikely(ip->nexthdr == NEXT_ICMP6 && (void *)(icmp + 1) <= end &&
		icmp->type >= ICMP6_ROUTER_SOLICITATION && icmp->type <= ICMP6_REDIRECT))
		return nd_in(skb, ip, icmp->type, known ? c : 0, known, session);
	p = ports6_of(ip, end);
	if (unlikely(ip->nexthdr == IPPROTO_UDP && (p.dest == DHCP6_SERVER ||
		(p.source == DHCP6_SERVER && p.dest == DHCP6_CLIENT))))
		return dhcp6_in(skb, p, known, session);
	if (unlikely(!c))
		return unknown6(skb, ip, s, session);
	if (unlikely(!known))
		return drop(skb, REASON_WRONG_MAC);
	if (unlikely(c->state != STATE_ADMITTED || expired(c, clock_ns())))
		return PREAUTH6;
	/* The stack does not forward frames sent to a group's address. */
	if (unlikely(is_multicast6(&ip->daddr) || skb->pkt_type != PACKET_HOST))
		return session ? drop(skb, REASON_LOCAL) : pass_here6(skb); /* nobody else is on the session's link */
	if (unlikely(c->flags & LEARN))
		hear6(skb, IS_NEW, 1, session);
	return forward_up6(skb, eth, ip, c, s, end, changes);
}

/* ip6_in handles a packet from a client: session is the PPPoE session it came in, network order,
 * or 0. The stacks of the two functions do not add up. */
static __always_inline int ip6_in(struct __sk_buff *skb, __u32 session)
{
	int verdict = known_up6(skb, session);

	return likely(verdict != NOT_KNOWN6) ? verdict : judge_up6(skb, session);
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
__noinline int nobodys6(struct __sk_buff *skb)
{
	struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HLEN;
	void *end = (void *)(long)skb->data_end;
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	struct bpf_fib_lookup fib;

	if (!s || (void *)(ip + 1) > end || !is_of_lan6(s, addr6_at(&ip->daddr)) ||
		route6(skb, ip, &fib) == BPF_FIB_LKUP_RET_NOT_FWDED)
		return TC_ACT_OK;
	return drop(skb, REASON_NOT_LEASED);
}

/* is_too_long6 reports whether a packet is longer than a client's PPPoE session allows, so that its sender
 * has to be told. No error is sent about an error. */
static __always_inline int is_too_long6(const struct __sk_buff *skb, const struct ipv6hdr *ip,
	const struct client *c, const void *end)
{
	const struct icmp6hdr *icmp = (const void *)(ip + 1);

	if (!c->session || skb->gso_size || IP6_LEN + bpf_ntohs(ip->payload_len) <= c->mtu)
		return 0;
	return ip->nexthdr != NEXT_ICMP6 || ((const void *)(icmp + 1) <= end && icmp->type >= ICMP6_ECHO);
}

/* refuse_down6 tells a sender behind the WAN of a packet that is longer than the client's PPPoE session
 * allows. The stack, which knows the LAN's MTU, would not. */
static __always_inline int refuse_down6(struct __sk_buff *skb, const struct settings6 *s, __u32 mtu)
{
	if (error6(skb, &s->gateway, ICMP6_TOO_BIG << 8, mtu))
		return drop(skb, REASON_MALFORMED);
	count(skb, REASON_REJECTED);
	return bpf_redirect(wan_ifindex, 0);
}

/* is_stacks6 reports whether the stack must take a packet to a client, where packets are redirected:
 * also what is too long, because the stack says so (RFC 4443, 3.2). */
static __always_inline int is_stacks6(const struct __sk_buff *skb, const struct ipv6hdr *ip,
	const struct client *c, __u32 mtu, const void *end, __u64 now)
{
	return is_martian6(&ip->saddr) || (!c->session && c->state == STATE_ADMITTED && !expired(c, now) &&
		unlikely(!may_bypass_stack6(skb, ip, mtu, end)));
}

/* is_left6 reports whether a packet to a PPPoE session is left to the stack, and counts it. */
static __always_inline int is_left6(struct __sk_buff *skb, const struct ipv6hdr *ip,
	const struct client *c, const void *end)
{
	if (!c->session || may_bypass_stack6(skb, ip, c->mtu, end))
		return 0;
	count(skb, REASON_STACK);
	return 1;
}

/* judge_down6 handles a packet from the WAN that is not of a known connection. It is called after
 * known_down6, and not by it: their stacks add up with those of the functions that they call. */
__noinline int judge_down6(struct __sk_buff *skb)
{
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	const struct settings *common = bpf_map_lookup_elem(&gateway_settings, &zero);
	struct ethhdr *eth = (void *)(long)skb->data;
	struct ipv6hdr *ip = (void *)(eth + 1);
	void *end = (void *)(long)skb->data_end;
	struct addr6 src, dst;
	const struct client *c;
	struct known6 *k;
	__u32 changes;
	__u64 now;

	if (!s || !common || (void *)(ip + 1) > end)
		return TC_ACT_OK;
	changes = *(volatile const __u32 *)&s->changes;
	src = addr6_at(&ip->saddr), dst = addr6_at(&ip->daddr);
	if (unlikely(is_of_lan6(s, src) || (routed6 && behind6(src.high, src.low))))
		return drop(skb, REASON_FOREIGN_SOURCE);
	c = client6(dst);
	if (unlikely(!c))
		return nobodys6(skb);
	now = clock_ns();
	if (now >= s->redirect_until)
		return forward_cached_down6(skb, eth, ip, c, s, end, now, changes); /* or lan_out will see it */
	if (is_stacks6(skb, ip, c, common->lan_mtu, end, now))
		return TC_ACT_OK; /* as above */
	if (c->state == STATE_ADMITTED && unlikely(!may_enter6(skb)))
		return drop(skb, REASON_UNASKED);
	if (unlikely(is_too_long6(skb, ip, c, end) && !expired(c, now)))
		return refuse_down6(skb, s, c->mtu);
	if (!may_receive6(skb, ip, c, end, now))
		return TC_ACT_SHOT;
	set_judged(skb);
	if (c->state != STATE_ADMITTED || expired(c, now) || is_left6(skb, ip, c, end))
		return TC_ACT_UNSPEC; /* of the garden, or the stack's */
	k = know6(s, changes, c, ip, end, 0);
	if (k)
		k->down_until = now + KNOWN6_NS;
	return readdress6(skb, eth, ip, c->mac, 0, lan.ifindex);
}

/* ip6_down handles a packet from the WAN. */
static __always_inline int ip6_down(struct __sk_buff *skb)
{
	int verdict = known_down6(skb);

	return likely(verdict != NOT_KNOWN6) ? verdict : judge_down6(skb);
}

/* to_mac has a packet that the stack sends go to its client: the next hop of networks behind clients
 * is one for all of them, and a neighbour entry may be that of an address's former owner. */
static __always_inline void to_mac(struct __sk_buff *skb, const struct client *c)
{
	__u8 mac[ETH_ALEN];

	if (!bpf_skb_load_bytes(skb, 0, mac, ETH_ALEN) && mac_at(mac) != mac_at(c->mac))
		bpf_skb_store_bytes(skb, 0, c->mac, ETH_ALEN, 0);
}

/* ip6_out judges a packet that the stack sends to the LAN. */
__noinline int ip6_out(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	struct ipv6hdr *ip = data + ETH_HLEN;
	struct icmp6hdr *icmp = (void *)(ip + 1);
	const struct client *c;
	struct addr6 dst;
	int admitted;
	__u64 now;

	if (!s || !s->on || (void *)(ip + 1) > end)
		return TC_ACT_OK;
	/* The kernel would redirect clients of one LAN to each other: past the gateway, or to ports that do
	 * not hear them. IPv6 has no sysctl for that. */
	if (unlikely(!skb->ingress_ifindex && ip->nexthdr == NEXT_ICMP6 && (void *)(icmp + 1) <= end &&
		icmp->type == ICMP6_REDIRECT))
		return TC_ACT_SHOT;
	dst = addr6_at(&ip->daddr);
	c = client6(dst);
	now = clock_ns();
	admitted = c && c->state == STATE_ADMITTED && !expired(c, now);
	if (!skb->ingress_ifindex) { /* of this machine */
		if (c && !admitted && same6(addr6_at(&ip->saddr), s->gateway))
			from_portal6(skb, ip, s, end);
		if (c && routed6)
			to_mac(skb, c);
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
	to_mac(skb, c);
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
	__u32 here[4] __attribute__((aligned(8))) = {
		at->local_ip6[0], at->local_ip6[1], at->local_ip6[2], at->local_ip6[3] };
	__u32 there[4] __attribute__((aligned(8))) = {
		at->remote_ip6[0], at->remote_ip6[1], at->remote_ip6[2], at->remote_ip6[3] };

	if (!s || !same6(addr6_at(here), s->gateway))
		return SK_PASS;
	src = addr6_at(there);
	c = client6(src);
	if (!c || (c->state == STATE_ADMITTED && !expired(c, bpf_ktime_get_coarse_ns())))
		return SK_PASS;
	sk = bpf_map_lookup_elem(&portal, &one);
	if (!sk)
		return SK_PASS;
	bpf_sk_assign(ctx, sk, 0);
	bpf_sk_release(sk);
	return SK_PASS;
}
