//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The least that a router at tc can do: every packet is sent to the other side, with the addresses of one
 * look-up in an array, and nothing is decided. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TC_ACT_OK 0

/* Ethernet addresses of the clients, by their address's place in the LAN, and of the next hop at the WAN
 * behind them: as senders last had them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* user space: the size of the LAN and one */
	__type(key, __u32);
	__type(value, __u64);
} neighbours SEC(".maps");

volatile const __u32 lan_base, lan_size; /* host order */
volatile const __u32 lan_ifindex, wan_ifindex;
volatile const __u64 lan_mac, wan_mac; /* as mac_at reads them */
volatile const __u32 translation; /* network order: bits of clients' addresses that are others towards the WAN; 0: none */

static __always_inline __u64 mac_at(const void *p)
{
	const __u16 *half = p;

	return (__u64)half[0] | (__u64)half[1] << 16 | (__u64)half[2] << 32;
}

static __always_inline void set_mac(void *p, __u64 mac)
{
	__u16 *half = p;

	half[0] = mac, half[1] = mac >> 16, half[2] = mac >> 32;
}

/* translate changes an address of the packet, of which at is the place. */
static __always_inline int translate(struct __sk_buff *skb, __u32 at)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__be32 was, now;
	__u32 check = ETH_HLEN + sizeof(*ip) + __builtin_offsetof(struct tcphdr, check);
	__u64 flags = BPF_F_PSEUDO_HDR | sizeof(was), sum;

	if ((void *)(ip + 1) > end)
		return -1;
	was = at == __builtin_offsetof(struct iphdr, saddr) ? ip->saddr : ip->daddr;
	now = was ^ translation;
	if (ip->protocol == IPPROTO_UDP) {
		check = ETH_HLEN + sizeof(*ip) + __builtin_offsetof(struct udphdr, check);
		flags |= BPF_F_MARK_MANGLED_0;
	}
	if ((ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP) && bpf_l4_csum_replace(skb, check, was, now, flags))
		return -1;
	data = (void *)(long)skb->data, end = (void *)(long)skb->data_end, ip = data + ETH_HLEN;
	if ((void *)(ip + 1) > end)
		return -1;
	sum = (__u64)(__u16)~ip->check + (__u32)~was + now;
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
	if (at == __builtin_offsetof(struct iphdr, saddr))
		ip->saddr = now;
	else
		ip->daddr = now;
	return 0;
}

/* pass sends a packet on, or leaves it to the stack where the next hop is not known yet, or the packet
 * is the router's. */
static __always_inline int pass(struct __sk_buff *skb, int up)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 wan = lan_size, at, sum;
	__u64 *from, *to;

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || skb->pkt_type != 0 || ip->ihl != 5 || ip->ttl <= 1)
		return TC_ACT_OK;
	at = bpf_ntohl((up ? ip->saddr : ip->daddr ^ translation)) - lan_base;
	if (at >= lan_size || (up && bpf_ntohl(ip->daddr) - lan_base < lan_size))
		return TC_ACT_OK;
	from = bpf_map_lookup_elem(&neighbours, up ? &at : &wan);
	to = bpf_map_lookup_elem(&neighbours, up ? &wan : &at);
	if (!from || !to)
		return TC_ACT_OK;
	if (*from != mac_at(eth->h_source))
		*from = mac_at(eth->h_source);
	if (translation) {
		if (translate(skb, up ? __builtin_offsetof(struct iphdr, saddr) : __builtin_offsetof(struct iphdr, daddr)))
			return TC_ACT_OK;
		data = (void *)(long)skb->data, end = (void *)(long)skb->data_end, eth = data, ip = data + ETH_HLEN;
		if ((void *)(ip + 1) > end)
			return TC_ACT_OK;
	}
	if (!*to)
		return TC_ACT_OK;
	set_mac(eth->h_dest, *to);
	set_mac(eth->h_source, up ? wan_mac : lan_mac);
	sum = ip->check + bpf_htons(0x0100);
	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
	return bpf_redirect(up ? wan_ifindex : lan_ifindex, 0);
}

SEC("tc")
int up(struct __sk_buff *skb) { return pass(skb, 1); }

SEC("tc")
int down(struct __sk_buff *skb) { return pass(skb, 0); }

char _license[] SEC("license") = "Dual BSD/GPL";
