/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* IPv6 packets of clients on PPPoE (RFC 5072). Between taking the header off and putting it on they
 * are like others, but for what is of the session's own link:
 *
 *	client ──▶ from or to link-local addresses ──▶ heard6, with the header ──▶ daemon
 *	client ◀── answers, advertisements ◀── daemon's own frames of the session
 */
#pragma once

#include "ip6.h"
#include "pppoe.h"

/* strip_pppoe6 is strip_pppoe for IPv6. */
static __always_inline enum pppoe_verdict strip_pppoe6(struct __sk_buff *skb, __u16 *session)
{
	__u32 most = ETH_HLEN + PPPOE_LEN + IP6_LEN, length;
	void *data, *end;
	struct pppoe_header *h;
	struct ipv6hdr *ip;

	if (skb->len < most || bpf_skb_pull_data(skb, most))
		return BAD_PPPOE;
	data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
	h = data + ETH_HLEN, ip = (void *)(h + 1);
	if ((void *)(ip + 1) > end || h->kind != PPPOE_DATA || h->protocol != PPP_IPV6)
		return BAD_PPPOE;
	length = bpf_ntohs(h->length);
	if (length < sizeof(h->protocol) + IP6_LEN + bpf_ntohs(ip->payload_len) ||
		ETH_HLEN + PPPOE_LEN - sizeof(h->protocol) + length > skb->len)
		return BAD_PPPOE;
	*session = h->session;
	return take_pppoe_off(skb, bpf_htons(ETH_P_IPV6));
}

/* clamp6 is clamp for IPv6. */
static __always_inline void clamp6(struct __sk_buff *skb, __u32 mtu)
{
	__u32 headers = IP6_LEN + sizeof(struct tcphdr);

	clamp_tcp(skb, ETH_HLEN + IP6_LEN, mtu > headers ? mtu - headers : 0);
}

/* opens6 reports whether a packet is a TCP segment with SYN right behind the header. */
static __always_inline int opens6(const struct ipv6hdr *ip, const void *end)
{
	const struct tcphdr *tcp = (const void *)(ip + 1);

	return ip->nexthdr == IPPROTO_TCP && (const void *)(tcp + 1) <= end && tcp->syn;
}

/* clamp6_up is clamp6 for a packet from a client on PPPoE. */
__noinline int clamp6_up(struct __sk_buff *skb)
{
	struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HLEN;
	void *end = (void *)(long)skb->data_end;
	const struct client *c;

	if ((void *)(ip + 1) > end || !opens6(ip, end))
		return 0;
	c = client6(addr6_at(&ip->saddr));
	if (c && c->session)
		clamp6(skb, c->mtu);
	return 0;
}

/* on_link6 handles a packet that has no source, or a link-local one, of which each session may have any.
 * Nobody else is on the link of a session: the daemon answers what has an answer. */
__noinline int on_link6(struct __sk_buff *skb, __u32 session)
{
	struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HLEN;
	struct icmp6hdr *icmp = (void *)(ip + 1);
	void *end = (void *)(long)skb->data_end;
	struct ports p;
	int nd;

	if ((void *)(ip + 1) > end || !is_sound6(skb, ip) || skb->pkt_type == PACKET_OTHERHOST)
		return drop(skb, REASON_MALFORMED);
	p = ports6_of(ip, end);
	if (ip->nexthdr == IPPROTO_UDP && (p.dest == DHCP6_SERVER || p.dest == DHCP6_CLIENT))
		return dhcp6_in(skb, p, 0, session);
	if (ip->nexthdr != NEXT_ICMP6 || (void *)(icmp + 1) > end)
		return drop(skb, is_multicast6(&ip->daddr) ? REASON_LOCAL : REASON_NOT_LEASED);
	nd = icmp->type >= ICMP6_ROUTER_SOLICITATION && icmp->type <= ICMP6_REDIRECT;
	if (nd && ip->hop_limit != ND_HOPS)
		return drop(skb, REASON_MALFORMED);
	if (nd || (icmp->type == ICMP6_ECHO && is_link_local6(&ip->daddr)))
		return drop(skb, hear6(skb, SENDS_ND, 0, session) ? REASON_LOCAL : REASON_THROTTLED);
	return drop(skb, is_multicast6(&ip->daddr) ? REASON_LOCAL : REASON_NOT_LEASED);
}

