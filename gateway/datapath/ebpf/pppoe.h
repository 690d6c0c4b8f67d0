/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* PPP over Ethernet (RFC 2516): lan_in takes the header of clients on PPPoE off, and lan_out puts
 * it on. Between the two their packets are like all others.
 *
 *	client ── PPPoE ──▶ lan_in: strip_pppoe ─▶ ip_in ──▶ redirect, stack
 *	client ◀── PPPoE ── lan_out: to_pppoe_session ◀── redirect, stack
 *	               ▲        │ aggregated packets, and those longer than the session's MTU
 *	               └─ cut_in ◀── veth without offloads, which cuts aggregated ones
 */
#pragma once

#include "icmp.h"
#include "../../../ppp/pppoe/header.h"

/* is_ipv6_session reports whether a frame of a session has an IPv6 packet. */
static __always_inline int is_ipv6_session(struct __sk_buff *skb)
{
	struct pppoe_header h;

	return !bpf_skb_load_bytes(skb, ETH_HLEN, &h, sizeof(h)) && h.kind == PPPOE_DATA &&
		h.protocol == PPP_IPV6;
}

#define MSS_KIND 2
#define MSS_LEN 4

#define OPTIONS_READ 6

/* clamp_tcp lowers the MSS that a SYN offers (RFC 9293, 3.7.1), for senders that do not learn of ICMP's
 * "too big". It looks at the first options: systems send the MSS as the first or second. start is the
 * place of TCP's header in the frame. */
__noinline int clamp_tcp(struct __sk_buff *skb, __u32 start, __u32 mss)
{
	__u32 at = start + sizeof(struct tcphdr), last;
	__be16 most = bpf_htons(mss);
	struct tcphdr tcp;

	if (bpf_skb_load_bytes(skb, start, &tcp, sizeof(tcp)) || !tcp.syn)
		return 0;
	last = start + tcp.doff * 4;
	for (int i = 0; i < OPTIONS_READ; i++) {
		__u8 option[MSS_LEN];
		__be16 offered;

		if (at + 1 >= last || bpf_skb_load_bytes(skb, at, option, 2) || !option[0])
			return 0;
		if (option[0] == 1) { /* no operation */
			at++;
			continue;
		}
		if (option[1] < 2)
			return 0;
		if (option[0] != MSS_KIND || option[1] != MSS_LEN) {
			at += option[1];
			continue;
		}
		if (at + MSS_LEN > last || bpf_skb_load_bytes(skb, at + 2, &offered, sizeof(offered)))
			return 0;
		if (bpf_ntohs(offered) <= bpf_ntohs(most))
			return 0;
		/* The checksum's sum is of words: at an odd place the two bytes are swapped in
		 * it. */
		if (at & 1)
			bpf_l4_csum_replace(skb, start + offsetof(struct tcphdr, check),
				bpf_htons(bpf_ntohs(offered) << 8 | bpf_ntohs(offered) >> 8),
				bpf_htons(bpf_ntohs(most) << 8 | bpf_ntohs(most) >> 8), 2);
		else
			bpf_l4_csum_replace(skb, start + offsetof(struct tcphdr, check), offered, most, 2);
		return bpf_skb_store_bytes(skb, at + 2, &most, sizeof(most), 0);
	}
	return 0;
}

/* clamp lowers the MSS that a SYN offers to what fits into the session's MTU. */
__noinline int clamp(struct __sk_buff *skb, __u32 mtu)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;

	if (data + ETH_HLEN + sizeof(*ip) + sizeof(struct tcphdr) > end || ip->ihl != 5 ||
		ip->protocol != IPPROTO_TCP || is_fragment(ip))
		return 0;
	return clamp_tcp(skb, ETH_HLEN + sizeof(*ip), mtu - sizeof(struct iphdr) - sizeof(struct tcphdr));
}

/* put_pppoe puts the header on a packet that is no longer than the session's MTU. */
static __always_inline int put_pppoe(struct __sk_buff *skb, const struct client *c, __u32 bytes,
	__be16 protocol)
{
	struct {
		__u8 to[ETH_ALEN], from[ETH_ALEN];
		__be16 type;
		struct pppoe_header h;
	} __attribute__((packed)) head = {
		.type = bpf_htons(ETH_P_PPP_DATA),
		.h = { .kind = PPPOE_DATA, .session = c->session, .protocol = protocol },
	};

	head.h.length = bpf_htons(bytes + sizeof(head.h.protocol));
	__builtin_memcpy(head.to, c->mac, ETH_ALEN);
	copy_lan_mac(head.from);
	if (bpf_skb_adjust_room(skb, PPPOE_LEN, BPF_ADJ_ROOM_MAC, 0) || bpf_skb_store_bytes(skb, 0,
		&head, sizeof(head), 0) || retype(skb))
		return drop(skb, REASON_MALFORMED);
	return TC_ACT_OK;
}

/* client_of_session is the client that a packet to the LAN is for, if it is on PPPoE; NULL: it is
 * not. bytes are the packet's, without Ethernet's padding. */
static __always_inline const struct client *client_of_session(struct __sk_buff *skb, __u32 *bytes)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	const struct client *c;
	__u32 at;

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return 0;
	at = owner_place(ip->daddr);
	*bytes = bpf_ntohs(ip->tot_len);
	c = bpf_map_lookup_elem(&clients, &at);
	return c && c->session ? c : 0;
}

