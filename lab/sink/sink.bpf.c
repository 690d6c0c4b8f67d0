//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Counts frames by their size where they pass, or hands them to an AF_XDP socket. */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TC_ACT_UNSPEC -1 /* on to the next program */

#define VLAN_TAG 4 /* bytes */

#define SIZES (1 << 14) /* longer frames count as the longest of these */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Frames of each size, for each CPU: programs at tc are not interrupted by others at tc on their CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SIZES); /* times the CPUs that the machine may have */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} sizes SEC(".maps");

SEC("tc")
int count(struct __sk_buff *skb)
{
	/* The kernel keeps the outer VLAN tag beside the frame. */
	__u32 whole = skb->len + (skb->vlan_present ? VLAN_TAG : 0);
	__u32 bytes = whole < SIZES ? whole : SIZES - 1;
	__u32 place = bpf_get_smp_processor_id() * SIZES + bytes;
	__u64 *frames = bpf_map_lookup_elem(&sizes, &place);

	if (frames)
		(*frames)++;
	return TC_ACT_UNSPEC;
}

/* The socket of each of the interface's queues. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp")
int take(struct xdp_md *frame)
{
	return bpf_redirect_map(&sockets, frame->rx_queue_index, XDP_PASS);
}

extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto, __u16 *vlan_tci) __ksym;

struct addresses {
	__u16 half[6];
};

struct tagged {
	struct addresses addresses;
	__be16 kind;
	__be16 tci;
} __attribute__((packed));

/* As take, where the driver tells which VLAN tag it keeps beside a frame: the tag is put back. */
SEC("xdp")
int take_whole(struct xdp_md *frame)
{
	__u32 queue = frame->rx_queue_index;
	struct tagged *head;
	struct addresses *old;
	__be16 kind;
	__u16 tci;

	if (!bpf_map_lookup_elem(&sockets, &queue))
		return XDP_PASS;
	if (bpf_xdp_metadata_rx_vlan_tag(frame, &kind, &tci) == 0 && bpf_xdp_adjust_head(frame, -VLAN_TAG) == 0) {
		head = (void *)(long)frame->data;
		old = (void *)head + VLAN_TAG;
		if ((void *)(old + 1) > (void *)(long)frame->data_end)
			return XDP_DROP; /* cannot be: a frame has addresses */
		head->addresses = *old;
		head->kind = kind;
		head->tci = bpf_htons(tci);
	}
	return bpf_redirect_map(&sockets, queue, XDP_DROP);
}
