/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The same by IPv6, where nothing translates addresses. A segment behind an extension header is
 * none of these programs': the data path decides about it, and a connection that begins so has no
 * user. */
#pragma once

#define IP6_LEN sizeof(struct ipv6hdr)

static __always_inline int same6(struct addr6 a, struct addr6 b)
{
	return a.word[0] == b.word[0] && a.word[1] == b.word[1] && a.word[2] == b.word[2] &&
	       a.word[3] == b.word[3];
}

/* gateway6 is the address at which the gateway takes queries, :: where clients have no IPv6. */
static __always_inline struct addr6 gateway6(void)
{
	return (struct addr6){ { gateway_addr6.word[0], gateway_addr6.word[1], gateway_addr6.word[2],
		gateway_addr6.word[3] } };
}

static __always_inline int is_clients6(struct addr6 addr)
{
	struct network6 key = { .bits = 128, .addr = addr };

	return !!bpf_map_lookup_elem(&ident_networks6, &key);
}

struct segment6 {
	struct addr6 saddr, daddr;
	__be16 source, dest;
	struct flags is;
};

static __always_inline struct addr6 addr6_of(const struct in6_addr *a)
{
	return (struct addr6){ { a->s6_addr32[0], a->s6_addr32[1], a->s6_addr32[2], a->s6_addr32[3] } };
}

/* read_segment6 reads a segment's headers, and fails for whatever is no TCP segment with its header
 * right behind IPv6's. */
static __always_inline int read_segment6(struct __sk_buff *skb, struct segment6 *s)
{
	const __u32 need = ETH_HLEN + IP6_LEN + sizeof(struct tcphdr);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv6hdr *ip;
	struct tcphdr *tcp;

	if (data + need > end) {
		if (skb->len < need || bpf_skb_pull_data(skb, need))
			return -1;
		data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
		if (data + need > end)
			return -1;
	}
	ip = data + ETH_HLEN, tcp = (void *)(ip + 1);
	if (ip->version != 6 || ip->nexthdr != IPPROTO_TCP)
		return -1;
	*s = (struct segment6){
		.saddr = addr6_of(&ip->saddr), .daddr = addr6_of(&ip->daddr), .source = tcp->source,
			.dest = tcp->dest, .is = flags_of(tcp),
	};
	return 0;
}

/* readdress6 changes an address of a segment, at the place of saddr or daddr in its header. */
static __always_inline int readdress6(struct __sk_buff *skb, __u32 place, struct addr6 from,
	struct addr6 to)
{
	__s64 diff = bpf_csum_diff((__be32 *)&from, sizeof(from), (__be32 *)&to, sizeof(to), 0);

	return bpf_l4_csum_replace(skb, ETH_HLEN + IP6_LEN + offsetof(struct tcphdr, check), 0, diff,
		BPF_F_PSEUDO_HDR) || bpf_skb_store_bytes(skb, ETH_HLEN + place, &to, sizeof(to), 0);
}

/* query6 hands a query for a client's address to the gateway. */
static __always_inline int query6(struct __sk_buff *skb, const struct segment6 *s)
{
	struct asker6 a = { .addr = s->saddr, .port = s->source };
	struct addr6 client = s->daddr, *asked;

	if (s->is.syn && !s->is.ack) {
		if (bpf_map_update_elem(&ident_askers6, &a, &client, BPF_ANY))
			return TC_ACT_SHOT;
	} else {
		asked = bpf_map_lookup_elem(&ident_askers6, &a);
		if (!asked || !same6(*asked, client))
			return TC_ACT_SHOT;
	}
	return readdress6(skb, offsetof(struct ipv6hdr, daddr), client, gateway6()) ? TC_ACT_SHOT : TC_ACT_OK;
}

static __always_inline int in6(struct __sk_buff *skb)
{
	struct segment6 s;

	if (read_segment6(skb, &s))
		return TC_ACT_UNSPEC;
	/* The data path drops a client's address that comes from the WAN. */
	if (s.dest == IDENT && is_clients6(s.daddr) && !same6(s.daddr, gateway6()) && !is_clients6(s.saddr))
		return query6(skb, &s);
	if (!(s.is.syn | s.is.fin | s.is.rst))
		return TC_ACT_UNSPEC;
	struct conn6 c = { .near = s.daddr, .far = s.saddr, .near_port = s.dest, .far_port = s.source };

	return follow_in(&ident_conns6, &c, s.is);
}

static __always_inline int out6(struct __sk_buff *skb)
{
	struct segment6 s;

	if (read_segment6(skb, &s))
		return TC_ACT_UNSPEC;
	if (s.source == IDENT && same6(s.saddr, gateway6())) {
		struct asker6 a = { .addr = s.daddr, .port = s.dest };
		struct addr6 *client = bpf_map_lookup_elem(&ident_askers6, &a);

		if (client && readdress6(skb, offsetof(struct ipv6hdr, saddr), s.saddr, *client))
			return TC_ACT_SHOT;
		return TC_ACT_UNSPEC;
	}
	if (!(s.is.syn | s.is.fin | s.is.rst))
		return TC_ACT_UNSPEC;
	struct conn6 c = { .near = s.saddr, .far = s.daddr, .near_port = s.source, .far_port = s.dest };

	return follow_out(&ident_conns6, &c, s.is);
}
