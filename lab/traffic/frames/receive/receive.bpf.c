//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Accounts for each frame of the generator that an interface receives, and drops it there.
 *
 * Several CPUs may run this at once. What depends on the order of a stream's frames is under the
 * stream's lock; sums are per CPU, and user space adds them up. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TC_ACT_UNSPEC -1 /* on to the next program */
#define TC_ACT_SHOT 2

#define MAGIC bpf_htons(0x4757)
#define MAX_BYTES 9014
#define FRAGMENT bpf_htons(0x3fff) /* more of them, or not the first */

/* Delays in buckets: one for each ns below 64, then 64 for each doubling, up to 2^41 ns. */
#define SUB_BITS 6
#define TOP_BIT 40
#define DELAYS ((TOP_BIT - SUB_BITS + 2) << SUB_BITS)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

volatile const __be16 port;
volatile const __s64 shift; /* ns, of this clock to the sender's */
volatile const __u64 words; /* of a stream in seen */

/* What the payload begins with. */
struct stamp {
	__be16 magic;
	__be16 stream;
	__be16 number_high;
	__be32 number_low;
	__be32 sent_high, sent_low;
} __attribute__((packed));

/* A frame of the generator, up to the end of its stamp. */
struct frame {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct stamp stamp;
} __attribute__((packed));

struct frame6 {
	struct ethhdr eth;
	struct ipv6hdr ip;
	struct udphdr udp;
	struct stamp stamp;
} __attribute__((packed));

/* Duplicates are in frames, bytes and duplicates, and in nothing else. */
struct stream {
	struct bpf_spin_lock lock;
	__u64 frames, bytes, duplicates;
	__u64 next;      /* RFC 4737: one more than the highest number so far */
	__u64 reordered; /* came after a higher number */
	__u64 jitter16;  /* RFC 3550: ns, times 16 */
	__s64 transit;   /* of the last frame, ns */
	__u64 delay_sum, delay_min, delay_max;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* user space knows how many */
	__type(key, __u32);
	__type(value, struct stream);
} streams SEC(".maps");

/* One bit for each number of each stream. A word belongs to one stream, whose lock guards it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(map_flags, BPF_F_MMAPABLE); /* to clear it quickly */
	__type(value, __u64);
} seen SEC(".maps");

