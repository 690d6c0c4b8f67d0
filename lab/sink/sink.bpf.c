//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Counts frames by their size where they pass, or hands them to an AF_XDP socket. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define TC_ACT_UNSPEC -1 /* on to the next program */

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
	__u32 bytes = skb->len < SIZES ? skb->len : SIZES - 1;
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
