/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The policy for clients before login, and the answers to rejected packets. */
#pragma once

#include "icmp.h"
#include "local.h"
#include "visit.h"

#define RST_LEN (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr))

static __always_inline __u64 pseudo(__be32 a, __be32 b, __u8 protocol, __u16 bytes)
{
	return (__u64)a + b + bpf_htonl((__u32)protocol << 16 | bytes);
}

/* is_garden reports whether the address is in the walled garden now: whether any prefix that
 * contains it is open. A look-up finds the longest prefix; where that has ended, shorter ones
 * follow. */
__noinline int is_garden(__be32 addr)
{
	struct prefix key = { .addr = addr };

	for (int bits = 32; bits >= 0; bits--) {
		const __u64 *until;

		key.bits = bits;
		until = bpf_map_lookup_elem(&garden, &key);
		if (!until)
			return 0;
		if (!*until || bpf_ktime_get_coarse_ns() < *until)
			return 1;
	}
	return 0;
}

/* garden_port_state reports whether a port of an address is open by itself now, 1, or shut, -1;
 * 0: neither. */
__noinline int garden_port_state(__be32 addr, __be16 port, __u8 protocol)
{
	struct garden_port key = { .addr = addr, .port = port, .protocol = protocol };
	__u64 now = bpf_ktime_get_coarse_ns();

	for (int bits = 64; bits >= 32; bits--) {
		const __u64 *until;

		key.bits = bits;
		until = bpf_map_lookup_elem(&garden_ports, &key);
		if (!until)
			return 0;
		if (!(*until & ~PORT_SHUT) || now < (*until & ~PORT_SHUT))
			return *until & PORT_SHUT ? -1 : 1;
	}
	return 0;
}

/* is_open_garden reports whether a port of an address is in the walled garden now. */
static __always_inline int is_open_garden(__be32 addr, __be16 port, __u8 protocol)
{
	int state = garden_port_state(addr, port, protocol);

	return state ? state > 0 : is_garden(addr);
}

/* send_answer sends the packet, which is now the answer, back to the LAN. */
static __always_inline int send_answer(struct __sk_buff *skb)
{
	set_judged(skb);
	count(skb, REASON_REJECTED);
	return bpf_redirect(lan.ifindex, 0);
}

/* reset turns a TCP segment into the reset that answers it (RFC 9293, 3.10.7.1)
 * and sends it back. */
static __always_inline int reset(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	struct tcphdr *tcp = (void *)(ip + 1);
	__u32 segment, seq = 0, ack_seq = 0;
	__be32 saddr, daddr;
	__be16 source, dest;
	__u8 mac[ETH_ALEN];
	int acked, partial;
	__u64 sum;

	if ((void *)(tcp + 1) > end || ip->ihl != 5 || is_fragment(ip) || tcp->rst)
		return drop(skb, REASON_BLOCKED);
	if (!spend_work(ip->saddr, WORK_REFUSAL))
		return drop(skb, REASON_THROTTLED);
	segment = bpf_ntohs(ip->tot_len) - sizeof(*ip);
	saddr = ip->saddr, daddr = ip->daddr, source = tcp->source, dest = tcp->dest;
	/* A neighbour on a virtual link leaves the checksum to hardware: the field then
	 * contains the sum of the pseudo-header, and so must the answer's. */
	partial = tcp->check == fold(pseudo(saddr, daddr, IPPROTO_TCP, segment));
	acked = tcp->ack;
	if (acked)
		seq = tcp->ack_seq;
	else
		ack_seq = bpf_htonl(bpf_ntohl(tcp->seq) + segment - tcp->doff * 4 + tcp->syn + tcp->fin);
	__builtin_memcpy(mac, eth->h_source, ETH_ALEN);

	if (bpf_skb_change_tail(skb, RST_LEN, 0))
		return drop(skb, REASON_BLOCKED);
	data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
	if (data + RST_LEN > end)
		return drop(skb, REASON_BLOCKED);
	eth = data, ip = data + ETH_HLEN, tcp = (void *)(ip + 1);

	__builtin_memcpy(eth->h_dest, mac, ETH_ALEN);
	copy_lan_mac(eth->h_source);
	*ip = (struct iphdr){
		.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP,
		.frag_off = bpf_htons(0x4000), .tot_len = bpf_htons(sizeof(*ip) + sizeof(*tcp)),
		.saddr = daddr, .daddr = saddr,
	};
	ip->check = ~fold(bpf_csum_diff(0, 0, (__be32 *)ip, sizeof(*ip), 0));
	*tcp = (struct tcphdr){
		.source = dest, .dest = source, .seq = seq, .ack_seq = ack_seq,
		.doff = 5, .rst = 1, .ack = !acked,
	};
	sum = pseudo(daddr, saddr, IPPROTO_TCP, sizeof(*tcp));
	if (partial)
		tcp->check = fold(sum);
	else
		tcp->check = ~fold(sum + (__u32)bpf_csum_diff(0, 0, (__be32 *)tcp, sizeof(*tcp), 0));
	return send_answer(skb);
}

