/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* IPv6 of personas: a second table, and questions for addresses are neighbour
 * solicitations (RFC 4861, 4.3). What is of no client passes as the host's own. */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* user space knows how many */
	__type(key, struct in6_addr);
	__type(value, struct persona);
} personas6 SEC(".maps");

/* The LAN is a /64, or a network of which each session has a /64: its prefix, 0 when clients have no IPv6, with its
 * mask, and the last half of the host's own address in it. */
volatile const __u64 lan6_prefix;
volatile const __u64 lan6_mask;
volatile const __u64 host6_last;

#define ND_SOLICITATION 135
#define ND_ADVERTISEMENT 136
#define ND_SOLICITED bpf_htonl(1u << 30)
#define ND_OVERRIDE bpf_htonl(1u << 29)
#define ND_TARGET_MAC 2
#define ND_HOP_LIMIT 255

/* A neighbour solicitation, and an advertisement with the target's hardware address. */
struct neighbour {
	struct ipv6hdr ip;
	__u8 type, code;
	__sum16 checksum;
	__be32 flags;
	struct in6_addr target;
	__u8 option, option_units, mac[ETH_ALEN];
} __attribute__((packed));

#define ND_BYTES (sizeof(struct neighbour) - sizeof(struct ipv6hdr))
#define ND_WITHOUT_OPTION (sizeof(struct neighbour) - 8)

/* vacant6 says whether an address is one a client could have. */
static __always_inline int vacant6(const struct in6_addr *addr)
{
	__u64 half[2];

	__builtin_memcpy(half, addr, sizeof(half));
	return lan6_prefix && (half[0] & lan6_mask) == lan6_prefix && half[1] != host6_last;
}

static __always_inline int ip6_out(struct __sk_buff *skb, const void *data, const void *end)
{
	const struct ipv6hdr *ip = data + ETH_HLEN;
	struct in6_addr source;
	struct persona *p;

	if ((const void *)(ip + 1) > end)
		return refuse(REFUSED_MALFORMED);
	source = ip->saddr;
	p = bpf_map_lookup_elem(&personas6, &source);
	if (!p)
		return vacant6(&source) ? refuse(REFUSED_UNLEASED_SOURCE) : TC_ACT_OK;
	__sync_fetch_and_add(&p->tx_packets, wire_packets(skb));
	__sync_fetch_and_add(&p->tx_bytes, skb->len - ETH_HLEN);
	if (p->session)
		return onto_line(skb, p, sizeof(*ip) + bpf_ntohs(ip->payload_len), PPP_IPV6);
	bpf_skb_store_bytes(skb, ETH_ALEN, p->mac, ETH_ALEN, 0);
	return TC_ACT_OK;
}

/* advertise makes a solicitation, of which n is the part without options, into the client's advertisement. Who checks
 * whether an address is free has none: the answer goes to all (RFC 4861, 7.2.4). */
static __always_inline int advertise(struct __sk_buff *skb, struct neighbour *n, struct persona *p)
{
	__u8 to[ETH_ALEN] = {0x33, 0x33, 0, 0, 0, 1};
	struct in6_addr asks = n->ip.saddr;
	__u32 sum;

	n->flags = ND_OVERRIDE;
	if (asks.s6_addr32[0] | asks.s6_addr32[1] | asks.s6_addr32[2] | asks.s6_addr32[3]) {
		n->flags |= ND_SOLICITED;
		if (bpf_skb_load_bytes(skb, ETH_ALEN, to, ETH_ALEN))
			return refuse(REFUSED_MALFORMED);
	} else {
		asks.s6_addr32[0] = bpf_htonl(0xff020000);
		asks.s6_addr32[3] = bpf_htonl(1);
	}
	n->ip.payload_len = bpf_htons(ND_BYTES);
	n->ip.daddr = asks;
	n->ip.saddr = n->target;
	n->type = ND_ADVERTISEMENT;
	n->option = ND_TARGET_MAC;
	n->option_units = 1;
	__builtin_memcpy(n->mac, p->mac, ETH_ALEN);
	n->checksum = 0;
	sum = bpf_csum_diff(0, 0, (void *)&n->ip.saddr, 2 * sizeof(struct in6_addr) + ND_BYTES,
			    bpf_htons(ND_BYTES) + bpf_htons(IPPROTO_ICMPV6));
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	n->checksum = ~sum;
	__sync_fetch_and_add(&p->arp_answered, 1);
	if (bpf_skb_change_tail(skb, ETH_HLEN + sizeof(*n), 0) || bpf_skb_store_bytes(skb, 0, to, ETH_ALEN, 0) ||
	    bpf_skb_store_bytes(skb, ETH_ALEN, n->mac, ETH_ALEN, 0) || bpf_skb_store_bytes(skb, ETH_HLEN, n, sizeof(*n), 0))
		return refuse(REFUSED_MALFORMED);
	return bpf_redirect(skb->ifindex, 0);
}

