//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Many clients behind one interface, at tc:
 *
 *	kernel's sockets -> to_lan   -> LAN	the source's own hardware address goes in, of those with
 *						a PPPoE session its header too
 *	kernel's sockets <- from_lan <- LAN	only what names a client by both its addresses;
 *						questions for clients' addresses are answered here
 *
 * Every packet costs one look into a hash table, however many clients there are.
 * IPv6 has a table of its own (persona6.h). */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../../../ppp/pppoe/header.h"

#define TC_ACT_OK 0
#define TC_ACT_SHOT 2
#define PACKET_HOST 0

#define ARP_REQUEST bpf_htons(1)
#define ARP_REPLY bpf_htons(2)
#define DHCP_CLIENT bpf_htons(68)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A client that has an address. */
struct persona {
	__u8 mac[ETH_ALEN];
	__be16 session;	   /* its PPPoE session; 0: none */
	__u8 ac[ETH_ALEN]; /* the concentrator's hardware address */
	__u8 pad[2];
	__u64 tx_packets, tx_bytes; /* packets as on the wire; bytes of IP, an aggregate with one header */
	__u64 rx_packets, rx_bytes;
	__u64 arp_answered; /* questions for its address, with IPv6 neighbour solicitations */
	__u64 misdirected; /* came for its IP address with another hardware address: dropped */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* user space knows how many */
	__type(key, __be32);
	__type(value, struct persona);
} personas SEC(".maps");

/* Packets dropped for what no client can be blamed for. */
enum refusal {
	REFUSED_UNLEASED_SOURCE,      /* to_lan: from an address of the LAN nobody has */
	REFUSED_UNLEASED_DESTINATION, /* from_lan: for one */
	REFUSED_UNLEASED_QUESTION,    /* from_lan: an ARP packet for one */
	REFUSED_MALFORMED,
	REFUSED_AGGREGATED, /* to_lan: several packets in one, on a PPPoE session; no sender is to make any */
	REFUSALS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REFUSALS);
	__type(key, __u32);
	__type(value, __u64);
} refusals SEC(".maps");

/* The LAN, and the host's own address in it, 0 when it has none; network order. */
volatile const __be32 lan_base;
volatile const __be32 lan_mask;
volatile const __be32 host_addr;

/* An ARP packet for IPv4 on Ethernet (RFC 826). */
struct arp {
	__be16 hardware, protocol;
	__u8 hardware_len, protocol_len;
	__be16 operation;
	__u8 sender_mac[ETH_ALEN];
	__be32 sender;
	__u8 target_mac[ETH_ALEN];
	__be32 target;
} __attribute__((packed));

#define AT(type, field) (ETH_HLEN + __builtin_offsetof(struct type, field))

static __always_inline int refuse(enum refusal why)
{
	__u32 key = why;
	__u64 *n = bpf_map_lookup_elem(&refusals, &key);

	if (n)
		(*n)++;
	return TC_ACT_SHOT;
}