/* Frames that are not accounted for one by one. */
struct cpu {
	__u64 foreign; /* not the generator's */
	__u64 tagged;  /* the generator's behind a VLAN tag: foreign too */
	__u64 stray;   /* of a stream or with a number beyond those expected */
	__u64 merged;  /* the generator's, several in one buffer: not accounted for */
	__u64 early;   /* arrived before they were sent: the ends have two clocks */
	__u64 sizes[MAX_BYTES + 1];
	__u64 delays[DELAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* one for each possible CPU */
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

static __always_inline bool ours(const struct frame *f)
{
	return f->eth.h_proto == bpf_htons(ETH_P_IP) && f->ip.version == 4 && f->ip.ihl == 5 && f->ip.protocol == IPPROTO_UDP &&
	       !(f->ip.frag_off & FRAGMENT) && f->udp.dest == port && f->stamp.magic == MAGIC;
}

static __always_inline bool ours6(const struct frame6 *f)
{
	return f->eth.h_proto == bpf_htons(ETH_P_IPV6) && f->ip.version == 6 && f->ip.nexthdr == IPPROTO_UDP &&
	       f->udp.dest == port && f->stamp.magic == MAGIC;
}

/* tagged says whether a frame of the generator follows a VLAN tag. The kernel has already moved a first
 * tag out of the frame. */
static __always_inline bool tagged(struct __sk_buff *skb, const struct frame *f)
{
	struct frame inner;
	struct frame6 inner6;

	if (f->eth.h_proto != bpf_htons(ETH_P_8021Q) && f->eth.h_proto != bpf_htons(ETH_P_8021AD))
		return false;
	return (!bpf_skb_load_bytes(skb, 4, &inner, sizeof inner) && ours(&inner)) ||
	       (!bpf_skb_load_bytes(skb, 4, &inner6, sizeof inner6) && ours6(&inner6));
}

/* bucket is the place of a delay in a histogram. */
static __always_inline __u32 bucket(__u64 ns)
{
	__u64 v = ns;
	__u32 bit = 0;

	if (ns >> (TOP_BIT + 1))
		return DELAYS - 1;
	if (ns < 1 << SUB_BITS)
		return ns;
	if (v >> 32) { bit += 32; v >>= 32; }
	if (v >> 16) { bit += 16; v >>= 16; }
	if (v >> 8) { bit += 8; v >>= 8; }
	if (v >> 4) { bit += 4; v >>= 4; }
	if (v >> 2) { bit += 2; v >>= 2; }
	bit += v >> 1;
	return ((bit - SUB_BITS + 1) << SUB_BITS) + ((ns >> (bit - SUB_BITS)) & ((1 << SUB_BITS) - 1));
}

/* order updates a stream by a frame that came for the first time. Under the stream's lock. */
static __always_inline void order(struct stream *s, __u64 number, __s64 transit)
{
	__s64 change = transit - s->transit;
	__u64 delay = transit < 0 ? 0 : transit;

	if (number < s->next)
		s->reordered++;
	else
		s->next = number + 1;
	if (s->frames - s->duplicates > 1) { /* RFC 3550, A.8 */
		if (change < 0)
			change = -change;
		s->jitter16 += change - ((s->jitter16 + 8) >> 4);
		if (delay < s->delay_min)
			s->delay_min = delay;
	} else {
		s->delay_min = delay;
	}
	if (delay > s->delay_max)
		s->delay_max = delay;
	s->delay_sum += delay;
	s->transit = transit;
}

static __always_inline int account(struct cpu *c, __u32 stream, __u64 number, __u64 sent, __u32 bytes)
{
	__s64 transit = bpf_ktime_get_ns() + shift - sent;
	__u64 place = stream * words + (number >> 6), bit = 1ull << (number & 63);
	__u32 slot = place;
	struct stream *s = bpf_map_lookup_elem(&streams, &stream);
	__u64 *word = bpf_map_lookup_elem(&seen, &slot);
	bool again;

	if (!s || !word || number >> 6 >= words) {
		c->stray++;
		return TC_ACT_SHOT;
	}
	bpf_spin_lock(&s->lock);
	again = *word & bit;
	*word |= bit;
	s->frames++;
	s->bytes += bytes;
	if (again)
		s->duplicates++;
	else
		order(s, number, transit);
	bpf_spin_unlock(&s->lock);
	if (bytes <= MAX_BYTES)
		c->sizes[bytes]++;
	if (again)
		return TC_ACT_SHOT;
	if (transit < 0) {
		c->early++;
		transit = 0;
	}
	slot = bucket(transit);
	if (slot < DELAYS)
		c->delays[slot]++;
	return TC_ACT_SHOT;
}

/* judge_ours accounts for a frame of the generator with a stamp. */
static __always_inline int judge_ours(struct __sk_buff *skb, struct cpu *c, const struct stamp *s)
{
	if (skb->vlan_present) {
		c->tagged++;
		c->foreign++;
		return TC_ACT_UNSPEC;
	}
	if (skb->gso_segs > 1) {
		c->merged++;
		return TC_ACT_SHOT;
	}
	return account(c, bpf_ntohs(s->stream), (__u64)bpf_ntohs(s->number_high) << 32 | bpf_ntohl(s->number_low),
		       (__u64)bpf_ntohl(s->sent_high) << 32 | bpf_ntohl(s->sent_low), skb->len);
}

static __always_inline int judge(struct __sk_buff *skb, struct cpu *c, const struct frame *f)
{
	if (ours(f))
		return judge_ours(skb, c, &f->stamp);
	if (tagged(skb, f))
		c->tagged++;
	c->foreign++;
	return TC_ACT_UNSPEC;
}

/* judge6 is judge for a packet of IPv6; copy has room for one that does not lie in one piece. */
static __always_inline int judge6(struct __sk_buff *skb, struct cpu *c, const void *data, const void *end)
{
	const struct frame6 *f = data;
	struct frame6 copy;

	if (data + sizeof copy > end) {
		if (bpf_skb_load_bytes(skb, 0, &copy, sizeof copy)) {
			c->foreign++;
			return TC_ACT_UNSPEC;
		}
		f = &copy;
	}
	if (ours6(f))
		return judge_ours(skb, c, &f->stamp);
	c->foreign++;
	return TC_ACT_UNSPEC;
}

SEC("tc")
int receive(struct __sk_buff *skb)
{
	const void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu *c = bpf_map_lookup_elem(&cpus, &cpu);
	struct frame copy;

	if (!c)
		return TC_ACT_UNSPEC;
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return judge6(skb, c, data, end);
	if (data + sizeof copy <= end)
		return judge(skb, c, data);
	/* Too short, or its bytes lie in pages: a packet ring's, or a long frame's. */
	if (bpf_skb_load_bytes(skb, 0, &copy, sizeof copy)) {
		c->foreign++;
		return TC_ACT_UNSPEC;
	}
	return judge(skb, c, &copy);
}
