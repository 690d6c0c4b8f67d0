//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Packets that the kernel sends to the TUN device are copied, ahead of the device, into
 * rings that the daemon reads without a system call:
 *
 *	kernel -> to_clients -> ring of a thread -> daemon
 *	              \
 *	               -> the device's queue -> daemon, by read(2)
 *
 * The queue gets packets that do not fit into a record, with a note in the ring at their
 * position, and the first packet after a thread went to sleep, which it wakes: the bell
 * records its position between the records. Both are visible before the packet is in
 * the queue, so the thread waits for it there. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The longest packet in a record, bytes: the MTU of Ethernet. */
enum { PACKET_LEN = 1500 };

/* A packet in a ring. */
struct record {
	__u16 len;        /* bytes; 0: the packet is in the device's queue */
	__u16 flags;      /* VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_F_DATA_VALID */
	__u16 sum_start;  /* as in struct virtio_net_hdr, from the packet's begin */
	__u16 sum_offset;
	__u8 packet[1504];
};
const struct record *of_record __attribute__((unused)); /* for its type to be generated */

/* Shared state of a thread and the program; each on its own cache line. */
struct bell {
	__u32 armed; /* the thread sleeps, or is about to: the next packet is to wake it */
	__u32 pad;
	/* who woke it, until the thread has seen that: SOMEBODY, and its place in the ring */
	__u64 rung;
	__u64 lost;  /* packets that did not fit in the ring */
	__u64 pad2[5];
};

/* Positions are multiples of 8. */
enum { SOMEBODY = 1 };

enum { MAX_THREADS = 16 };

/* The number of threads; the device's queues belong to them, in the same order. */
volatile const __u32 threads = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32);
	__type(value, struct bell);
} bells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_RINGBUF);
		__uint(max_entries, 1 << 20);
	});
} rings SEC(".maps");

/* The kernel's own structure (6.2): the state of the checksum. */
struct sk_buff {
	unsigned char *head, *data;
	__u16 csum_start, csum_offset;
	__u8 ip_summed : 2;
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* include/linux/skbuff.h */
enum { CHECKSUM_UNNECESSARY = 1, CHECKSUM_PARTIAL = 3 };
/* linux/virtio_net.h */
enum { NEEDS_CSUM = 1, DATA_VALID = 2 };

static __always_inline void note_sum(struct record *r, struct __sk_buff *ctx)
{
	const struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	__u8 summed = BPF_CORE_READ_BITFIELD(skb, ip_summed);

	r->flags = r->sum_start = r->sum_offset = 0;
	if (summed == CHECKSUM_PARTIAL) {
		r->flags = NEEDS_CSUM;
		r->sum_start = skb->csum_start - (__u16)((__u64)skb->data - (__u64)skb->head);
		r->sum_offset = skb->csum_offset;
	} else if (summed == CHECKSUM_UNNECESSARY) {
		r->flags = DATA_VALID;
	}
}

/* wake sends a packet through the queue. Existing records of its flow come before it,
 * later ones after it. The thread does not arm the bell again until it has read this. */
static __always_inline int wake(struct bell *bell, void *ring)
{
	*(volatile __u64 *)&bell->rung = bpf_ringbuf_query(ring, BPF_RB_PROD_POS) | SOMEBODY;
	return TC_ACT_OK;
}

SEC("tcx/egress")
int to_clients(struct __sk_buff *skb)
{
	__u32 at = threads > 1 ? (__u16)bpf_get_hash_recalc(skb) % threads : 0;
	struct bell *bell = bpf_map_lookup_elem(&bells, &at);
	void *ring = bpf_map_lookup_elem(&rings, &at);
	__u32 len = skb->len;
	struct record *r;

	if (!bell || !ring)
		return TC_ACT_OK;
	if (skb->protocol != bpf_htons(ETH_P_IP))
		return TC_ACT_SHOT; /* the kernel looks for IPv6 neighbours, say */
	if (bell->armed && __sync_lock_test_and_set(&bell->armed, 0))
		return wake(bell, ring);
	r = bpf_ringbuf_reserve(ring, sizeof(*r), 0);
	if (!r) {
		__sync_fetch_and_add(&bell->lost, 1);
		return TC_ACT_SHOT;
	}
	/* From here on the thread sees that there is a record. It may have gone to sleep
	 * just before. */
	if (__sync_lock_test_and_set(&bell->armed, 0)) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return wake(bell, ring);
	}
	/* The gateway's own packets are not dropped here: their sender would count them as lost. */
	r->len = 0;
	if (len <= PACKET_LEN && len && !skb->gso_size && skb->ingress_ifindex &&
		!bpf_skb_load_bytes(skb, 0, r->packet, len)) {
		note_sum(r, skb);
		r->len = len;
	}
	len = r->len;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return len ? TC_ACT_SHOT : TC_ACT_OK;
}

/* steer chooses the device's queue as to_clients, which ran before, chooses the ring: by
 * the hash that to_clients computed. The device takes 16 bits of the result modulo its queues. */
SEC("socket")
int steer(struct __sk_buff *skb)
{
	return skb->hash;
}

char _license[] SEC("license") = "Dual BSD/GPL";
