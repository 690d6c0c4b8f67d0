//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Frames made in the kernel:
 *
 *	BPF_PROG_RUN, live frames -> send_frame -> link	once for each frame, or each look at the clock
 *				     taken	<- link		once for each batch: what the link took
 *
 * The kernel hands send_frame used pages again and again, so a frame costs no allocation, no
 * system call and no copy but its first 60 bytes. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SLOTS (1 << 16)
#define MAX_LIVE 3072 /* bytes of a frame: a page less the kernel's own data */
#define BATCH 16      /* frames that the kernel hands to a link at once (DEV_MAP_BULK_SIZE) */

#define CATCH_UP 64   /* frames that a sender that loses frames sends at once after it was held up: catchUp */
#define LOST_MOST 64  /* batches lost in a row after which the link counts as unfit */
#define EOPNOTSUPP 95

#define MIN_BYTES6 80 /* frames.MinBytes6 */

#define MAGIC bpf_htons(0x4757) /* frames.Magic */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A frame of the plan. */
struct slot {
	__u64 due;   /* ns since the start */
	__u64 left;  /* ns since the start, once sent */
	__u64 which; /* stream and number, as in the stamp */
	__u32 bytes;
	__u32 stream;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* Where sending stands; counts of slots since the start. Always taken <= made <= produced. */
struct control {
	/* Written by user space. */
	__u64 produced;
	__u32 stop;
	__u32 loses; /* what the link refuses is lost, and not made again */
	__u64 apart[6]; /* a cache line for each writer */
	/* Written by what sends. */
	__u64 start;   /* CLOCK_MONOTONIC, ns; 0 until the first look at the clock */
	__u64 made;    /* handed to the kernel */
	__u64 taken;   /* taken by the link */
	__u64 refused; /* attempts that the link refused */
	__u64 shift;   /* ns by which the plan is behind, for good */
	__u64 lost;    /* batches that never reached the link, in a row: made again */
	__u32 calls;   /* of send_frame */
	__u32 cpu;     /* where the current batch is made */
	__s32 error;   /* the link's own, with which it refused a whole batch */
	__u32 gone;    /* the link no longer exists */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} controls SEC(".maps");

/* What all frames of a stream begin with; lengths and checksums are 0. Sums are of 16-bit words
 * as they lie in memory. */
struct head {
	/* Ethernet, IPv4 and UDP: 42; Ethernet, IPv6 and UDP: 62. Where streams of both families share the
	 * pages of frames, those of IPv4 have after the stamp what a frame of IPv6 wrote over. */
	__u8 bytes[MIN_BYTES6];
	__u32 ip_sum;
	__u32 udp_sum; /* with the pseudo-header, without any length; of IPv6 less the payload up to MIN_BYTES6 */
	__u32 v6;      /* 1: a frame of IPv6 */
	__u32 shares;  /* 1: pages are shared with frames of IPv6, and frames have at least MIN_BYTES6 */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* user space knows how many */
	__type(key, __u32);
	__type(value, struct head);
} heads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} link SEC(".maps");

/* Sum of the payload after the stamp in a frame of so many bytes. */
volatile const __u16 payload_sums[MAX_LIVE + 1];

static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __always_inline __u64 halves(__u64 v) { return (v & 0xffffffff) + (v >> 32); }

/* The frame's head, stamp and checksums. */
static __always_inline void write_frame(void *data, const struct head *h, const struct slot *s, __u32 bytes, __u64 now)
{
	struct iphdr *ip = data + ETH_HLEN;
	struct udphdr *udp = (void *)(ip + 1);
	__u64 which = bpf_cpu_to_be64(s->which), sent = bpf_cpu_to_be64(now);
	__be16 ip_len = bpf_htons(bytes - ETH_HLEN), udp_len = bpf_htons(bytes - ETH_HLEN - sizeof(*ip));

	__builtin_memcpy(data, h->bytes, 42);
	ip->tot_len = ip_len;
	ip->check = ~folded((__u64)h->ip_sum + ip_len);
	udp->len = udp_len;
	*(__u16 *)(data + 42) = MAGIC;
	*(__u64 *)(data + 44) = which;
	*(__u64 *)(data + 52) = sent;
	__u16 sum = ~folded((__u64)h->udp_sum + 2 * (__u64)udp_len + MAGIC + halves(which) + halves(sent) +
			    payload_sums[bytes]);
	udp->check = sum ? sum : 0xffff;
}

