//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Learning flows, at tc where packets leave, behind all of netfilter: the packet shows what the
 * stack made of it, and connection tracking what it was. These programs need kernel functions
 * that not all kernels have, so they are apart from the gateway's. */
#include <bpf/bpf_core_read.h>

#include "conntrack.h"
#include "deleted.h"
#include "flow.h"
#include "leaving.h"
#include "network.h"
#include "tally.h"

#define TC_ACT_UNSPEC (-1)
#define JUDGED 0x6a77 /* as in packet.h: sent here by the cache, or by lan_in */

#define TCP_ESTABLISHED 3
#define CLOSE_MS 10000 /* the kernel's nf_conntrack_tcp_timeout_close */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* user space: the size of the LAN */
	__type(key, __u32);
	__type(value, struct flow_count);
} flow_counts SEC(".maps");

/* Places of flow_tallies that were given back, and the first of those never used. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, TALLIES);
	__type(value, __u32);
} free_tallies SEC(".maps");

/* The packet by which a CPU last made or found an entry. */
#define LATELY_NS 10000000ULL
struct learned {
	struct leaving of;
	__u32 mark, priority, generation;
	__u64 until; /* ns of CLOCK_MONOTONIC, coarse */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct learned);
} last_learned SEC(".maps");

__u64 fresh_tallies = 1;

volatile const __u64 tick_ns; /* of a jiffy */

/* may_learn reports whether a client may have another entry, and counts it. */
static __always_inline int may_learn(__u32 at, __u64 now)
{
	struct flow_count *c = bpf_map_lookup_elem(&flow_counts, &at);

	if (!c)
		return 0;
	if (now - c->since >= COUNT_NS) {
		c->since = now;
		c->n = 0;
	}
	return c->n++ < FLOWS_OF_CLIENT;
}

/* extension finds an extension of a connection; 0: it has none. */
#define extension(ct, id)                                                   \
	(bpf_core_enum_value_exists(enum nf_ct_ext_id, id) ?                \
		 extension_at(ct, bpf_core_enum_value(enum nf_ct_ext_id, id)) : 0)

static __always_inline const void *extension_at(struct nf_conn *ct, __u32 id)
{
	const void *ext = ct->ext;
	__u8 offset = 0;

	if (ext)
		bpf_probe_read_kernel(&offset, sizeof(offset), ext + id);
	return offset ? ext + offset : 0;
}

/* begun_at returns when a connection began, in ns since 1970; 0: unknown. */
static __always_inline __u64 begun_at(struct nf_conn *ct)
{
	const void *stamp = extension(ct, NF_CT_EXT_TSTAMP);
	__u64 start = 0;

	if (stamp)
		bpf_probe_read_kernel(&start, sizeof(start), stamp);
	return start;
}

/* take_tally takes a free place; 0: there is none. */
static __always_inline __u32 take_tally(void)
{
	__u32 at;

	if (!bpf_map_pop_elem(&free_tallies, &at))
		return at;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u64 was = *(volatile __u64 *)&fresh_tallies;

		if (was >= TALLIES)
			return 0;
		if (__sync_val_compare_and_swap(&fresh_tallies, was, was + 1) == was)
			return was;
	}
	return 0;
}

/* tally_of returns where a connection's packets are tallied; 0: there is no room, or the end of
 * this connection could not be told from that of another. */
static __always_inline __u32 tally_of(struct nf_conn *ct, __u8 protocol)
{
	const struct nf_conntrack_tuple *t = &ct->tuplehash[0].tuple;
	struct tally_key k = {
		.start = begun_at(ct), .saddr = t->src.u3.ip, .daddr = t->dst.u3.ip,
			.sport = t->src.u.all, .dport = t->dst.u.all, .protocol = protocol,
	};
	__u32 at, *known;

	if (!k.start)
		return 0;
	known = bpf_map_lookup_elem(&flow_tallied, &k);
	if (known)
		return *known;
	at = take_tally();
	if (!at || !bpf_map_update_elem(&flow_tallied, &k, &at, BPF_NOEXIST))
		return at;
	bpf_map_push_elem(&free_tallies, &at, BPF_ANY);
	/* another CPU's, which has a packet of the other direction */
	known = bpf_map_lookup_elem(&flow_tallied, &k);
	return known ? *known : 0;
}

/* is_reported reports whether forget hears of a connection's deletion: the message of one in a
 * zone has more than forget reads. */
