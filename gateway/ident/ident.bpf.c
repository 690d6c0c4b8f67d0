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

/* A full map drops what was idle longest. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct conn);
	__type(value, struct life);
} ident_conns SEC(".maps");

/* The client whose port 113 a query was for. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct asker);
	__type(value, __u32);
} ident_askers SEC(".maps");

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

/* Constants, set when the programs are loaded. */
/* host order; lan_size 0: queries for clients are not taken */
volatile const __u32 lan_base, lan_size;
volatile const __u32 gateway_addr;       /* network order */

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

/* What the programs read of a segment. */
struct segment {
	__be32 saddr, daddr;
	__be16 source, dest;
	__u32 header; /* bytes of IP's */
	__u8 syn, ack, fin, rst;
};

/* read_segment reads a segment's headers, and fails for whatever is no IPv4 TCP segment with its
 * header. */
static __always_inline int read_segment(struct __sk_buff *skb, struct segment *s)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	struct tcphdr *tcp;

	if (skb->protocol != bpf_htons(ETH_P_IP) || (skb->vlan_present && (skb->vlan_tci & VLAN_ID)))
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
			.header = ip->ihl * 4,
		.syn = tcp->syn, .ack = tcp->ack, .fin = tcp->fin, .rst = tcp->rst,
	};
	return 0;
}

/* query hands a query for a client's address to the gateway. */
static __always_inline int query(struct __sk_buff *skb, const struct segment *s)
{
	struct asker a = { .addr = s->saddr, .port = s->source };
	__be32 client = s->daddr, *asked;

	if (s->syn && !s->ack) {
		if (bpf_map_update_elem(&ident_askers, &a, &client, BPF_ANY))
			return TC_ACT_SHOT;
	} else {
		asked = bpf_map_lookup_elem(&ident_askers, &a);
		if (!asked || *asked != client)
			return TC_ACT_SHOT;
	}
	return readdress(skb, IP_DADDR, s->header, client, gateway_addr) ? TC_ACT_SHOT : TC_ACT_OK;
}

/* ident_in handles packets from the WAN, ahead of the data path. */
SEC("tc")
int ident_in(struct __sk_buff *skb)
{
	struct segment s;
	struct life *l;

	if (skb->pkt_type != PACKET_HOST || read_segment(skb, &s))
		return TC_ACT_UNSPEC;
	/* The data path drops a client's address that comes from the WAN. */
	if (s.dest == IDENT && is_clients(s.daddr) && s.daddr != gateway_addr && !is_clients(s.saddr))
		return query(skb, &s);
	if (!(s.syn | s.fin | s.rst))
		return TC_ACT_UNSPEC;
	struct conn c = { .near = s.daddr, .far = s.saddr, .near_port = s.dest, .far_port = s.source };

	if (s.rst) {
		bpf_map_delete_elem(&ident_conns, &c);
		return TC_ACT_UNSPEC;
	}
	l = bpf_map_lookup_elem(&ident_conns, &c);
	if (!l)
		return TC_ACT_UNSPEC;
	if (s.syn && s.ack)
		l->answered = 1;
	if (s.fin)
		l->far_fin = 1;
	return TC_ACT_UNSPEC;
}

/* ident_out handles packets to the WAN, as they leave. */
SEC("tc")
int ident_out(struct __sk_buff *skb)
{
	struct segment s;

	if (read_segment(skb, &s))
		return TC_ACT_UNSPEC;
	if (s.source == IDENT && s.saddr == gateway_addr && lan_size) {
		struct asker a = { .addr = s.daddr, .port = s.dest };
		__be32 *client = bpf_map_lookup_elem(&ident_askers, &a);

		if (client && readdress(skb, IP_SADDR, s.header, gateway_addr, *client))
			return TC_ACT_SHOT;
		return TC_ACT_UNSPEC;
	}
	if (!(s.syn | s.fin | s.rst))
		return TC_ACT_UNSPEC;
	struct conn c = { .near = s.saddr, .far = s.daddr, .near_port = s.source, .far_port = s.dest };

	if (s.rst) {
		bpf_map_delete_elem(&ident_conns, &c);
	} else if (s.syn && !s.ack) {
		struct life begins = { .began = bpf_ktime_get_ns() };

		bpf_map_update_elem(&ident_conns, &c, &begins, BPF_ANY);
	} else if (s.fin) {
		struct life *l = bpf_map_lookup_elem(&ident_conns, &c);

		if (l)
			l->near_fin = 1;
	}
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