/* prohibit turns a packet into the ICMP error that answers it, "communication
 * administratively prohibited" (RFC 1812, 5.2.7.1), and sends it back. */
static __always_inline int prohibit(struct __sk_buff *skb, const struct iphdr *ip)
{
	if (!spend_work(ip->saddr, WORK_REFUSAL))
		return drop(skb, REASON_THROTTLED);
	return unreachable(skb, lan.gateway, ICMP_PKT_FILTERED, 0) ? drop(skb, REASON_BLOCKED)
		: send_answer(skb);
}

/* reject answers a packet that may not pass. Of ICMP it answers echo requests only, so
 * that no ICMP error is sent about an ICMP error. */
static __always_inline int reject(struct __sk_buff *skb, const struct iphdr *ip, const void *end)
{
	const struct icmphdr *icmp = (const void *)(ip + 1);

	if (ip->protocol == IPPROTO_TCP)
		return reset(skb);
	if (is_multicast(ip->daddr) || is_fragment(ip))
		return drop(skb, REASON_BLOCKED);
	if (ip->protocol == IPPROTO_ICMP && ((const void *)(icmp + 1) > end || icmp->type != ICMP_ECHO))
		return drop(skb, REASON_BLOCKED);
	return prohibit(skb, ip);
}

#define IP_SADDR (ETH_HLEN + offsetof(struct iphdr, saddr))
#define IP_DADDR (ETH_HLEN + offsetof(struct iphdr, daddr))
#define IP_CHECK (ETH_HLEN + offsetof(struct iphdr, check))

/* readdress_tcp changes an address of a TCP segment, at IP_SADDR or IP_DADDR. */
static __always_inline int readdress_tcp(struct __sk_buff *skb, __u32 at, __u32 header, __be32 from,
	__be32 to)
{
	return bpf_l4_csum_replace(skb, ETH_HLEN + header + offsetof(struct tcphdr, check), from,
		to, BPF_F_PSEUDO_HDR | sizeof(to)) ||
	       bpf_l3_csum_replace(skb, IP_CHECK, from, to, sizeof(to)) || bpf_skb_store_bytes(skb,
		at, &to, sizeof(to), 0);
}

/* set_ttl_1 sets a packet's TTL to 1: the stack delivers it locally or drops it. */
static __always_inline int set_ttl_1(struct __sk_buff *skb, const struct iphdr *ip)
{
	struct {
		__u8 ttl, protocol;
	} was = { ip->ttl, ip->protocol }, now = { 1, ip->protocol };

	return bpf_l3_csum_replace(skb, IP_CHECK, *(__be16 *)&was, *(__be16 *)&now, sizeof(__be16)) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, ttl), &now.ttl,
		sizeof(now.ttl), 0);
}

/* to_portal redirects HTTP for any address to the gateway, where portal_lookup hands it
 * to the portal; without a portal it is reset. The machine's rules can redirect it to
 * another local port, but not out. A mark and a routing rule could deliver the packet unchanged,
 * but a routing rule slows down all routed packets. */
