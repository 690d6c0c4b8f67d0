//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* TCP connections that have left by the WAN, and queries by RFC 1413 for clients' addresses.
 *
 *	client -> (data path, NAT) -> ident_out -> WAN
 *	client <- (data path, NAT) <- ident_in  <- WAN
 *	              gateway:113 <-'  queries to a client's port 113
 *
 * ident_out sees what the data path admitted, whatever its kind, with the addresses that the
 * peer sees. So an entry in conns is a connection that exists, and nobody in the LAN can make
 * one up. Only segments with SYN, FIN or RST look anything up. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TC_ACT_OK 0
#define TC_ACT_SHOT 2
#define TC_ACT_UNSPEC (-1)
#define IP_FRAGMENT 0x3fff
#define VLAN_ID 0xfff
#define IDENT bpf_htons(113)

/* A TCP connection as the WAN sees it, network order. */
struct conn {
	__u32 near, far;
	__u16 near_port, far_port;
};

struct addr6 {
	__u32 word[4];
};

struct conn6 {
	struct addr6 near, far;
	__u16 near_port, far_port;
};

/* How far a connection has come. Each byte has one writer. */
struct life {
	__u64 began; /* ns of CLOCK_MONOTONIC, of the SYN */
	__u8 answered, near_fin, far_fin, pad[5];
};

/* The asking end of a query, network order. */
struct asker {
	__u32 addr;
	__u16 port, pad;
};

struct asker6 {
	struct addr6 addr;
	__u16 port, pad;
};

/* A full map drops what was idle longest. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct conn);
	__type(value, struct life);
} ident_conns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct conn6);
	__type(value, struct life);
} ident_conns6 SEC(".maps");

/* The client whose port 113 a query was for. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct asker);
	__type(value, __u32);
} ident_askers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct asker6);
	__type(value, struct addr6);
} ident_askers6 SEC(".maps");

/* A network behind a client, as a key of an LPM trie. */
struct network {
	__u32 bits;
	__u32 addr; /* network order */
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct network);
	__type(value, __u8);
} ident_networks SEC(".maps");

/* A network of which clients have IPv6 addresses, also behind a client. */
struct network6 {
	__u32 bits;
	struct addr6 addr;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct network6);
	__type(value, __u8);
} ident_networks6 SEC(".maps");

/* Constants, set when the programs are loaded. */
/* host order; lan_size 0: queries for clients are not taken */
volatile const __u32 lan_base, lan_size;
volatile const __u32 gateway_addr;       /* network order */
volatile const struct addr6 gateway_addr6;

static __always_inline int in_lan(__be32 addr) { return bpf_ntohl(addr) - lan_base < lan_size; }

/* is_clients reports whether an address is one of the LAN, or in a network behind a client. */
static __always_inline int is_clients(__be32 addr)
{
	struct network key = { .bits = 32, .addr = addr };

	return in_lan(addr) || (lan_size && bpf_map_lookup_elem(&ident_networks, &key));
}

#define IP_SADDR (ETH_HLEN + offsetof(struct iphdr, saddr))
#define IP_DADDR (ETH_HLEN + offsetof(struct iphdr, daddr))

/* readdress changes an address of a segment, at IP_SADDR or IP_DADDR. */
static __always_inline int readdress(struct __sk_buff *skb, __u32 at, __u32 header, __be32 from,
	__be32 to)
{
	return bpf_l4_csum_replace(skb, ETH_HLEN + header + offsetof(struct tcphdr, check), from,
		to, BPF_F_PSEUDO_HDR | sizeof(to)) ||
	       bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), from, to, sizeof(to)) ||
	       bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0);
}

struct flags {
	__u8 syn, ack, fin, rst;
};

static __always_inline struct flags flags_of(const struct tcphdr *tcp)
{
	return (struct flags){ .syn = tcp->syn, .ack = tcp->ack, .fin = tcp->fin, .rst = tcp->rst };
}

/* What the programs read of a segment. */
struct segment {
	__be32 saddr, daddr;
	__be16 source, dest;
	__u32 header; /* bytes of IP's */
	struct flags is;
};

/* read_segment reads a segment's headers, and fails for whatever is no IPv4 TCP segment with its
 * header. */
