/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reading a packet that leaves, for learn.bpf.c. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>

#include "conntrack.h"

#define IP_MF_OFFSET 0x3fff

/* A packet that leaves. */
struct leaving {
	__be32 saddr, daddr;
	__be16 sport, dport;
	__u16 most; /* bytes, of one segment */
	__u8 protocol, tos, reset, answers;
	__u8 dmac[ETH_ALEN], smac[ETH_ALEN];
	__u8 state; /* as the rules met it: the connection may have an answer since */
};

/* state_of returns a packet's state of connection tracking. */
static __always_inline __u8 state_of(struct __sk_buff *skb)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(skb);

	return packet->_nfct & IP_CT_MASK;
}

/* read_leaving reads a packet; 0: not one that is learned of. */
static __always_inline int read_leaving(struct __sk_buff *skb, struct leaving *l)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	struct udphdr *udp = (void *)(ip + 1);
	struct tcphdr *tcp = (void *)(ip + 1);
	__u32 headers = sizeof(*ip), bytes = skb->len - ETH_HLEN;

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || skb->vlan_present)
		return 0;
	if (ip->version != 4 || ip->ihl != 5 || (ip->frag_off & bpf_htons(IP_MF_OFFSET)))
		return 0;
	*l = (struct leaving){
		.saddr = ip->saddr, .daddr = ip->daddr, .sport = udp->source, .dport = udp->dest,
			.protocol = ip->protocol, .tos = ip->tos,
	};
	__builtin_memcpy(l->dmac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(l->smac, eth->h_source, ETH_ALEN);
	if (ip->protocol == IPPROTO_TCP) {
		if ((void *)(tcp + 1) > end)
			return 0;
		l->reset = tcp->rst;
		if (!tcp->rst && (!tcp->ack || tcp->syn || tcp->fin))
			return 0;
		headers += tcp->doff * 4;
	} else if (ip->protocol != IPPROTO_UDP || skb->gso_size) {
		return 0;
	}
	l->most = skb->gso_size ? headers + skb->gso_size : bytes;
	l->state = state_of(skb);
	return 1;
}