static __always_inline int to_portal(struct __sk_buff *skb, const struct iphdr *ip, const void *end)
{
	struct bpf_sock_tuple tuple = { .ipv4 = { .daddr = lan.gateway, .dport = portal_ports[0] } };
	const struct tcphdr *tcp = (const void *)ip + ip->ihl * 4;
	__u32 header = ip->ihl * 4;
	__be32 wanted = ip->daddr, *was;
	struct bpf_sock *sk;

	if (is_fragment(ip) || (const void *)(tcp + 1) > end)
		return drop(skb, REASON_BLOCKED);
	struct caller c = { .addr = ip->saddr, .port = tcp->source };
	int opens = tcp->syn && !tcp->ack;

	sk = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return reset(skb);
	bpf_sk_release(sk);
	was = bpf_map_lookup_elem(&called, &c);
	if (!was || *was != wanted) {
		/* A new connection may reuse a port; a segment of an unknown one is reset. */
		if (!opens)
			return reset(skb);
		if (!spend_work(c.addr, WORK_CAPTURE))
			return drop(skb, REASON_THROTTLED);
		if (bpf_map_update_elem(&called, &c, &wanted, BPF_ANY))
			return drop(skb, REASON_BLOCKED);
	} else if (!spend_work(c.addr, WORK_SEGMENT)) {
		return drop(skb, REASON_THROTTLED);
	}
	if (set_ttl_1(skb, ip) || readdress_tcp(skb, IP_DADDR, header, wanted, lan.gateway))
		return drop(skb, REASON_BLOCKED);
	return pass(skb, REASON_PORTAL);
}

/* from_portal gives the portal's answers the source address that the client requested. */
static __always_inline void from_portal(struct __sk_buff *skb, const struct iphdr *ip,
	const void *end)
{
	const struct tcphdr *tcp = (const void *)ip + ip->ihl * 4;
	const __be32 *wanted;

	if (ip->protocol != IPPROTO_TCP || is_fragment(ip) || (const void *)(tcp + 1) > end ||
		tcp->source != HTTP)
		return;
	struct caller c = { .addr = ip->daddr, .port = tcp->dest };

	wanted = bpf_map_lookup_elem(&called, &c);
	if (wanted)
		readdress_tcp(skb, IP_SADDR, ip->ihl * 4, lan.gateway, *wanted);
}

/* is_service reports whether the gateway serves these ports before login. */
static __always_inline int is_service(const struct iphdr *ip, struct ports p)
{
	if (ip->protocol == IPPROTO_ICMP)
		return 1;
	if (p.dest == DNS)
		return 1;
	if (ip->protocol != IPPROTO_TCP || !p.dest)
		return 0;
	for (int i = 0; i < 4; i++)
		if (portal_ports[i] == p.dest)
			return 1;
	return 0;
}

/* is_here reports whether the kernel would deliver a packet to this machine, which has more
 * addresses than lan.gateway, or has no route for it. */
static __always_inline int is_here(struct __sk_buff *skb, const struct iphdr *ip)
{
	struct bpf_fib_lookup fib;

	return route(skb, ip, &fib) == BPF_FIB_LKUP_RET_NOT_FWDED;
}

/* to_service handles a packet for a service of the gateway. */
static __always_inline int to_service(struct __sk_buff *skb, const struct iphdr *ip, struct ports p,
	const void *end)
{
	/* The portal's own port may be 80 too. */
	if (ip->protocol == IPPROTO_TCP && p.dest == HTTP)
		return to_portal(skb, ip, end);
	if (ip->protocol == IPPROTO_TCP ? may_flow(skb, ip, WORK_CONNECTION, WORK_SEGMENT)
		: spend_work(ip->saddr, WORK_DATAGRAM))
		return pass(skb, REASON_LOCAL);
	return drop(skb, REASON_THROTTLED);
}

/* preauth is the policy for a known client that is not admitted. */
static __always_inline int preauth(struct __sk_buff *skb, const struct iphdr *ip, const void *end)
{
	const struct ethhdr *eth = (void *)(long)skb->data;
	struct ports p = ports_of(ip, end);

	if (ip->daddr == lan.gateway) {
		if (!is_service(ip, p))
			return reject(skb, ip, end);
		return to_service(skb, ip, p, end);
	}
	if (ip->protocol == IPPROTO_UDP && p.dest == DHCP_SERVER)
		return drop(skb, REASON_BLOCKED);
	if ((is_open_garden(ip->daddr, p.dest, ip->protocol) || ((const void *)(eth + 1) <= end &&
		may_visit(eth->h_source, ip->daddr, p.dest, ip->protocol))) && !is_here(skb, ip))
		return may_flow(skb, ip, WORK_GARDEN, WORKS) ? pass(skb, REASON_GARDEN)
			: drop(skb, REASON_THROTTLED);
	if (ip->protocol == IPPROTO_TCP && p.dest == HTTP)
		return to_portal(skb, ip, end);
	return reject(skb, ip, end);
}