/* solicited answers a solicitation for a client's address. The kernel answers those for the host's own. */
static __always_inline int solicited(struct __sk_buff *skb, const void *data)
{
	const struct ethhdr *eth = data;
	struct neighbour n = {};
	struct in6_addr target;
	struct persona *p;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &n, ND_WITHOUT_OPTION) || n.ip.hop_limit != ND_HOP_LIMIT)
		return refuse(REFUSED_MALFORMED);
	target = n.target;
	p = bpf_map_lookup_elem(&personas6, &target);
	if (!p)
		return vacant6(&target) ? refuse(REFUSED_UNLEASED_QUESTION) : TC_ACT_OK;
	if (!(eth->h_dest[0] & 1) && !same_mac(eth->h_dest, p->mac)) {
		__sync_fetch_and_add(&p->misdirected, 1);
		return TC_ACT_SHOT;
	}
	return advertise(skb, &n, p);
}

static __always_inline int ip6_in(struct __sk_buff *skb, const void *data, const void *end)
{
	const struct ethhdr *eth = data;
	const struct ipv6hdr *ip = data + ETH_HLEN;
	const __u8 *type = (const void *)(ip + 1);
	struct in6_addr dest;
	struct persona *p;

	if ((const void *)(ip + 1) > end)
		return refuse(REFUSED_MALFORMED);
	if (ip->nexthdr == IPPROTO_ICMPV6 && (const void *)(type + 1) <= end && *type == ND_SOLICITATION)
		return solicited(skb, data);
	dest = ip->daddr;
	p = bpf_map_lookup_elem(&personas6, &dest);
	if (!p)
		return vacant6(&dest) ? refuse(REFUSED_UNLEASED_DESTINATION) : TC_ACT_OK;
	if (p->session || !same_mac(eth->h_dest, p->mac)) {
		__sync_fetch_and_add(&p->misdirected, 1);
		return TC_ACT_SHOT;
	}
	__sync_fetch_and_add(&p->rx_packets, wire_packets(skb));
	__sync_fetch_and_add(&p->rx_bytes, skb->len - ETH_HLEN);
	bpf_skb_change_type(skb, PACKET_HOST);
	return TC_ACT_OK;
}

/* line6_in takes an IPv6 packet of a session out of it. What is of the session's own link, such as router
 * advertisements, is for the packet socket. */
static __always_inline int line6_in(struct __sk_buff *skb)
{
	struct {
		struct ethhdr eth;
		struct pppoe_header h;
		struct ipv6hdr ip;
	} __attribute__((packed)) head;
	struct in6_addr dest;
	struct persona *p;
	__u32 bytes, length;

	if (bpf_skb_load_bytes(skb, 0, &head, sizeof(head)))
		return refuse(REFUSED_MALFORMED);
	dest = head.ip.daddr;
	if (dest.s6_addr[0] == 0xff || (dest.s6_addr16[0] & bpf_htons(0xffc0)) == bpf_htons(0xfe80))
		return TC_ACT_OK;
	p = bpf_map_lookup_elem(&personas6, &dest);
	if (!p)
		return refuse(REFUSED_UNLEASED_DESTINATION);
	if (head.h.session != p->session || !same_mac(head.eth.h_dest, p->mac) || !same_mac(head.eth.h_source, p->ac)) {
		__sync_fetch_and_add(&p->misdirected, 1);
		return TC_ACT_SHOT;
	}
	bytes = sizeof(head.ip) + bpf_ntohs(head.ip.payload_len);
	length = bpf_ntohs(head.h.length);
	if (length < sizeof(head.h.protocol) + bytes || ETH_HLEN + PPPOE_LEN - sizeof(head.h.protocol) + length > skb->len ||
	    take_pppoe_off(skb, bpf_htons(ETH_P_IPV6)))
		return refuse(REFUSED_MALFORMED);
	__sync_fetch_and_add(&p->rx_packets, 1);
	__sync_fetch_and_add(&p->rx_bytes, bytes);
	bpf_skb_change_type(skb, PACKET_HOST);
	return TC_ACT_OK;
}