/* may_split reports whether a packet that is too long for a session may go there in two fragments. */
static __always_inline int may_split(struct __sk_buff *skb, __u32 mtu, __u32 bytes)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;

	return (void *)(ip + 1) <= end && ip->ihl == 5 && !(ip->frag_off & bpf_htons(IP_DF)) &&
		bytes - ((mtu - sizeof(*ip)) & ~7u) <= mtu;
}

/* is_too_long reports whether a packet to a session is longer than that allows, and may not be
 * fragmented, so that its sender has to be told (RFC 1191, 4). No error is sent about an error. */
static __always_inline int is_too_long(struct __sk_buff *skb, const struct iphdr *ip,
	const struct client *c, const void *end)
{
	__u32 bytes = bpf_ntohs(ip->tot_len);

	return c->session && bytes > c->mtu && (ip->frag_off & bpf_htons(IP_DF)) && !skb->gso_size &&
	       (ip->protocol != IPPROTO_ICMP || is_echo(ip, end));
}

/* to_pppoe_session sends a packet that lan_out let pass to a client's PPPoE session. The length in the header is
 * that of one packet, so aggregated ones are cut first, by a link that can send no others. */
static __always_inline int to_pppoe_session(struct __sk_buff *skb, int verdict)
{
	__u32 bytes = 0;
	const struct client *c = client_of_session(skb, &bytes);

	if (!c)
		return verdict;
	clamp(skb, c->mtu);
	if (skb->gso_size)
		return bpf_redirect(cutter_ifindex, 0);
	if (bytes > c->mtu) /* by way of the cutter, which completes the checksum of the whole */
		return bpf_redirect(cutter_ifindex, 0);
	return put_pppoe(skb, c, bytes, PPP_IPV4);
}

/* rewrite changes the length and the fragment's place in a packet's header. */
static __always_inline int rewrite(struct __sk_buff *skb, __be16 was_len, __be16 len,
	__be16 was_place, __be16 place)
{
	return bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), was_len, len,
		sizeof(len)) ||
	       bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), was_place, place,
		sizeof(place)) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, tot_len), &len,
		sizeof(len), 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, frag_off), &place,
		sizeof(place), 0);
}

#define TAIL 0x6a780000 /* skb->mark of a packet of which cut_in is to send the second fragment */

/* split makes a packet one of its two fragments (RFC 791, 3.2), and returns its new length; 0 on
 * errors. */
__noinline int split(struct __sk_buff *skb, __u32 mtu, int tail)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 first = (mtu - sizeof(*ip)) & ~7u, bytes;
	__be16 len, place, part;

	if ((void *)(ip + 1) > end)
		return 0;
	len = ip->tot_len, place = ip->frag_off, bytes = bpf_ntohs(len);
	if (first > 1480 || bytes <= sizeof(*ip) + first)
		return 0;
	if (tail) {
		bytes -= first;
		part = bpf_htons(bpf_ntohs(place) + first / 8);
		if (bpf_skb_adjust_room(skb, -(__s32)first, BPF_ADJ_ROOM_NET, 0))
			return 0;
	} else {
		bytes = sizeof(*ip) + first;
		part = place | bpf_htons(IP_MF);
		if (bpf_skb_change_tail(skb, ETH_HLEN + bytes, 0))
			return 0;
	}
	return rewrite(skb, len, bpf_htons(bytes), place, part) ? 0 : bytes;
}

#define TOO_LONG 0x6a780001 /* skb->mark of an ICMP error that lan_in is to leave to the stack */

/* refuse_long tells the sender of a packet that is longer than its session's MTU and may not be
 * fragmented. The error comes from the LAN in the client's name, because the stack takes none
 * from an own address: netfilter then translates it, and what it quotes, as it does with errors
 * of routers behind the client. A mark does not cross from other namespaces, so nobody's packets
 * are taken for it. */
static __always_inline int refuse_long(struct __sk_buff *skb, const struct client *c)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;

	if ((void *)(ip + 1) > end || !is_too_long(skb, ip, c, end) || unreachable(skb, ip->daddr,
		ICMP_FRAG_NEEDED, c->mtu))
		return drop(skb, REASON_MALFORMED);
	skb->mark = TOO_LONG;
	return bpf_redirect(lan.ifindex, BPF_F_INGRESS);
}

/* cut4_in receives what the cutter has cut, and cuts in two what is longer than the session's MTU. */
static __always_inline int cut4_in(struct __sk_buff *skb)
{
	__u32 bytes = 0;
	const struct client *c = client_of_session(skb, &bytes);

	if (!c || skb->gso_size)
		return TC_ACT_SHOT;
	if (bytes > c->mtu) {
		int tail = skb->mark == TAIL;

		if (!may_split(skb, c->mtu, bytes))
			return refuse_long(skb, c);
		if (!tail) {
			__u32 was = skb->mark;

			skb->mark = TAIL;
			bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
			skb->mark = was;
		}
		bytes = split(skb, c->mtu, tail);
		if (!bytes)
			return TC_ACT_SHOT;
	}
	if (put_pppoe(skb, c, bytes, PPP_IPV4) != TC_ACT_OK)
		return TC_ACT_SHOT;
	return bpf_redirect(lan.ifindex, 0);
}
