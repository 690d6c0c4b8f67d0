/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reading packet headers. */
#pragma once

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>

#include "maps.h"

#define TC_ACT_OK 0
#define TC_ACT_SHOT 2
#define TC_ACT_UNSPEC (-1) /* on to the programs of others behind ours, and then to the stack */

#define AF_INET 2
#define IP_DF 0x4000
#define IP_MF 0x2000
#define IP_OFFSET 0x1fff
#define VLAN_ID 0xfff

/* linux/icmp.h would bring the C library. */
struct icmphdr {
	__u8 type, code;
	__u16 checksum;
	__u32 unused;
};

#define ICMP_ECHOREPLY 0
#define ICMP_DEST_UNREACH 3
#define ICMP_FRAG_NEEDED 4
#define ICMP_PKT_FILTERED 13
#define ICMP_ECHO 8

#define DHCP_SERVER bpf_htons(67)
#define DHCP_CLIENT bpf_htons(68)
#define DNS bpf_htons(53)
#define HTTP bpf_htons(80)

/* likely and unlikely are about admitted clients' packets that are redirected: the code they
 * take stands in one piece, because fetching code costs as much as running it while the kernel's
 * own comes in between. */
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* clock_ns is the time, ns of CLOCK_MONOTONIC, no more than two of the kernel's ticks ago. The
 * coarse clock changes with jiffies, and reading these is one load instead of a call. */
static __always_inline __u64 clock_ns(void)
{
	__u32 zero = 0;
	struct tick *t = bpf_map_lookup_elem(&ticks, &zero);
	__u64 jiffies = bpf_jiffies64();

	if (!t)
		return 0;
	if (unlikely(t->jiffies != jiffies)) {
		t->ns = bpf_ktime_get_coarse_ns();
		t->jiffies = jiffies;
	}
	return t->ns;
}

/* expired reports whether the client's admission has expired. */
static __always_inline int expired(const struct client *c, __u64 now)
{
	return c->until && now >= c->until;
}

/* set_judged marks a packet for lan_out, which lets it pass: judged and counted for its
 * receiver, or made by lan_in. The mark stays with the packet, its segments and its fragments,
 * and has no effect on routing. When a program behind ours ends the chain by TC_ACT_OK, the
 * kernel copies tc_classid to tc_index. */
#define JUDGED 0x6a77

static __always_inline void set_judged(struct __sk_buff *skb)
{
	skb->tc_index = JUDGED;
	skb->tc_classid = JUDGED;
}

#define WAN_CLASSES 0x6a770000U /* major numbers of the queues' classes */
#define LAN_CLASSES 0x6a780000U

/* is_held reports whether a packet waits in its client's class. */
static __always_inline int is_held(const struct __sk_buff *skb)
{
	__u32 major = skb->priority & 0xffff0000;

	return major == WAN_CLASSES || major == LAN_CLASSES;
}

/* clear_class takes a class away that a sender on a virtual link gave its packet. */
static __always_inline void clear_class(struct __sk_buff *skb)
{
	if (unlikely(is_held(skb)))
		skb->priority = 0;
}

/* verdict_for_kernel is the verdict for the kernel: what passes goes to the programs of others behind ours,
 * without a mark that a sender on a virtual link set. A packet with our mark has the verdict
 * TC_ACT_UNSPEC already. The stack, which chooses priorities itself, leaves the number of a
 * client's class in the mark to class_of. */
static __always_inline int verdict_for_kernel(struct __sk_buff *skb, int verdict)
{
	__u32 class = is_held(skb) ? skb->priority & 0xffff : 0;

	if (verdict != TC_ACT_OK)
		return verdict;
	skb->tc_index = class;
	skb->tc_classid = class;
	return TC_ACT_UNSPEC;
}

/* owner_place is the place of the client that an address is of: its own, or one in a network behind
 * it, which only addresses outside the LAN are looked up in. A client with an address outside is
 * behind itself. NOBODY: it is nobody's. */