/* vacant says whether an address is one a client could have. */
static __always_inline int vacant(__be32 addr)
{
	return (addr & lan_mask) == lan_base && addr != host_addr;
}

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	const __u16 *x = (const void *)a, *y = (const void *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

static __always_inline __u32 wire_packets(const struct __sk_buff *skb)
{
	return skb->gso_segs > 1 ? skb->gso_segs : 1;
}

static __always_inline int arp_out(struct __sk_buff *skb, const void *data, const void *end)
{
	const struct arp *a = data + ETH_HLEN;
	struct persona *p;
	__be32 sender;

	if ((const void *)(a + 1) > end)
		return refuse(REFUSED_MALFORMED);
	sender = a->sender;
	p = bpf_map_lookup_elem(&personas, &sender);
	if (!p)
		return vacant(sender) ? refuse(REFUSED_UNLEASED_SOURCE) : TC_ACT_OK;
	bpf_skb_store_bytes(skb, ETH_ALEN, p->mac, ETH_ALEN, 0);
	bpf_skb_store_bytes(skb, AT(arp, sender_mac), p->mac, ETH_ALEN, 0);
	return TC_ACT_OK;
}

/* onto_line puts a session's header on a packet of an IP protocol: its length is of one packet. */
static __always_inline int onto_line(struct __sk_buff *skb, const struct persona *p, __u32 bytes, __be16 protocol)
{
	struct {
		__u8 to[ETH_ALEN], from[ETH_ALEN];
		__be16 type;
		struct pppoe_header h;
	} __attribute__((packed)) head = {
		.type = bpf_htons(ETH_P_PPP_DATA),
		.h = { .kind = PPPOE_DATA, .session = p->session, .length = bpf_htons(bytes + sizeof(head.h.protocol)), .protocol = protocol },
	};

	if (skb->gso_size)
		return refuse(REFUSED_AGGREGATED);
	__builtin_memcpy(head.to, p->ac, ETH_ALEN);
	__builtin_memcpy(head.from, p->mac, ETH_ALEN);
	if (bpf_skb_adjust_room(skb, PPPOE_LEN, BPF_ADJ_ROOM_MAC, 0) || bpf_skb_store_bytes(skb, 0, &head, sizeof(head), 0) || retype(skb))
		return refuse(REFUSED_MALFORMED);
	return TC_ACT_OK;
}

static __always_inline int ip_out(struct __sk_buff *skb, const void *data, const void *end)
{
	const struct iphdr *ip = data + ETH_HLEN;
	struct persona *p;
	__be32 source;

	if ((const void *)(ip + 1) > end)
		return refuse(REFUSED_MALFORMED);
	source = ip->saddr;
	p = bpf_map_lookup_elem(&personas, &source);
	if (!p)
		return vacant(source) ? refuse(REFUSED_UNLEASED_SOURCE) : TC_ACT_OK;
	__sync_fetch_and_add(&p->tx_packets, wire_packets(skb));
	__sync_fetch_and_add(&p->tx_bytes, skb->len - ETH_HLEN);
	if (p->session)
		return onto_line(skb, p, bpf_ntohs(ip->tot_len), PPP_IPV4);
	bpf_skb_store_bytes(skb, ETH_ALEN, p->mac, ETH_ALEN, 0);
	return TC_ACT_OK;
}

#include "persona6.h"

/* to_lan sees what leaves the host. */
SEC("tc")
int to_lan(struct __sk_buff *skb)
{
	const void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	switch (skb->protocol) {
	case bpf_htons(ETH_P_IP):
		return ip_out(skb, data, end);
	case bpf_htons(ETH_P_IPV6):
		return ip6_out(skb, data, end);
	case bpf_htons(ETH_P_ARP):
		return arp_out(skb, data, end);
	}
	return TC_ACT_OK;
}

/* answer makes a question for a client's address into the client's answer. */
static __always_inline int answer(struct __sk_buff *skb, const struct arp *question, struct persona *p)
{
	struct arp a = *question;

	__sync_fetch_and_add(&p->arp_answered, 1);
	__builtin_memcpy(a.target_mac, question->sender_mac, ETH_ALEN);
	a.target = question->sender;
	__builtin_memcpy(a.sender_mac, p->mac, ETH_ALEN);
	a.sender = question->target;
	a.operation = ARP_REPLY;
	bpf_skb_store_bytes(skb, 0, a.target_mac, ETH_ALEN, 0);
	bpf_skb_store_bytes(skb, ETH_ALEN, a.sender_mac, ETH_ALEN, 0);
	bpf_skb_store_bytes(skb, ETH_HLEN, &a, sizeof(a), 0);
	return bpf_redirect(skb->ifindex, 0);
}

static __always_inline int arp_in(struct __sk_buff *skb, const void *data, const void *end)
{
	const struct ethhdr *eth = data;
	const struct arp *a = data + ETH_HLEN;
	struct persona *p;
	__be32 target;

	if ((const void *)(a + 1) > end)
		return refuse(REFUSED_MALFORMED);
	target = a->target;
	p = bpf_map_lookup_elem(&personas, &target);
	if (!p) /* the kernel holds every address of the LAN for its own and would answer */
		return vacant(target) ? refuse(REFUSED_UNLEASED_QUESTION) : TC_ACT_OK;
	if (!(eth->h_dest[0] & 1) && !same_mac(eth->h_dest, p->mac)) {
		__sync_fetch_and_add(&p->misdirected, 1);
		return TC_ACT_SHOT;
	}
	if (a->operation == ARP_REQUEST)
		return answer(skb, a, p);
	bpf_skb_change_type(skb, PACKET_HOST); /* an answer the kernel may have asked for */
	return TC_ACT_OK;
}

static __always_inline int ip_in(struct __sk_buff *skb, const void *data, const void *end)
{
	const struct ethhdr *eth = data;
	const struct iphdr *ip = data + ETH_HLEN;
	const struct udphdr *udp = (const void *)(ip + 1);
	struct persona *p;
	__be32 dest;

	if ((const void *)(ip + 1) > end)
		return refuse(REFUSED_MALFORMED);
	/* The DHCP engine's packet socket, which comes before this program, has it. */
	if (ip->protocol == IPPROTO_UDP && ip->ihl == 5 && (const void *)(udp + 1) <= end && udp->dest == DHCP_CLIENT)
		return TC_ACT_SHOT;
	dest = ip->daddr;
	p = bpf_map_lookup_elem(&personas, &dest);
	if (!p)
		return vacant(dest) ? refuse(REFUSED_UNLEASED_DESTINATION) : TC_ACT_OK;
	if (p->session || !same_mac(eth->h_dest, p->mac)) {
		__sync_fetch_and_add(&p->misdirected, 1);
		return TC_ACT_SHOT;
	}
	__sync_fetch_and_add(&p->rx_packets, wire_packets(skb));
	__sync_fetch_and_add(&p->rx_bytes, skb->len - ETH_HLEN);
	bpf_skb_change_type(skb, PACKET_HOST);
	return TC_ACT_OK;
}

/* line_in takes a packet of a session out of it. What else sessions carry is for the packet socket. */
static __always_inline int line_in(struct __sk_buff *skb)
{
	struct {
		struct ethhdr eth;
		struct pppoe_header h;
		struct iphdr ip;
	} __attribute__((packed)) head;
	struct persona *p;
	__u16 session = 0;

	if (bpf_skb_load_bytes(skb, 0, &head, sizeof(head)) || head.h.kind != PPPOE_DATA)
		return TC_ACT_OK;
	if (head.h.protocol == PPP_IPV6)
		return line6_in(skb);
	if (head.h.protocol != PPP_IPV4)
		return TC_ACT_OK;
	p = bpf_map_lookup_elem(&personas, &head.ip.daddr);
	if (!p)
		return refuse(REFUSED_UNLEASED_DESTINATION);
	if (head.h.session != p->session || !same_mac(head.eth.h_dest, p->mac) || !same_mac(head.eth.h_source, p->ac)) {
		__sync_fetch_and_add(&p->misdirected, 1);
		return TC_ACT_SHOT;
	}
	if (strip_pppoe(skb, &session) != IS_DATA)
		return refuse(REFUSED_MALFORMED);
	__sync_fetch_and_add(&p->rx_packets, 1);
	__sync_fetch_and_add(&p->rx_bytes, bpf_ntohs(head.ip.tot_len));
	bpf_skb_change_type(skb, PACKET_HOST);
	return TC_ACT_OK;
}

/* from_lan sees what comes in. */
SEC("tc")
int from_lan(struct __sk_buff *skb)
{
	const void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	switch (skb->protocol) {
	case bpf_htons(ETH_P_IP):
		return ip_in(skb, data, end);
	case bpf_htons(ETH_P_IPV6):
		return ip6_in(skb, data, end);
	case bpf_htons(ETH_P_ARP):
		return arp_in(skb, data, end);
	case bpf_htons(ETH_P_PPP_DATA):
		return line_in(skb);
	}
	return TC_ACT_OK;
}