/* The same of a frame of IPv6, which has no checksum of its own. */
static __always_inline void write_frame6(void *data, const struct head *h, const struct slot *s, __u32 bytes,
					 __u64 now)
{
	struct ipv6hdr *ip = data + ETH_HLEN;
	struct udphdr *udp = (void *)(ip + 1);
	__u64 which = bpf_cpu_to_be64(s->which), sent = bpf_cpu_to_be64(now);
	__be16 udp_len = bpf_htons(bytes - ETH_HLEN - sizeof(*ip));

	__builtin_memcpy(data, h->bytes, 62);
	ip->payload_len = udp_len;
	udp->len = udp_len;
	*(__u16 *)(data + 62) = MAGIC;
	*(__u64 *)(data + 64) = which;
	*(__u64 *)(data + 72) = sent;

	__u16 sum = ~folded((__u64)h->udp_sum + 2 * (__u64)udp_len + MAGIC + halves(which) + halves(sent) +
			    payload_sums[bytes]);

	udp->check = sum ? sum : 0xffff;
}

/* Makes a frame of 60 bytes or more; of a stream of IPv6, or one beside such, of MIN_BYTES6 or more. */
static __always_inline bool make(void *data, const void *end, const struct head *h, const struct slot *s,
				 __u32 bytes, __u64 now)
{
	if (!h->v6 && !h->shares) {
		write_frame(data, h, s, bytes, now);
		return true;
	}
	if (data + MIN_BYTES6 > end)
		return false;
	if (h->v6) {
		write_frame6(data, h, s, bytes, now);
		return true;
	}
	write_frame(data, h, s, bytes, now);
	__builtin_memcpy(data + 60, h->bytes + 60, MIN_BYTES6 - 60);
	return true;
}

/* Where more frames wait than may be caught up, the rest of the plan is sent later. */
static __always_inline void give_up(struct control *c, const struct slot *s, __u64 now)
{
	__u64 after = c->made + CATCH_UP;
	__u32 place = after % SLOTS;
	struct slot *later = bpf_map_lookup_elem(&slots, &place);
	if (later && after < *(volatile __u64 *)&c->produced && later->due > s->due && later->due + c->shift <= now - c->start)
		c->shift = now - c->start - s->due;
}

/* The slot whose turn it is, or nothing where none is due. */
static __always_inline struct slot *due_slot(struct control *c, __u64 now)
{
	if (c->calls++ % BATCH == 0 && c->made != c->taken) {
		c->made = c->taken;
		if (++c->lost == LOST_MOST) {
			c->error = -EOPNOTSUPP;
			c->stop = 1;
		}
	}
	if (c->stop || c->made >= *(volatile __u64 *)&c->produced)
		return 0;
	if (!c->start)
		c->start = now;
	__u32 place = c->made % SLOTS;
	struct slot *s = bpf_map_lookup_elem(&slots, &place);
	if (!s || now - c->start < s->due + c->shift)
		return 0;
	if (c->loses)
		give_up(c, s, now);
	return s;
}

/* Makes the next frame if it is due. Without waiting here, other work of this CPU goes on. */
SEC("xdp") int send_frame(struct xdp_md *ctx)
{
	__u32 zero = 0;
	long length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	struct control *c = bpf_map_lookup_elem(&controls, &zero);
	if (!c)
		return XDP_ABORTED;
	__u64 now = bpf_ktime_get_ns();
	struct slot *s = due_slot(c, now);
	if (!s)
		return XDP_DROP;
	__u32 bytes = s->bytes, stream = s->stream;
	if (bytes > MAX_LIVE)
		return XDP_ABORTED;
	struct head *h = bpf_map_lookup_elem(&heads, &stream);
	if (!h || (bytes != length && bpf_xdp_adjust_tail(ctx, (int)(bytes - length))))
		return XDP_ABORTED;
	void *data = (void *)(long)ctx->data;
	if (data + 60 > (void *)(long)ctx->data_end || !make(data, (void *)(long)ctx->data_end, h, s, bytes, now))
		return XDP_ABORTED;
	int verdict = bpf_redirect_map(&link, 0, XDP_ABORTED);
	if (verdict != XDP_REDIRECT) {
		c->gone = c->stop = 1;
		return verdict;
	}
	s->left = now - c->start;
	c->cpu = bpf_get_smp_processor_id();
	c->made++;
	return verdict;
}

/* Hears what the link took of a batch. A batch is made and handed over on one CPU without
 * interruption, so while frames of this sender are made and not taken, the CPU's next batch is
 * this one. A link takes frames in order: what it refuses is the batch's end. */
SEC("raw_tp/xdp_devmap_xmit") int taken(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 zero = 0;
	struct control *c = bpf_map_lookup_elem(&controls, &zero);
	if (!c || c->made == c->taken || c->cpu != bpf_get_smp_processor_id())
		return 0;
	int sent = ctx->args[2], refused = ctx->args[3], error = ctx->args[4];
	if (sent < 0)
		return 0;
	c->lost = 0;
	c->taken += sent;
	if (refused > 0) {
		c->refused += refused;
		if (c->loses && error >= 0) /* else they are made again, by the other engine */
			c->taken += refused;
		c->made = c->taken;
	}
	if (error < 0) {
		c->error = error;
		c->stop = 1;
	}
	return 0;
}