static __always_inline __u32 owner_place(__be32 addr)
{
	struct prefix key = { .bits = 32, .addr = addr };
	__u32 at = place(addr), *behind;

	if (at < lan.size || !routed)
		return at;
	behind = bpf_map_lookup_elem(&networks, &key);
	return behind ? *behind : NOBODY;
}

static __always_inline int is_fragment(const struct iphdr *ip)
{
	return (ip->frag_off & bpf_htons(IP_MF | IP_OFFSET)) != 0;
}

static __always_inline int is_multicast(__be32 addr)
{
	return (addr & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) ||
		addr == bpf_htonl(INADDR_BROADCAST);
}

/* Ethernet addresses are compared as one number: MAC in the lower six bytes. */
static __always_inline __u64 mac_at(const void *p)
{
	const __u16 *half = p;

	return (__u64)half[0] | (__u64)half[1] << 16 | (__u64)half[2] << 32;
}

/* User space fills the constant in after compilation, so it is read byte by byte:
 * otherwise the compiler would use the zeros that it sees. */
static __always_inline void copy_lan_mac(__u8 *mac)
{
	for (int i = 0; i < ETH_ALEN; i++)
		mac[i] = lan.mac[i];
}

/* ports of a first fragment's transport header; both 0 where there are none. */
struct ports {
	__be16 source, dest;
};

static __always_inline struct ports ports_of(const struct iphdr *ip, const void *end)
{
	struct ports none = {};
	const struct ports *p = (const void *)ip + ip->ihl * 4;

	if ((ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP) ||
	    (ip->frag_off & bpf_htons(IP_OFFSET)) || (const void *)(p + 1) > end)
		return none;
	return *p;
}

/* is_request reports whether a packet with these ports is a whole message of a DHCP client to this
 * gateway or to all. */
static __always_inline int is_request(const struct iphdr *ip, struct ports p)
{
	return ip->protocol == IPPROTO_UDP && p.dest == DHCP_SERVER && !is_fragment(ip) &&
	       (ip->daddr == lan.gateway || ip->daddr == bpf_htonl(INADDR_BROADCAST) ||
		place(ip->daddr) == lan.size - 1);
}

/* set_mac copies an Ethernet address between places at even addresses; from NULL: that of the LAN's
 * interface. The compiler would copy byte by byte. */
typedef __u16 __attribute__((may_alias)) half;