static __always_inline int is_reported(struct nf_conn *ct)
{
	const struct nf_conntrack_ecache *e = extension(ct, NF_CT_EXT_ECACHE);

	if (!e || (bpf_core_field_exists(ct->zone) && ct->zone.id))
		return 0;
	return BPF_CORE_READ(e, ctmask) & DESTROYED;
}

/* entry_life returns for how long a connection's packets need not be seen, in ns: a quarter of the
 * time for which connection tracking remembers it, within bounds. */
static __always_inline __u64 entry_life(struct nf_conn *ct, __u8 answers)
{
	__s32 left = *(volatile __u32 *)&ct->timeout - (__u32)bpf_jiffies64();
	__u64 ns = left > 0 ? left * tick_ns / 4 : 0, most = answers == ANSWERED && is_reported(ct)
		? FLOW_NS : UNHEARD_NS;

	if (ns > most)
		ns = most;
	/* up to a quarter less: flows that are learned together part */
	return ns - (ns >> 10) * (bpf_get_prandom_u32() & 0xff);
}

/* answer_to returns the key of packets that answer one. */
static __always_inline struct flow_key answer_to(const struct flow_key *k, const struct leaving *l)
{
	return (struct flow_key){
		.saddr = l->daddr, .daddr = l->saddr, .sport = l->dport, .dport = l->sport,
		.protocol = k->protocol, .side = FROM_LAN + FROM_WAN - k->side,
	};
}

/* is_settled reports whether further packets meet what this one met. Where rules set marks,
 * which may decide about the next packet, the one before must have left the connection with the
 * same mark, by the same settings; the other direction's entry is voided where that has another
 * mark. */
static __always_inline int is_settled(const struct flow_settings *s, const struct flow_path *was,
	const struct flow_key *against, const struct flow_path *is)
{
	struct flow_path *back;

	if (!s->marks)
		return 1;
	back = bpf_map_lookup_elem(&flow_paths, against);
	if (back && back->generation == is->generation && back->ct_mark != is->ct_mark) {
		back->until = 0;
		back->generation = 0;
		return 0;
	}
	return was && was->generation == is->generation && was->ct_mark == is->ct_mark;
}

