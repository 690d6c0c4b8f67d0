/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The policy for clients before login by IPv6, and the answers to rejected packets. */
#pragma once

#include "forward6.h"
#include "preauth.h"

#define RST6_LEN (ETH_HLEN + IP6_LEN + sizeof(struct tcphdr))
#define QUOTED6 (IP6_LEN + 8) /* of the packet an ICMP error is about: with ports or identifier */
#define ERROR6_LEN (ETH_HLEN + IP6_LEN + sizeof(struct icmp6hdr) + QUOTED6)

/* pseudo6 is the sum of the pseudo-header (RFC 8200, 8.1). */
static __always_inline __u64 pseudo6(const struct ipv6hdr *ip, __u8 protocol, __u32 bytes)
{
	const __u32 *word = (const void *)&ip->saddr;

	return (__u64)word[0] + word[1] + word[2] + word[3] + word[4] + word[5] + word[6] + word[7] +
	       bpf_htonl(protocol) + bpf_htonl(bytes);
}

/* spend_work6 is spend_work for the client of an entry. */
static __always_inline int spend_work6(const struct client *c, enum work kind)
{
	struct device key = {};

	__builtin_memcpy(key.mac, c->mac, ETH_ALEN);
	return spend_work_of(c->slot_offset, &key, kind);
}

/* head6 writes the header of an answer to the sender of a packet. */
static __always_inline void head6(struct ipv6hdr *ip, struct addr6 saddr, struct addr6 daddr,
	__u8 protocol, __u16 bytes)
{
	*(__be32 *)ip = bpf_htonl(6u << 28);
	ip->payload_len = bpf_htons(bytes);
	ip->nexthdr = protocol;
	ip->hop_limit = 64;
	__builtin_memcpy(&ip->saddr, &saddr, sizeof(saddr));
	__builtin_memcpy(&ip->daddr, &daddr, sizeof(daddr));
}

/* reset6 is reset for IPv6. */
__noinline int reset6(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct ipv6hdr *ip = data + ETH_HLEN;
	struct tcphdr *tcp = (void *)(ip + 1);
	__u32 segment, seq = 0, ack_seq = 0;
	struct addr6 saddr, daddr;
	__be16 source, dest;
	__u8 mac[ETH_ALEN];
	int acked, partial;
	__u64 sum;

	if ((void *)(tcp + 1) > end || tcp->rst)
		return drop(skb, REASON_BLOCKED);
	segment = bpf_ntohs(ip->payload_len);
	saddr = addr6_at(&ip->saddr), daddr = addr6_at(&ip->daddr);
	source = tcp->source, dest = tcp->dest;
	partial = tcp->check == fold(pseudo6(ip, IPPROTO_TCP, segment));
	acked = tcp->ack;
	if (acked)
		seq = tcp->ack_seq;
	else
		ack_seq = bpf_htonl(bpf_ntohl(tcp->seq) + segment - tcp->doff * 4 + tcp->syn + tcp->fin);
	__builtin_memcpy(mac, eth->h_source, ETH_ALEN);

	if (bpf_skb_change_tail(skb, RST6_LEN, 0))
		return drop(skb, REASON_BLOCKED);
	data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
	if (data + RST6_LEN > end)
		return drop(skb, REASON_BLOCKED);
	eth = data, ip = data + ETH_HLEN, tcp = (void *)(ip + 1);

	__builtin_memcpy(eth->h_dest, mac, ETH_ALEN);
	copy_lan_mac(eth->h_source);
	head6(ip, daddr, saddr, IPPROTO_TCP, sizeof(*tcp));
	*tcp = (struct tcphdr){
		.source = dest, .dest = source, .seq = seq, .ack_seq = ack_seq,
		.doff = 5, .rst = 1, .ack = !acked,
	};
	sum = pseudo6(ip, IPPROTO_TCP, sizeof(*tcp));
	if (partial)
		tcp->check = fold(sum);
	else
		tcp->check = ~fold(sum + (__u32)bpf_csum_diff(0, 0, (__be32 *)tcp, sizeof(*tcp), 0));
	return send_answer(skb);
}