/* session6_in handles a frame of a PPPoE session with an IPv6 packet. */
static __always_inline int session6_in(struct __sk_buff *skb)
{
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	struct ipv6hdr *ip;
	__u16 session = 0;
	int verdict;

	if (!s || !s->on)
		return drop(skb, REASON_IPV6);
	if (strip_pppoe6(skb, &session) != IS_DATA || !session || !pull6(skb))
		return drop(skb, REASON_MALFORMED);
	ip = (void *)(long)skb->data + ETH_HLEN;
	if ((void *)(ip + 1) > (void *)(long)skb->data_end)
		return drop(skb, REASON_MALFORMED);
	if (unlikely(is_link_local6(&ip->saddr) || is_unspecified6(&ip->saddr)))
		return on_link6(skb, session);
	clamp6_up(skb);
	verdict = ip6_in(skb, session);
	return verdict == PREAUTH6 ? drop(skb, REASON_BLOCKED) : verdict;
}

/* session_client6 is the client on PPPoE that an IPv6 packet to the LAN is for; NULL: it is for none.
 * bytes are the packet's, without Ethernet's padding. */
static __always_inline const struct client *session_client6(struct __sk_buff *skb, __u32 *bytes)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct ipv6hdr *ip = data + ETH_HLEN;
	const struct client *c;

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IPV6))
		return 0;
	*bytes = IP6_LEN + bpf_ntohs(ip->payload_len);
	c = client6(addr6_at(&ip->daddr));
	return c && c->session ? c : 0;
}

/* refuse_long6 is refuse_long for IPv6 (RFC 4443, 3.2). No error is sent about an error. */
__noinline int refuse_long6(struct __sk_buff *skb, __u32 mtu)
{
	struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HLEN;
	struct icmp6hdr *icmp = (void *)(ip + 1);
	void *end = (void *)(long)skb->data_end;
	struct addr6 client;

	if ((void *)(icmp + 1) > end || (ip->nexthdr == NEXT_ICMP6 && icmp->type < ICMP6_ECHO))
		return drop(skb, REASON_MALFORMED);
	client = addr6_at(&ip->daddr);
	if (error6(skb, &client, ICMP6_TOO_BIG << 8, mtu))
		return drop(skb, REASON_MALFORMED);
	skb->mark = TOO_LONG;
	return bpf_redirect(lan.ifindex, BPF_F_INGRESS);
}

/* to_session6 is to_pppoe_session for IPv6. */
__noinline int to_session6(struct __sk_buff *skb)
{
	__u32 bytes = 0;
	const struct client *c = session_client6(skb, &bytes);

	if (!c)
		return TC_ACT_OK;
	clamp6(skb, c->mtu);
	if (skb->gso_size)
		return bpf_redirect(cutter_ifindex, 0);
	return bytes > c->mtu ? refuse_long6(skb, c->mtu) : put_pppoe(skb, c, bytes, PPP_IPV6);
}

/* cut6_in is cut_in for IPv6. */
__noinline int cut6_in(struct __sk_buff *skb)
{
	__u32 bytes = 0;
	const struct client *c = session_client6(skb, &bytes);

	if (!c || skb->gso_size)
		return TC_ACT_SHOT;
	if (bytes > c->mtu)
		return refuse_long6(skb, c->mtu);
	if (put_pppoe(skb, c, bytes, PPP_IPV6) != TC_ACT_OK)
		return TC_ACT_SHOT;
	return bpf_redirect(lan.ifindex, 0);
}
