//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The least that forwarding costs at tc: one look into an array, both hardware addresses, a
 * redirect. Nothing is decided: no client is judged, no time to live, no length, no route.
 *
 *	LAN -> up   -> WAN	the next hop is the only one there is
 *	LAN <- down <- WAN	the client's hardware address is found by its place in the LAN
 *
 * The programs for NAT also translate, one to one and without a table of connections: the
 * lowest bits of a client's address and port are turned over, and turned back. A server sees
 * another client's address, which leads to the same router, and no two connections become
 * one. What is rewritten is what masquerading rewrites. */
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TC_ACT_OK 0
#define TC_ACT_SHOT 2

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct hop {
	__u8 to[ETH_ALEN];   /* the next host's hardware address; all zeros: there is none */
	__u8 from[ETH_ALEN]; /* the sending interface's */
	__u32 ifindex;	     /* of that interface */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hop);
} server SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* user space knows how many */
	__type(key, __u32);
	__type(value, struct hop);
} clients SEC(".maps");

const volatile __u32 places; /* of the LAN: the host part's ones */

static __always_inline int redirect(struct __sk_buff *skb, void *map, __u32 place)
{
	struct ethhdr *eth = (void *)(long)skb->data;
	struct hop *hop = bpf_map_lookup_elem(map, &place);

	if (!hop || (void *)(eth + 1) > (void *)(long)skb->data_end)
		return TC_ACT_OK;
	__builtin_memcpy(eth->h_dest, hop->to, ETH_ALEN);
	__builtin_memcpy(eth->h_source, hop->from, ETH_ALEN);
	return bpf_redirect(hop->ifindex, 0);
}

/* packet is an IPv4 packet, taken to have no options; NULL: another one, for the stack. */
static __always_inline struct iphdr *packet(struct __sk_buff *skb)
{
	struct iphdr *ip = (void *)(long)skb->data + sizeof(struct ethhdr);

	if (skb->protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > (void *)(long)skb->data_end)
		return NULL;
	return ip;
}

/* ported is packet of a protocol with ports, which alone are translated. */
static __always_inline struct iphdr *ported(struct __sk_buff *skb)
{
	struct iphdr *ip = packet(skb);

	return ip && (ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP) ? ip : NULL;
}

/* translate turns the lowest bit of an address and of a port over, with the checksums. */
static __always_inline int translate(struct __sk_buff *skb, struct iphdr *ip, int address, int port)
{
	const int l4 = sizeof(struct ethhdr) + sizeof(struct iphdr);
	__u64 pseudo = BPF_F_PSEUDO_HDR | 4;
	int sum = l4 + 16;
	__be32 was, now;
	__be16 old, new;
	__u32 check;

	if (ip->protocol == IPPROTO_UDP) {
		sum = l4 + 6;
		pseudo |= BPF_F_MARK_MANGLED_0;
	}
	was = *(__be32 *)((void *)ip + address);
	now = was ^ bpf_htonl(1);
	*(__be32 *)((void *)ip + address) = now;
	/* RFC 1624, equation 3; the halves that do not change cancel out */
	check = (__u16)~ip->check + (__u16)~(was >> 16) + (now >> 16) + (__u16)~(was & 0xffff) + (now & 0xffff);
	check = (check & 0xffff) + (check >> 16);
	check = (check & 0xffff) + (check >> 16);
	ip->check = ~check;
	if (bpf_l4_csum_replace(skb, sum, was, now, pseudo) < 0 || bpf_skb_load_bytes(skb, l4 + port, &old, sizeof(old)) < 0)
		return -1;
	new = old ^ bpf_htons(1);
	if (bpf_l4_csum_replace(skb, sum, old, new, (pseudo & BPF_F_MARK_MANGLED_0) | 2) < 0)
		return -1;
	return bpf_skb_store_bytes(skb, l4 + port, &new, sizeof(new), 0);
}

SEC("tc")
int up(struct __sk_buff *skb)
{
	return packet(skb) ? redirect(skb, &server, 0) : TC_ACT_OK;
}

SEC("tc")
int down(struct __sk_buff *skb)
{
	struct iphdr *ip = packet(skb);

	return ip ? redirect(skb, &clients, bpf_ntohl(ip->daddr) & places) : TC_ACT_OK;
}

SEC("tc")
int up_nat(struct __sk_buff *skb)
{
	struct iphdr *ip = ported(skb);

	if (!ip)
		return TC_ACT_OK;
	if (translate(skb, ip, offsetof(struct iphdr, saddr), 0) < 0)
		return TC_ACT_SHOT;
	return redirect(skb, &server, 0);
}

SEC("tc")
int down_nat(struct __sk_buff *skb)
{
	struct iphdr *ip = ported(skb);
	__u32 place;

	if (!ip)
		return TC_ACT_OK;
	place = bpf_ntohl(ip->daddr ^ bpf_htonl(1)) & places;
	if (translate(skb, ip, offsetof(struct iphdr, daddr), 2) < 0)
		return TC_ACT_SHOT;
	return redirect(skb, &clients, place);
}