/* error6 turns a packet into the ICMPv6 error that answers it, for the way back. source is the error's,
 * type_code its type and code, rest the word behind the checksum. It returns -1 on errors. */
__noinline int error6(struct __sk_buff *skb, const struct addr6 *source, __u32 type_code, __u32 rest)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct ipv6hdr *ip = data + ETH_HLEN;
	struct icmp6hdr *icmp = (void *)(ip + 1);
	__u8 quoted[QUOTED6], macs[2 * ETH_ALEN];
	struct addr6 to;

	if (!source || (void *)ip + QUOTED6 > end)
		return -1;
	to = addr6_at(&ip->saddr);
	__builtin_memcpy(quoted, ip, QUOTED6);
	__builtin_memcpy(macs, eth->h_source, ETH_ALEN);
	__builtin_memcpy(macs + ETH_ALEN, eth->h_dest, ETH_ALEN);
	if (macs[ETH_ALEN] & 1)
		copy_lan_mac(macs + ETH_ALEN);

	if (bpf_skb_change_tail(skb, ERROR6_LEN, 0))
		return -1;
	data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
	if (data + ERROR6_LEN > end)
		return -1;
	eth = data, ip = data + ETH_HLEN, icmp = (void *)(ip + 1);

	__builtin_memcpy(eth, macs, sizeof(macs));
	head6(ip, *source, to, NEXT_ICMP6, sizeof(*icmp) + QUOTED6);
	*icmp = (struct icmp6hdr){ .type = type_code >> 8, .code = type_code, .rest = bpf_htonl(rest) };
	__builtin_memcpy(icmp + 1, quoted, QUOTED6);
	icmp->checksum = ~fold(pseudo6(ip, NEXT_ICMP6, sizeof(*icmp) + QUOTED6) +
		(__u32)bpf_csum_diff(0, 0, (__be32 *)icmp, sizeof(*icmp) + QUOTED6, 0));
	return 0;
}

/* prohibit6 turns a packet into the ICMPv6 error "administratively prohibited" that answers it,
 * from the gateway's address on the LAN, and sends it back. */
static __always_inline int prohibit6(struct __sk_buff *skb)
{
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);

	if (!s || error6(skb, &s->gateway, ICMP6_UNREACHABLE << 8 | ICMP6_PROHIBITED, 0))
		return drop(skb, REASON_BLOCKED);
	return send_answer(skb);
}

/* Verdicts about a client's IPv6 packet that lan_in carries out: the verifier adds up the stacks of
 * functions that call each other. */
#define PREAUTH6 0x60    /* the policy before login decides */
#define RESET6 0x61      /* a reset answers it */
#define PROHIBIT6 0x62   /* an ICMPv6 error answers it */

/* reject6 answers a packet that may not pass, as reject does. Packets with extension headers have no
 * answer. */
static __always_inline int reject6(struct __sk_buff *skb, const struct ipv6hdr *ip,
	const struct client *c, const void *end)
{
	const struct icmp6hdr *icmp = (const void *)(ip + 1);

	if (is_multicast6(&ip->daddr))
		return drop(skb, REASON_BLOCKED);
	if (ip->nexthdr == NEXT_ICMP6 && ((const void *)(icmp + 1) > end || icmp->type != ICMP6_ECHO))
		return drop(skb, REASON_BLOCKED);
	if (ip->nexthdr != IPPROTO_TCP && ip->nexthdr != IPPROTO_UDP && ip->nexthdr != NEXT_ICMP6)
		return drop(skb, REASON_BLOCKED);
	if (!spend_work6(c, WORK_REFUSAL))
		return drop(skb, REASON_THROTTLED);
	return ip->nexthdr == IPPROTO_TCP ? RESET6 : PROHIBIT6;
}

