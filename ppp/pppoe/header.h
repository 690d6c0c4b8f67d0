/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The header of a PPPoE session's packets (RFC 2516, 6) in programs at tc. */
#pragma once

#define ETH_P_PPP_DATA 0x8864
#define PPP_IPV4 bpf_htons(0x0021)
#define PPP_IPV6 bpf_htons(0x0057)
#define PPPOE_DATA bpf_htons(0x1100) /* version 1, type 1, code 0 */
#define PPPOE_LEN 8                   /* bytes of both headers */

struct pppoe_header {
	__be16 kind; /* version, type, code */
	__be16 session;
	__be16 length; /* of what follows, PPP's protocol included */
	__be16 protocol;
} __attribute__((packed));

/* What strip_pppoe found. */
enum pppoe_verdict { IS_DATA, NOT_DATA, BAD_PPPOE };

/* take_pppoe_off takes the header off a packet of an IP protocol. bpf_skb_adjust_room
 * takes bytes only from packets that the kernel knows to be IP, and no helper says so of others.
 * Those for VLAN tags do: what is below a tag that is removed becomes the packet's protocol. The
 * first tag goes into the packet when the second one is added. */
static __always_inline enum pppoe_verdict take_pppoe_off(struct __sk_buff *skb, __be16 protocol)
{
	if (bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), 1) ||
		bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), 1) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN + 2, &protocol, sizeof(protocol), 0) ||
	    bpf_skb_vlan_pop(skb) || bpf_skb_vlan_pop(skb) ||
	    bpf_skb_adjust_room(skb, -PPPOE_LEN, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return BAD_PPPOE;
	return IS_DATA;
}

/* strip_pppoe takes the header off an IPv4 packet and returns the session. */
static __always_inline enum pppoe_verdict strip_pppoe(struct __sk_buff *skb, __u16 *session)
{
	void *data, *end;
	struct pppoe_header *h;
	struct iphdr *packet;
	__u32 length;

	if (bpf_skb_pull_data(skb, skb->len < ETH_HLEN + PPPOE_LEN + 40 ? skb->len
		: ETH_HLEN + PPPOE_LEN + 40))
		return BAD_PPPOE;
	data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
	h = data + ETH_HLEN;
	packet = (void *)(h + 1);
	if ((void *)(h + 1) > end)
		return BAD_PPPOE;
	if (h->kind != PPPOE_DATA || h->protocol != PPP_IPV4)
		return NOT_DATA;
	length = bpf_ntohs(h->length);
	if ((void *)(packet + 1) > end ||
		length < sizeof(h->protocol) + bpf_ntohs(packet->tot_len) ||
			ETH_HLEN + PPPOE_LEN - sizeof(h->protocol) + length > skb->len)
		return BAD_PPPOE;
	*session = h->session;
	return take_pppoe_off(skb, bpf_htons(ETH_P_IP));
}

/* retype has the kernel take the type in the frame for the packet's protocol, as strip_pppoe
 * does. An interface that computes checksums of IP only would otherwise look for IP's header
 * where PPPoE's is, and queues would not find the flow. */
static __always_inline int retype(struct __sk_buff *skb)
{
	return bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), 1) ||
		bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), 1) ||
	       bpf_skb_vlan_pop(skb) || bpf_skb_vlan_pop(skb);
}
