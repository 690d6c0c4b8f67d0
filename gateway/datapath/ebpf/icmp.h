/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* ICMP errors (RFC 792). */
#pragma once

#include "packet.h"

#define QUOTED (sizeof(struct iphdr) + 8) /* of the packet an ICMP error is about (RFC 792) */
#define ERROR_LEN (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct icmphdr) + QUOTED)

/* unreachable turns a packet without IP options into the ICMP error "destination unreachable"
 * that answers it, with a code and an MTU (RFC 1191, 4), for the way back. source is the
 * error's. The stack is not used for this, because it would first check whether the address is
 * local. It returns -1 on errors. */
__noinline int unreachable(struct __sk_buff *skb, __be32 source, __u8 code, __u32 mtu)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	struct icmphdr *icmp = (void *)(ip + 1);
	__u8 quoted[QUOTED], to[ETH_ALEN], from[ETH_ALEN];
	__be32 saddr;

	if ((void *)ip + QUOTED > end || ip->ihl != 5)
		return -1;
	saddr = ip->saddr;
	__builtin_memcpy(quoted, ip, QUOTED);
	__builtin_memcpy(to, eth->h_source, ETH_ALEN);
	__builtin_memcpy(from, eth->h_dest, ETH_ALEN);
	if (from[0] & 1)
		copy_lan_mac(from);

	if (bpf_skb_change_tail(skb, ERROR_LEN, 0))
		return -1;
	data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
	if (data + ERROR_LEN > end)
		return -1;
	eth = data, ip = data + ETH_HLEN, icmp = (void *)(ip + 1);

	__builtin_memcpy(eth->h_dest, to, ETH_ALEN);
	__builtin_memcpy(eth->h_source, from, ETH_ALEN);
	*ip = (struct iphdr){
		.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_ICMP,
		.tot_len = bpf_htons(ERROR_LEN - ETH_HLEN), .saddr = source, .daddr = saddr,
	};
	ip->check = ~fold(bpf_csum_diff(0, 0, (__be32 *)ip, sizeof(*ip), 0));
	*icmp = (struct icmphdr){ .type = ICMP_DEST_UNREACH, .code = code, .unused = bpf_htonl(mtu) };
	__builtin_memcpy(icmp + 1, quoted, QUOTED);
	icmp->checksum = ~fold(bpf_csum_diff(0, 0, (__be32 *)icmp, sizeof(*icmp) + QUOTED, 0));
	return 0;
}