/* readdress_tcp6 changes an address of a TCP segment, at the place of saddr or daddr in its header. */
static __always_inline int readdress_tcp6(struct __sk_buff *skb, __u32 place, struct addr6 from,
	struct addr6 to)
{
	__s64 diff = bpf_csum_diff((__be32 *)&from, sizeof(from), (__be32 *)&to, sizeof(to), 0);

	return bpf_l4_csum_replace(skb, ETH_HLEN + IP6_LEN + offsetof(struct tcphdr, check), 0, diff,
		BPF_F_PSEUDO_HDR) || bpf_skb_store_bytes(skb, ETH_HLEN + place, &to, sizeof(to), 0);
}

/* to_portal6 is to_portal for IPv6. */
static __always_inline int to_portal6(struct __sk_buff *skb, const struct ipv6hdr *ip,
	const struct client *c, const struct settings6 *s, const void *end)
{
	struct bpf_sock_tuple tuple = { .ipv6 = { .dport = portal_ports[0] } };
	const struct tcphdr *tcp = (const void *)(ip + 1);
	struct addr6 wanted = addr6_at(&ip->daddr), *was;
	struct caller6 caller = { .addr = addr6_at(&ip->saddr) };
	struct bpf_sock *sk;
	__u8 once = 1;
	int opens;

	if ((const void *)(tcp + 1) > end)
		return drop(skb, REASON_BLOCKED);
	caller.port = tcp->source;
	opens = tcp->syn && !tcp->ack;
	__builtin_memcpy(tuple.ipv6.daddr, &s->gateway, sizeof(tuple.ipv6.daddr));
	sk = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return reject6(skb, ip, c, end);
	bpf_sk_release(sk);
	was = bpf_map_lookup_elem(&called6, &caller);
	if (!was || !same6(*was, wanted)) {
		if (!opens)
			return reject6(skb, ip, c, end);
		if (!spend_work6(c, WORK_CAPTURE))
			return drop(skb, REASON_THROTTLED);
		if (bpf_map_update_elem(&called6, &caller, &wanted, BPF_ANY))
			return drop(skb, REASON_BLOCKED);
	} else if (!spend_work6(c, WORK_SEGMENT)) {
		return drop(skb, REASON_THROTTLED);
	}
	/* With one hop left the stack delivers it here or drops it. */
	if (bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, hop_limit), &once, 1, 0) ||
		readdress_tcp6(skb, offsetof(struct ipv6hdr, daddr), wanted, s->gateway))
		return drop(skb, REASON_BLOCKED);
	return pass(skb, REASON_PORTAL);
}

/* from_portal6 gives the portal's answers the source address that the client requested. */
static __always_inline void from_portal6(struct __sk_buff *skb, const struct ipv6hdr *ip,
	const struct settings6 *s, const void *end)
{
	const struct tcphdr *tcp = (const void *)(ip + 1);
	struct caller6 caller = { .addr = addr6_at(&ip->daddr) };
	const struct addr6 *wanted;

	if (ip->nexthdr != IPPROTO_TCP || (const void *)(tcp + 1) > end || tcp->source != HTTP)
		return;
	caller.port = tcp->dest;
	wanted = bpf_map_lookup_elem(&called6, &caller);
	if (wanted)
		readdress_tcp6(skb, offsetof(struct ipv6hdr, saddr), s->gateway, *wanted);
}

/* is_service6 reports whether the gateway serves these ports before login. */
static __always_inline int is_service6(const struct ipv6hdr *ip, const void *end, struct ports p)
{
	const struct icmp6hdr *icmp = (const void *)(ip + 1);

	if (ip->nexthdr == NEXT_ICMP6)
		return (const void *)(icmp + 1) <= end && icmp->type == ICMP6_ECHO;
	if (p.dest == DNS)
		return 1;
	if (ip->nexthdr != IPPROTO_TCP || !p.dest)
		return 0;
	for (int i = 0; i < 4; i++)
		if (portal_ports[i] == p.dest)
			return 1;
	return 0;
}

