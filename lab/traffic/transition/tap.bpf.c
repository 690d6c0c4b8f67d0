//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Notes when frames of chosen lengths pass an interface: those of probes, in the clear or inside a tunnel's packets. All
 * other frames cost one look into a table. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TC_ACT_UNSPEC -1 /* on to the next program */

#define LENGTHS 2048 /* longer frames are no probes */
#define MAGIC 0x47575452 /* "GWTR": how a probe's payload begins */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Lengths of frames, with their Ethernet header, that are noted. */
volatile __u8 wanted[LENGTHS];

/* Events that found no room. */
volatile __u64 lost;

/* A frame that passed. */
struct event {
	__u64 at_ns; /* CLOCK_MONOTONIC */
	__u32 interface;
	__u32 number; /* of the probe, which it has in the clear; 0: not known */
	__u32 bytes;  /* with the Ethernet header */
	__u32 run;    /* that the probe belongs to */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
	__type(value, struct event);
} events SEC(".maps");

/* A probe's payload, and how it begins. */
struct head {
	__be32 magic, run, number;
};

/* Finds the head of a probe that travels in the clear. */
static __always_inline int read_head(struct __sk_buff *skb, struct head *head)
{
	struct iphdr ip;
	__be16 protocol;
	__u8 offset;
	__u32 tcp;

	if (bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_proto), &protocol, sizeof(protocol)) || protocol != bpf_htons(ETH_P_IP))
		return 0;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.protocol != IPPROTO_TCP)
		return 0;
	tcp = ETH_HLEN + ip.ihl * 4;
	if (bpf_skb_load_bytes(skb, tcp + 12, &offset, sizeof(offset)))
		return 0;
	if (bpf_skb_load_bytes(skb, tcp + (offset >> 4) * 4, head, sizeof(*head)))
		return 0;
	return head->magic == bpf_htonl(MAGIC);
}

SEC("tc")
int tap(struct __sk_buff *skb)
{
	__u32 bytes = skb->len;
	struct event *e;
	struct head head;

	if (bytes >= LENGTHS || !wanted[bytes])
		return TC_ACT_UNSPEC;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		__sync_fetch_and_add(&lost, 1);
		return TC_ACT_UNSPEC;
	}
	e->at_ns = bpf_ktime_get_ns();
	e->interface = skb->ifindex;
	e->bytes = bytes;
	e->number = 0;
	e->run = 0;
	if (read_head(skb, &head)) {
		e->run = bpf_ntohl(head.run);
		e->number = bpf_ntohl(head.number);
	}
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return TC_ACT_UNSPEC;
}
