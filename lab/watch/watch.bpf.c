//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Notes the longest time between two timer interrupts of a CPU. The timer of watch.go has a short period. Only a
 * CPU that is away, or code that runs with interrupts switched off, delays its interrupts. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct seen {
	__u64 last;    /* time of the last interrupt: CLOCK_MONOTONIC, ns */
	__u64 longest; /* ns between two interrupts; user space sets it to 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} times SEC(".maps");

volatile const __u32 watched; /* number of the watched CPU */

SEC("raw_tp/hrtimer_expire_entry") int look(void *ctx)
{
	__u32 zero = 0;
	struct seen *s = bpf_map_lookup_elem(&times, &zero);
	if (!s || bpf_get_smp_processor_id() != watched)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	if (s->last && now - s->last > s->longest)
		s->longest = now - s->last;
	s->last = now;
	return 0;
}