/* may_flow6 is may_flow for IPv6. A connection is known by the client's slot and a sum of the
 * addresses: of two with the same sum, the second is not counted. */
static __always_inline int may_flow6(const struct ipv6hdr *ip, const struct client *c, struct ports p,
	enum work first, enum work further)
{
	const __u32 *to = (const void *)&ip->daddr;
	struct flow f = {
		.client = c->slot_offset, .dest = to[0] + to[1] * 3 + to[2] * 5 + to[3] * 7,
		.id = p.source | (__u32)p.dest << 16, .protocol = 6 << 8 | ip->nexthdr,
	};
	__u8 seen = 1;

	if (bpf_map_lookup_elem(&flows, &f))
		return further == WORKS || spend_work6(c, further);
	if (!spend_work6(c, first))
		return 0;
	if (first == WORK_GARDEN && ip->nexthdr != IPPROTO_UDP && ip->nexthdr != NEXT_ICMP6 &&
		!spend_work6(c, WORK_LASTING))
		return 0;
	bpf_map_update_elem(&flows, &f, &seen, BPF_ANY);
	return 1;
}

/* preauth6 is the policy for a known client that is not admitted. A packet with an extension header
 * behind which a port could be is dropped. */
__noinline int preauth6(struct __sk_buff *skb)
{
	struct ethhdr *eth = (void *)(long)skb->data;
	struct ipv6hdr *ip = (void *)(eth + 1);
	void *end = (void *)(long)skb->data_end;
	__u32 zero = 0;
	const struct settings6 *s = bpf_map_lookup_elem(&gateway_settings6, &zero);
	const struct client *c;
	struct bpf_fib_lookup fib;
	struct addr6 src;
	struct ports p;
	int here;

	if (!s || (void *)(ip + 1) > end)
		return drop(skb, REASON_MALFORMED);
	src = addr6_at(&ip->saddr);
	c = client6(src);
	if (!c || (ip->nexthdr != IPPROTO_TCP && ip->nexthdr != IPPROTO_UDP && ip->nexthdr != NEXT_ICMP6))
		return drop(skb, REASON_BLOCKED);
	if (is_multicast6(&ip->daddr) || is_beyond_link6(ip, s))
		return drop(skb, REASON_BLOCKED);
	p = ports6_of(ip, end);
	here = route6(skb, ip, &fib) == BPF_FIB_LKUP_RET_NOT_FWDED;
	if (here && (is_link_local6(&ip->daddr) || is_of_lan6(s, addr6_at(&ip->daddr)))) {
		if (!is_service6(ip, end, p))
			return reject6(skb, ip, c, end);
		if (ip->nexthdr == IPPROTO_TCP && p.dest == HTTP)
			return to_portal6(skb, ip, c, s, end);
		if (ip->nexthdr == IPPROTO_TCP ? may_flow6(ip, c, p, WORK_CONNECTION, WORK_SEGMENT)
			: spend_work6(c, WORK_DATAGRAM))
			return pass(skb, REASON_LOCAL);
		return drop(skb, REASON_THROTTLED);
	}
	if (!here && (is_open_garden6(&ip->daddr, p.dest, ip->nexthdr) ||
		may_visit6(eth->h_source, &ip->daddr, p.dest, ip->nexthdr)))
		return may_flow6(ip, c, p, WORK_GARDEN, WORKS) ? pass(skb, REASON_GARDEN)
			: drop(skb, REASON_THROTTLED);
	if (ip->nexthdr == IPPROTO_TCP && p.dest == HTTP)
		return to_portal6(skb, ip, c, s, end);
	return reject6(skb, ip, c, end);
}