static __always_inline int read_segment(struct __sk_buff *skb, struct segment *s)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	struct tcphdr *tcp;

	if (skb->protocol != bpf_htons(ETH_P_IP))
		return -1;
	if ((void *)(ip + 1) + sizeof(*tcp) > end) {
		if (skb->len < ETH_HLEN + sizeof(*ip) + sizeof(*tcp) ||
			bpf_skb_pull_data(skb, ETH_HLEN + sizeof(*ip) + sizeof(*tcp)))
			return -1;
		data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
		ip = data + ETH_HLEN;
		if ((void *)(ip + 1) + sizeof(*tcp) > end)
			return -1;
	}
	if (ip->protocol != IPPROTO_TCP || ip->version != 4 || ip->ihl < 5 ||
		ip->frag_off & bpf_htons(IP_FRAGMENT))
		return -1;
	tcp = (void *)ip + ip->ihl * 4;
	if ((void *)(tcp + 1) > end)
		return -1; /* behind options: not in the linear part, and hardly ever */
	*s = (struct segment){
		.saddr = ip->saddr, .daddr = ip->daddr, .source = tcp->source, .dest = tcp->dest,
			.header = ip->ihl * 4, .is = flags_of(tcp),
	};
	return 0;
}

static __always_inline int is_tagged(const struct __sk_buff *skb)
{
	return skb->vlan_present && (skb->vlan_tci & VLAN_ID);
}

/* query hands a query for a client's address to the gateway. */
static __always_inline int query(struct __sk_buff *skb, const struct segment *s)
{
	struct asker a = { .addr = s->saddr, .port = s->source };
	__be32 client = s->daddr, *asked;

	if (s->is.syn && !s->is.ack) {
		if (bpf_map_update_elem(&ident_askers, &a, &client, BPF_ANY))
			return TC_ACT_SHOT;
	} else {
		asked = bpf_map_lookup_elem(&ident_askers, &a);
		if (!asked || *asked != client)
			return TC_ACT_SHOT;
	}
	return readdress(skb, IP_DADDR, s->header, client, gateway_addr) ? TC_ACT_SHOT : TC_ACT_OK;
}

/* follow_in notes what a segment from the WAN makes of a connection. */
static __always_inline int follow_in(void *conns, const void *conn, struct flags is)
{
	struct life *l;

	if (is.rst) {
		bpf_map_delete_elem(conns, conn);
		return TC_ACT_UNSPEC;
	}
	l = bpf_map_lookup_elem(conns, conn);
	if (!l)
		return TC_ACT_UNSPEC;
	if (is.syn && is.ack)
		l->answered = 1;
	if (is.fin)
		l->far_fin = 1;
	return TC_ACT_UNSPEC;
}

/* follow_out notes what a segment to the WAN makes of a connection. */
static __always_inline int follow_out(void *conns, const void *conn, struct flags is)
{
	if (is.rst) {
		bpf_map_delete_elem(conns, conn);
	} else if (is.syn && !is.ack) {
		struct life begins = { .began = bpf_ktime_get_ns() };

		bpf_map_update_elem(conns, conn, &begins, BPF_ANY);
	} else if (is.fin) {
		struct life *l = bpf_map_lookup_elem(conns, conn);

		if (l)
			l->near_fin = 1;
	}
	return TC_ACT_UNSPEC;
}

#include "ident6.h"

/* ident_in handles packets from the WAN, ahead of the data path. */
SEC("tc")
int ident_in(struct __sk_buff *skb)
{
	struct segment s;

	if (skb->pkt_type != PACKET_HOST || is_tagged(skb))
		return TC_ACT_UNSPEC;
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return in6(skb);
	if (read_segment(skb, &s))
		return TC_ACT_UNSPEC;
	/* The data path drops a client's address that comes from the WAN. */
	if (s.dest == IDENT && is_clients(s.daddr) && s.daddr != gateway_addr && !is_clients(s.saddr))
		return query(skb, &s);
	if (!(s.is.syn | s.is.fin | s.is.rst))
		return TC_ACT_UNSPEC;
	struct conn c = { .near = s.daddr, .far = s.saddr, .near_port = s.dest, .far_port = s.source };

	return follow_in(&ident_conns, &c, s.is);
}

/* ident_out handles packets to the WAN, as they leave. */
SEC("tc")
int ident_out(struct __sk_buff *skb)
{
	struct segment s;

	if (is_tagged(skb))
		return TC_ACT_UNSPEC;
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return out6(skb);
	if (read_segment(skb, &s))
		return TC_ACT_UNSPEC;
	if (s.source == IDENT && s.saddr == gateway_addr && lan_size) {
		struct asker a = { .addr = s.daddr, .port = s.dest };
		__be32 *client = bpf_map_lookup_elem(&ident_askers, &a);

		if (client && readdress(skb, IP_SADDR, s.header, gateway_addr, *client))
			return TC_ACT_SHOT;
		return TC_ACT_UNSPEC;
	}
	if (!(s.is.syn | s.is.fin | s.is.rst))
		return TC_ACT_UNSPEC;
	struct conn c = { .near = s.saddr, .far = s.daddr, .near_port = s.source, .far_port = s.dest };

	return follow_out(&ident_conns, &c, s.is);
}

char _license[] SEC("license") = "Dual BSD/GPL";
