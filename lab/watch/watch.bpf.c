//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Looks at the clock at each interrupt of a CPU's timer. Nothing but a CPU that is away, or work with
 * interrupts off, delays that interrupt. */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct seen {
	__u64 last;    /* CLOCK_MONOTONIC, ns */
	__u64 longest; /* ns between two interrupts; user space sets it to 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} times SEC(".maps");

SEC("perf_event") int look(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	__u64 now = bpf_ktime_get_ns();
	struct seen *s = bpf_map_lookup_elem(&times, &zero);
	if (!s)
		return 0;
	if (s->last && now - s->last > s->longest)
		s->longest = now - s->last;
	s->last = now;
	return 0;
}
