//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Two ways to capture frames. count is attached to tc at ingress and egress: it counts frames by their size and lets
 * them pass. take and take_whole are attached to XDP: they hand incoming frames to an AF_XDP socket.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TC_ACT_UNSPEC -1 /* the next program at tc decides */

#define VLAN_TAG 4 /* bytes of a VLAN tag */

/* Sizes that are counted apart: 0 to SIZES - 1 bytes. Longer frames count as SIZES - 1. */
#define SIZES (1 << 14)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * Frames by CPU and size: entry CPU * SIZES + size. Each CPU has entries of its own, and a program at tc is not
 * interrupted by another one on its CPU, so count needs no atomic operation.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SIZES); /* Go multiplies it by the machine's possible CPUs */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} sizes SEC(".maps");

SEC("tc")
int count(struct __sk_buff *skb)
{
	/* The kernel keeps the outer VLAN tag in the frame's metadata; skb->len is without it. */
	__u32 whole = skb->len + (skb->vlan_present ? VLAN_TAG : 0);
	__u32 bytes = whole < SIZES ? whole : SIZES - 1;
	__u32 place = bpf_get_smp_processor_id() * SIZES + bytes;
	__u64 *frames = bpf_map_lookup_elem(&sizes, &place);

	if (frames)
		(*frames)++;
	return TC_ACT_UNSPEC;
}

/* The AF_XDP socket of each receive queue of the interface. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* take hands a frame to the socket of its queue. Without a socket the frame goes on to the network stack. */
SEC("xdp")
int take(struct xdp_md *frame)
{
	return bpf_redirect_map(&sockets, frame->rx_queue_index, XDP_PASS);
}

/* Kernel function: the VLAN tag that the driver keeps in the frame's metadata. It returns 0 if there is one. */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto, __u16 *vlan_tci) __ksym;

/* The two addresses with which an Ethernet frame begins: 12 bytes. */
struct addresses {
	__u16 words[6];
};

/* The beginning of a frame with a VLAN tag. */
struct tagged {
	struct addresses addresses;
	__be16 protocol; /* of the tag: 802.1Q or 802.1ad */
	__be16 tci; /* tag control information: priority and VLAN number */
} __attribute__((packed));

/* take_whole is take for drivers that report the VLAN tag of a frame: it puts the tag back into the frame. */
SEC("xdp")
int take_whole(struct xdp_md *frame)
{
	__u32 queue = frame->rx_queue_index;
	struct tagged *head;
	struct addresses *old;
	__be16 protocol;
	__u16 tci;

	if (!bpf_map_lookup_elem(&sockets, &queue))
		return XDP_PASS;
	if (bpf_xdp_metadata_rx_vlan_tag(frame, &protocol, &tci) == 0 && bpf_xdp_adjust_head(frame, -VLAN_TAG) == 0) {
		head = (void *)(long)frame->data;
		old = (void *)head + VLAN_TAG;
		if ((void *)(old + 1) > (void *)(long)frame->data_end)
			return XDP_DROP; /* for the verifier: every frame has addresses */
		head->addresses = *old;
		head->protocol = protocol;
		head->tci = bpf_htons(tci);
	}
	return bpf_redirect_map(&sockets, queue, XDP_DROP);
}