static __always_inline void set_mac(void *to, const void *from)
{
	const volatile half *own = (const void *)lan.mac;
	const half *f = from;
	half *t = to;

	t[0] = from ? f[0] : own[0];
	t[1] = from ? f[1] : own[1];
	t[2] = from ? f[2] : own[2];
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* has_right_sum reports whether the checksum of a header without options is right. */
static __always_inline int has_right_sum(const struct iphdr *ip)
{
	const __u32 *word = (const void *)ip;

	return fold((__u64)word[0] + word[1] + word[2] + word[3] + word[4]) == 0xffff;
}

/* is_sound reports whether a header's lengths match each other and the packet, and its
 * checksum is right, as the stack checks before forwarding (RFC 1812, 5.2.2); the stack
 * checks headers with options. Aggregated packets were checked before aggregation, and
 * beyond 64 KB they have no length field. */
static __always_inline int is_sound(const struct __sk_buff *skb, const struct iphdr *ip)
{
	__u32 header = ip->ihl * 4, total = bpf_ntohs(ip->tot_len);

	if (unlikely(ip->version != 4 || header < sizeof(*ip)))
		return 0;
	if (unlikely(!total && skb->gso_size))
		return 1;
	if (likely(header == sizeof(*ip)) && !skb->gso_size && unlikely(!has_right_sum(ip)))
		return 0;
	return header <= total && total <= skb->len - ETH_HLEN;
}

/* is_echo reports whether an ICMP packet is an echo request or reply, about which errors are
 * sent. */
static __always_inline int is_echo(const struct iphdr *ip, const void *end)
{
	const struct icmphdr *icmp = (const void *)(ip + 1);

	return (const void *)(icmp + 1) <= end && (icmp->type == ICMP_ECHO ||
		icmp->type == ICMP_ECHOREPLY);
}

/* The size of a packet on the wire. */
struct wire {
	__u64 bytes; /* of IP packets */
	__u32 packets;
};

/* on_wire computes the size before aggregation: each segment had its own headers. */
static __always_inline struct wire on_wire(const struct __sk_buff *skb, const struct iphdr *ip,
	const void *end)
{
	struct wire w = { .bytes = bpf_ntohs(ip->tot_len), .packets = 1 };
	const struct tcphdr *tcp = (const void *)ip + ip->ihl * 4;
	__u32 headers = ip->ihl * 4, segment = skb->gso_size, all = skb->len - ETH_HLEN;

	if (!segment)
		return w;
	if (ip->protocol == IPPROTO_UDP)
		headers += sizeof(struct udphdr);
	else if ((const void *)(tcp + 1) <= end)
		headers += tcp->doff * 4;
	w.packets = skb->gso_segs;
	if (!w.packets) /* from a virtual machine, which does not count them */
		w.packets = all > headers ? (all - headers + segment - 1) / segment : 1;
	w.bytes = all + (__u64)(w.packets - 1) * headers;
	return w;
}

/* Functions that are not static are verified once, not for each of their callers' states:
 * opening takes a fifth of the time. The verifier knows nothing of their arguments but the
 * types, and takes pointers for NULL perhaps. A caller's pointers into a packet end where one of
 * them changes the packet. */

/* count_segments counts the packets of a buffer from a virtual machine, which does not say how
 * many it has. */
__noinline __u32 count_segments(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;

	if ((void *)(ip + 1) > end)
		return 1;
	return on_wire(skb, ip, end).packets;
}

/* packets_of is how many packets a buffer is on the wire. */
static __always_inline __u32 packets_of(struct __sk_buff *skb)
{
	if (likely(!skb->gso_size))
		return 1;
	return likely(skb->gso_segs) ? skb->gso_segs : count_segments(skb);
}

static __always_inline void count_packets(enum reason why, __u64 packets)
{
	__u32 key = why;
	__u64 *n = bpf_map_lookup_elem(&stats, &key);

	if (n)
		*n += packets;
}

/* count counts the outcome of a buffer's packets, as clients' counters do. */
static __always_inline void count(struct __sk_buff *skb, enum reason why) { count_packets(why,
	packets_of(skb)); }

__noinline int drop(struct __sk_buff *skb, enum reason why)
{
	count(skb, why);
	return TC_ACT_SHOT;
}

static __always_inline int pass(struct __sk_buff *skb, enum reason why)
{
	count(skb, why);
	return TC_ACT_OK;
}

/* route asks the kernel's routing where it would send a packet. With a length, the answer's MTU may
 * be that of a path the kernel knows, instead of the interface's. */
static __always_inline long route(struct __sk_buff *skb, const struct iphdr *ip,
	struct bpf_fib_lookup *fib)
{
	*fib = (struct bpf_fib_lookup){
		.family = AF_INET,
		.tot_len = sizeof(*ip),
		.tos = ip->tos,
		.ipv4_src = ip->saddr,
		.ipv4_dst = ip->daddr,
		.ifindex = skb->ifindex,
	};
	return bpf_fib_lookup(skb, fib, sizeof(*fib), 0);
}

/* untag removes a tag without a VLAN: a priority, which concerns the link only (IEEE
 * 802.1Q, 6.9). It fails if a second tag follows. */
static __always_inline int untag(struct __sk_buff *skb)
{
	return bpf_skb_vlan_pop(skb) || skb->vlan_present ? -1 : 0;
}