static __always_inline int same_address(const void *a, const void *b)
{
	const __u16 *x = a, *y = b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

/* is_same_entry reports whether an entry is valid and says what a packet shows: most packets of a
 * poll that began before the entry was there. */
static __always_inline int is_same_entry(const struct flow_key *k, const struct flow_path *was,
	const struct flow_path *is, __u64 now)
{
	if (was->until <= now || was->generation != is->generation || was->most < is->most ||
		was->answers != is->answers)
		return 0;
	if (was->saddr != is->saddr || was->daddr != is->daddr || was->sport != is->sport ||
		was->dport != is->dport || was->at != is->at)
		return 0;
	if (was->mark != is->mark || was->priority != is->priority || was->ct_mark != is->ct_mark ||
		!same_class(was->tos, is->tos))
		return 0;
	return same_address(was->dmac, is->dmac) && same_address(was->smac, is->smac) &&
		was->sum == sum_of(k, was);
}

/* enter_flow makes an entry for packets of one direction, given as they come in; 0: there is
 * none. */
static __always_inline int enter_flow(struct __sk_buff *skb, struct nf_conn *ct,
	const struct flow_settings *s, struct flow_key *k, const struct leaving *l, __u32 at, __u64 now)
{
	struct flow_path p = {
		.generation = s->generation, .at = at, .network = lan.number,
		.saddr = l->saddr, .daddr = l->daddr, .sport = l->sport, .dport = l->dport,
		.mark = skb->mark, .priority = skb->priority, .most = l->most, .tos = l->tos,
			.answers = l->answers,
	};
	struct flow_key against = answer_to(k, l);
	struct flow_path *was = bpf_map_lookup_elem(&flow_paths, k);
	__be32 from[2] = { k->saddr, k->daddr }, to[2] = { l->saddr, l->daddr };
	__be32 from_ports = k->sport | (__u32)k->dport << 16, to_ports = l->sport | (__u32)l->dport << 16;

	__builtin_memcpy(p.dmac, l->dmac, ETH_ALEN);
	__builtin_memcpy(p.smac, l->smac, ETH_ALEN);
	if (bpf_core_field_exists(ct->mark))
		p.ct_mark = ct->mark;
	if (was && !s->marks && is_same_entry(k, was, &p, now))
		return 1;
	if ((!was || was->generation != s->generation) && !may_learn(at, now))
		return 0;
	if (tallying) {
		p.tally = tally_of(ct, k->protocol);
		if (!p.tally)
			return 0;
	}
	if (from[0] != to[0] || from[1] != to[1])
		p.address_diff = bpf_csum_diff(from, sizeof(from), to, sizeof(to), 0);
	if (from_ports != to_ports)
		p.port_diff = bpf_csum_diff(&from_ports, sizeof(from_ports), &to_ports, sizeof(to_ports), 0);
	if (is_settled(s, was, &against, &p))
		p.until = now + entry_life(ct, l->answers);
	if (was && was->until > now && was->generation == s->generation && was->most > p.most)
		p.most = was->most;
	p.sum = sum_of(k, &p);
	/* in place, which is quicker; whoever reads half of it, or has got its memory for
	 * another flow, sees by the sum */
	if (was)
		*was = p;
	else
		bpf_map_update_elem(&flow_paths, k, &p, BPF_ANY);
	/* It may have been deleted meanwhile, and forget have run before this entry was made. */
	if (!(*(volatile unsigned long *)&ct->status & DYING))
		return 1;
	bpf_map_delete_elem(&flow_paths, k);
	return 0;
}

/* enter_answer makes the entry for the answer to an unanswered flow. */
static __always_inline void enter_answer(const struct flow_key *k, const struct leaving *l,
	__u32 at, __u64 now)
{
	struct flow_key back = answer_to(k, l);
	struct flow_path p = { .answers = ANSWER, .at = at, .network = lan.number, .saddr = k->daddr, .daddr = k->saddr,
		.sport = k->dport, .dport = k->sport };

	if (!may_learn(at, now))
		return;
	p.sum = sum_of(&back, &p);
	bpf_map_update_elem(&flow_paths, &back, &p, BPF_ANY);
}

/* is_untouched reports whether nobody but netfilter's rules reads or changes a connection's
 * packets. */
static __always_inline int is_untouched(struct nf_conn *ct)
{
	struct nf_ct_ext *ext = ct->ext;

	if (ct->status & OTHERS)
		return 0;
	return !ext || !ext->offset[0]; /* NF_CT_EXT_HELPER */
}

/* is_lasting reports whether the stack treats all further packets of a connection alike, but for
 * TCP's SYN, FIN and RST: established in both directions, and nobody reads or changes the
 * contents. */
static __always_inline int is_lasting(struct nf_conn *ct, const struct leaving *l)
{
	if (l->state == IP_CT_NEW ||
		(ct->status & (SEEN_REPLY | ASSURED)) != (SEEN_REPLY | ASSURED) || !is_untouched(ct))
		return 0;
	return l->protocol == IPPROTO_UDP || ct->proto.tcp.state == TCP_ESTABLISHED;
}

/* is_unanswered reports whether a connection is UDP's from one side only, and as old as those of
 * both have to be: a port scan fills no cache. */
static __always_inline int is_unanswered(struct nf_conn *ct, const struct leaving *l)
{
	if (l->protocol != IPPROTO_UDP || (ct->status & (EXPECTED | SEEN_REPLY | NAT_CLASH)) ||
		!is_untouched(ct))
		return 0;
	/* Before Linux 6.16 the verifier takes a direct read for one of DCCP's state, which
	 * begins at the same place. */
	return (long)(bpf_jiffies64() - BPF_CORE_READ(ct, proto.udp.stream_ts)) > 0;
}

/* key_of_tuple reads a direction of a connection: its packets as they come in. */
static __always_inline void key_of_tuple(const struct nf_conntrack_tuple *t, struct flow_key *k)
{
	k->saddr = t->src.u3.ip;
	k->daddr = t->dst.u3.ip;
	k->sport = t->src.u.all;
	k->dport = t->dst.u.all;
}

/* is_known reports whether a packet would teach what the last one taught: the rest of a burst,
 * whose packets all came before there was an entry. */
static __always_inline int is_known(struct __sk_buff *skb, const struct learned *last,
	const struct leaving *l, const struct flow_settings *s, __u64 now)
{
	const struct leaving *of = &last->of;

	if (now >= last->until || last->generation != s->generation || of->sport != l->sport ||
		of->dport != l->dport || of->saddr != l->saddr || of->daddr != l->daddr)
		return 0;
	if (of->protocol != l->protocol || of->most < l->most || l->reset ||
		l->state == IP_CT_NEW || !same_class(of->tos, l->tos))
		return 0;
	return last->mark == skb->mark && last->priority == skb->priority &&
		same_address(of->dmac, l->dmac) && same_address(of->smac, l->smac);
}

/* remember notes a packet for is_known. Where rules set marks each packet counts. */
static __always_inline void remember(struct __sk_buff *skb, struct learned *last,
	const struct leaving *l, const struct flow_settings *s, __u64 now)
{
	if (s->marks)
		return;
	last->of = *l;
	last->mark = skb->mark;
	last->priority = skb->priority;
	last->generation = s->generation;
	last->until = now + LATELY_NS;
}

/* learn_flow looks a packet's connection up, by the packet that would answer it. */
static __always_inline int learn_flow(struct __sk_buff *skb, enum side side)
{
	const struct flow_settings *s;
	struct bpf_ct_opts opts = { .netns_id = -1 };
	struct bpf_sock_tuple answer = {};
	struct flow_key k = { .side = side };
	struct learned *last;
	__u32 zero = 0, at;
	struct nf_conn *ct;
	struct leaving l;
	__u64 now;

	s = bpf_map_lookup_elem(&flow_settings, &zero);
	last = bpf_map_lookup_elem(&last_learned, &zero);
	now = bpf_ktime_get_coarse_ns();
	if (!s || !last || now >= s->until || !read_leaving(skb, &l) || is_known(skb, last, &l, s, now))
		return TC_ACT_UNSPEC;
	answer.ipv4.saddr = l.daddr, answer.ipv4.daddr = l.saddr;
	answer.ipv4.sport = l.dport, answer.ipv4.dport = l.sport;
	opts.l4proto = k.protocol = l.protocol;
	ct = bpf_skb_ct_lookup(skb, &answer, sizeof(answer.ipv4), &opts, sizeof(opts));
	if (!ct)
		return TC_ACT_UNSPEC;
	if (opts.dir) /* the answer's */
		key_of_tuple(&ct->tuplehash[0].tuple, &k);
	else
		key_of_tuple(&ct->tuplehash[1].tuple, &k);
	at = place(side == FROM_LAN ? k.saddr : l.daddr);
	if (at < lan.size && is_lasting(ct, &l)) {
		/* Connection tracking has not seen the whole flow, and takes no reset that does not
		 * follow what it saw: its entry would stay for days. */
		if (!l.reset && enter_flow(skb, ct, s, &k, &l, at, now))
			remember(skb, last, &l, s, now);
		else if (l.reset && bpf_map_lookup_elem(&flow_paths, &k))
			bpf_ct_change_timeout(ct, CLOSE_MS);
	} else if (at < lan.size && s->unanswered && is_unanswered(ct, &l)) {
		enter_answer(&k, &l, at, now);
		l.answers = UNANSWERED;
		enter_flow(skb, ct, s, &k, &l, at, now);
	}
	bpf_ct_release(ct);
	return TC_ACT_UNSPEC;
}

#include "learn6.h"

/* learn learns of a packet of either family. */
static __always_inline int learn(struct __sk_buff *skb, enum side side)
{
	return skb->protocol == bpf_htons(ETH_P_IPV6) ? learn_flow6(skb, side) : learn_flow(skb, side);
}

/* forwarded reports whether the stack has forwarded a packet that came in at an interface.
 * Almost all packets are redirected ones, so the programs look at this before anything else. */
static __always_inline int forwarded(const struct __sk_buff *skb, __u32 from)
{
	return skb->tc_index != JUDGED && skb->ingress_ifindex == from;
}

/* learn_up handles packets that leave for the WAN. */
SEC("tc")
int learn_up(struct __sk_buff *skb) { return forwarded(skb, lan.ifindex) ? learn(skb, FROM_LAN)
	: TC_ACT_UNSPEC; }

/* learn_down handles packets that leave for the LAN, behind lan_out. */
SEC("tc")
int learn_down(struct __sk_buff *skb) { return forwarded(skb, wan_ifindex)
	? learn(skb, FROM_WAN) : TC_ACT_UNSPEC; }

char _license[] SEC("license") = "Dual BSD/GPL";
