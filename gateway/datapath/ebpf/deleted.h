/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The end of connections: once connection tracking has deleted one, its flow's entries go. */
#pragma once

#include "flow6.h"

/* The message that connection tracking sends when a connection is gone: struct nlmsghdr, struct
 * nfgenmsg, and attributes, of which the kernel writes the first two in this order. Numbers in
 * network order. */
struct deleted_tuple {
	__u16 bytes, type;
	__u32 ip_attr, src_attr;
	__u32 src;
	__u32 dst_attr;
	__u32 dst;
	__u32 proto_attr, number_attr;
	__u8 protocol, pad[3];
	__u32 sport_attr;
	__u16 sport, pad2;
	__u32 dport_attr;
	__u16 dport, pad3;
};

struct deleted {
	__u32 bytes;
	__u16 type, flags;
	__u32 sequence, port;
	__u8 family, version;
	__u16 resource;
	struct deleted_tuple tuples[2];
};

#define CT_DELETE (1 << 8 | 2) /* NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE */
#define NESTED 0x8000

/* The same of IPv6 (CTA_IP_V6_SRC, CTA_IP_V6_DST). */
struct deleted6_tuple {
	__u16 bytes, type;
	__u32 ip_attr, src_attr;
	__u8 src[16];
	__u32 dst_attr;
	__u8 dst[16];
	__u32 proto_attr, number_attr;
	__u8 protocol, pad[3];
	__u32 sport_attr;
	__u16 sport, pad2;
	__u32 dport_attr;
	__u16 dport, pad3;
};

/* forget6 is forget for IPv6. */
static __always_inline void forget6(struct __sk_buff *skb)
{
	__u32 at = offsetof(struct deleted, tuples);

	for (int i = 0; i < 2; i++, at += sizeof(struct deleted6_tuple)) {
		struct deleted6_tuple t;
		struct flow6_key k;

		if (bpf_skb_load_bytes(skb, at, &t, sizeof(t)) || t.type != (NESTED | (i + 1)) ||
			t.bytes != sizeof(t))
			return;
		k.sport = t.sport, k.dport = t.dport, k.protocol = t.protocol;
		__builtin_memcpy(&k.saddr, t.src, sizeof(k.saddr));
		__builtin_memcpy(&k.daddr, t.dst, sizeof(k.daddr));
		k.side = FROM_LAN;
		bpf_map_delete_elem(&flow6_paths, &k);
		stamp_flow6(&k);
		k.side = FROM_WAN;
		bpf_map_delete_elem(&flow6_paths, &k);
		stamp_flow6(&k);
	}
}

/* forget removes the entries of a connection that the kernel has deleted, before whoever deleted
 * it goes on. It is the filter of a netlink socket, which receives nothing. */
SEC("socket")
int forget(struct __sk_buff *skb)
{
	struct deleted g;

	if (bpf_skb_load_bytes(skb, 0, &g, sizeof(g)) || g.type != CT_DELETE)
		return 0;
	if (g.family == 10)
		forget6(skb);
	if (g.family != 2)
		return 0;
	for (int i = 0; i < 2; i++) {
		const struct deleted_tuple *t = &g.tuples[i];
		struct flow_key k = { .saddr = t->src, .daddr = t->dst, .sport = t->sport,
			.dport = t->dport, .protocol = t->protocol };

		/* CTA_TUPLE_ORIG, CTA_TUPLE_REPLY */
		if (t->type != (NESTED | (i + 1)) || t->bytes != sizeof(*t))
			return 0;
		k.side = FROM_LAN;
		bpf_map_delete_elem(&flow_paths, &k);
		k.side = FROM_WAN;
		bpf_map_delete_elem(&flow_paths, &k);
	}
	return 0;
}
