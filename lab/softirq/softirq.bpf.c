//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Shares out the time of the softirq that polls links (NET_RX) among the links, and counts the time of interrupt
 * handlers. The kernel has a tracepoint at the end of each poll of a link. The time of that poll runs from the end of
 * the poll before it in the same softirq, or else from the beginning of the softirq. Time of interrupt handlers in
 * between is subtracted. Polls by threads are in no softirq, and do not count. */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NET_RX_SOFTIRQ 3 /* include/linux/interrupt.h */

/* Parts of the kernel's structures. The loader finds the fields' places by BTF. */
struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

struct napi_struct {
	struct net_device *dev;
} __attribute__((preserve_access_index));

/* A link: key of polled. */
struct port {
	__u32 ifindex;
	__u32 netns; /* inode of its network namespace */
};

/* What a CPU has done so far for a link or an interrupt. */
struct work {
	__u64 ns;
	__u64 times;  /* polls, or calls of a handler */
	__u64 frames; /* frames that the polls have taken; 0 for handlers */
};

/* What a CPU does now. Times are of CLOCK_MONOTONIC, ns. */
struct moment {
	__u64 since; /* when the present poll began; 0: no softirq polls links now */
	__u64 irq;   /* when the present interrupt handler began; 0: none runs */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct moment);
} now SEC(".maps");

/* Work of polls, by link. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct port);
	__type(value, struct work);
} polled SEC(".maps");

/* Work of handlers, by the number of the interrupt. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct work);
} handled SEC(".maps");

/* Returns what this CPU does now. */
static __always_inline struct moment *moment(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&now, &zero);
}

/* Adds ns nanoseconds, one poll or call, and n frames to the entry of a map. */
static __always_inline void add(void *map, void *key, __u64 ns, __u64 n)
{
	struct work *w = bpf_map_lookup_elem(map, key);
	if (!w) {
		struct work none = {};
		bpf_map_update_elem(map, key, &none, BPF_NOEXIST);
		w = bpf_map_lookup_elem(map, key);
		if (!w)
			return; /* the map is full */
	}
	w->ns += ns;
	w->times++;
	w->frames += n;
}

/* A softirq begins. Argument 0: its number. */
SEC("raw_tp/softirq_entry")
int softirq_entry(struct bpf_raw_tracepoint_args *ctx)
{
	struct moment *m = moment();
	if (m && ctx->args[0] == NET_RX_SOFTIRQ)
		m->since = bpf_ktime_get_ns();
	return 0;
}

/* A softirq ends. Argument 0: its number. */
SEC("raw_tp/softirq_exit")
int softirq_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct moment *m = moment();
	if (m && ctx->args[0] == NET_RX_SOFTIRQ)
		m->since = 0;
	return 0;
}

/* A poll has ended. Arguments: the link's struct napi_struct, and the number of frames that the poll took. */
SEC("raw_tp/napi_poll")
int napi_poll(struct bpf_raw_tracepoint_args *ctx)
{
	struct moment *m = moment();
	if (!m || !m->since)
		return 0;
	__u64 ns = bpf_ktime_get_ns(), since = m->since;
	m->since = ns;
	struct napi_struct *napi = (void *)ctx->args[0];
	struct net_device *dev = BPF_CORE_READ(napi, dev);
	struct port key = {};
	if (dev) {
		key.ifindex = BPF_CORE_READ(dev, ifindex);
		key.netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	}
	add(&polled, &key, ns - since, ctx->args[1]);
	return 0;
}

/* An interrupt handler begins. */
SEC("raw_tp/irq_handler_entry")
int irq_entry(struct bpf_raw_tracepoint_args *ctx)
{
	struct moment *m = moment();
	if (m)
		m->irq = bpf_ktime_get_ns();
	return 0;
}

/* An interrupt handler ends. Argument 0: the number of the interrupt. */
SEC("raw_tp/irq_handler_exit")
int irq_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct moment *m = moment();
	if (!m || !m->irq)
		return 0;
	__u64 ns = bpf_ktime_get_ns() - m->irq;
	__u32 irq = ctx->args[0];
	m->irq = 0;
	if (m->since) /* the poll that was interrupted is not charged for the handler */
		m->since += ns;
	add(&handled, &irq, ns, 0);
	return 0;
}
