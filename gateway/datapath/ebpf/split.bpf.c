//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Several networks at one WAN: each packet goes to the programs of the network that it is for.
 *
 *	WAN -> wan_split -> wan_in of a network
 *	WAN <- (learn_up of a network) <- learn_split <- stack
 *
 * What a packet costs does not depend on how many networks there are. */
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>

#include "beside.h"
#include "flow.h"

#define TC_ACT_UNSPEC (-1)
#define JUDGED 0x6a77 /* as in packet.h */
#define VLAN_ID 0xfff
#define NOBODY NETWORKS

/* What clients have: a prefix. Network order. */
struct part {
	__u32 bits;
	__u32 addr;
};

struct part6 {
	__u32 bits; /* at most 64 */
	__u32 pad;
	__u64 high;
};

/* The lengths of the parts that have addresses of a slot, each plus one, the longest first; then 0.
 * A packet's address is looked up once for each, so what it costs does not depend on how many
 * networks there are, where that in a trie would. */
struct lengths {
	__u8 list[40];
};

#define SLOTS 65536 /* of each family: an address's, see slot and slot6 */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * SLOTS);
	__type(key, __u32);
	__type(value, struct lengths);
} part_lengths SEC(".maps");

/* The numbers of networks, by what their clients have: the network itself, and networks behind
 * clients. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct part);
	__type(value, __u32);
} parts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct part6);
	__type(value, __u32);
} parts6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, NETWORKS);
	__type(key, __u32);
	__type(value, __u32);
} wan_ins SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, NETWORKS);
	__type(key, __u32);
	__type(value, __u32);
} learn_ups SEC(".maps");

/* owner is the network that has an address. */
static __always_inline __u32 owner(__be32 addr)
{
	__u32 host = bpf_ntohl(addr), slot = host >> 16, i;
	const struct lengths *all = bpf_map_lookup_elem(&part_lengths, &slot);
	struct part key;

	for (i = 0; all && i < sizeof(all->list) && all->list[i]; i++) {
		const __u32 *n;

		key.bits = (all->list[i] - 1) & 63;
		key.addr = bpf_htonl(host & (__u32)(~0ULL << (32 - key.bits)));
		n = bpf_map_lookup_elem(&parts, &key);
		if (n)
			return *n;
	}
	return NOBODY;
}

/* owner6 is owner for IPv6. An address's slot is of its first 48 bits. */
static __always_inline __u32 owner6(const struct in6_addr *addr)
{
	const __be16 *w = addr->in6_u.u6_addr16;
	__u32 slot = SLOTS + bpf_ntohs(w[0] ^ w[1] ^ w[2]), i;
	const struct lengths *all = bpf_map_lookup_elem(&part_lengths, &slot);
	struct part6 key = {};
	__u64 high;

	__builtin_memcpy(&high, addr, sizeof(high));
	high = bpf_be64_to_cpu(high);
	for (i = 0; all && i < sizeof(all->list) && all->list[i]; i++) {
		const __u32 *n;

		key.bits = all->list[i] - 1;
		key.high = bpf_cpu_to_be64(key.bits ? high & (~0ULL << ((64 - key.bits) & 63)) : 0);
		n = bpf_map_lookup_elem(&parts6, &key);
		if (n)
			return *n;
	}
	return NOBODY;
}

/* flow_owner is the network of a packet whose flow is cached: where addresses are translated, it is
 * for none of a network's. */
static __always_inline __u32 flow_owner(const struct iphdr *ip, const void *end)
{
	const struct udphdr *ports = (const void *)(ip + 1);
	struct flow_key k = { .side = FROM_WAN };
	const struct flow_path *p;

	if (ip->ihl != 5 || (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP) ||
		(const void *)(ports + 1) > end)
		return NOBODY;
	k.saddr = ip->saddr, k.daddr = ip->daddr;
	k.sport = ports->source, k.dport = ports->dest;
	k.protocol = ip->protocol;
	p = bpf_map_lookup_elem(&flow_paths, &k);
	return p ? p->network : NOBODY;
}

/* find_owner is the network that judges a packet from the WAN: the one whose addresses it has as
 * source, because it is forged, or the one that it is for. */
static __always_inline __u32 find_owner(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	const struct ipv6hdr *six = data + ETH_HLEN;
	const struct iphdr *ip = data + ETH_HLEN;
	__u32 n;

	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if ((void *)(six + 1) > end)
			return NOBODY;
		n = owner6(&six->saddr);
		return n == NOBODY ? owner6(&six->daddr) : n;
	}
	if (skb->protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end)
		return NOBODY;
	n = owner(ip->saddr);
	if (n == NOBODY)
		n = owner(ip->daddr);
	return n == NOBODY ? flow_owner(ip, end) : n;
}

#define HEADERS (ETH_HLEN + sizeof(struct ipv6hdr))

/* wan_split hands a packet from the WAN to the network that it is for. What is for none, or for one
 * without programs, is the stack's, and lan_out judges what that forwards. */
SEC("tc")
int wan_split(struct __sk_buff *skb)
{
	__u32 n;

	if (skb->data + HEADERS > skb->data_end)
		bpf_skb_pull_data(skb, skb->len < HEADERS ? skb->len : HEADERS);
	if (!skb->vlan_present || !(skb->vlan_tci & VLAN_ID)) {
		n = find_owner(skb);
		if (n != NOBODY)
			bpf_tail_call(skb, &wan_ins, n);
	}
	skb->tc_index = 0; /* a mark that a sender on a virtual link set */
	skb->tc_classid = 0;
	return TC_ACT_UNSPEC;
}

/* learn_split has the network that a packet comes from learn its flow. Almost all packets are
 * redirected ones. */
SEC("tc")
int learn_split(struct __sk_buff *skb)
{
	__u32 from = skb->ingress_ifindex;
	const __u32 *n;

	if (skb->tc_index == JUDGED)
		return TC_ACT_UNSPEC;
	n = bpf_map_lookup_elem(&members, &from);
	if (n)
		bpf_tail_call(skb, &learn_ups, *n);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
