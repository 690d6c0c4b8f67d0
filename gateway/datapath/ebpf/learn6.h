/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Learning flows of IPv6, see learn.bpf.c. */
#pragma once

#include <linux/ipv6.h>

#include "flow6.h"

/* An IPv6 packet that leaves. */
struct leaving6 {
	/* what is alike with IPv4; saddr and daddr are sums of the addresses, which do for is_known:
	 * of two flows with the same sums the second is learned 10 ms later */
	struct leaving of;
	struct addr6 saddr, daddr;
	__be32 head; /* see flow6_path */
};

static __always_inline __be32 short_of6(struct addr6 a)
{
	__u64 both = (a.high ^ a.low) * 0x9e3779b97f4a7c15ULL;

	return both >> 32;
}

/* read_leaving6 reads a packet; 0: not one that is learned of. */
static __always_inline int read_leaving6(struct __sk_buff *skb, struct leaving6 *l)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct ipv6hdr *ip = data + ETH_HLEN;
	struct udphdr *udp = (void *)(ip + 1);
	struct tcphdr *tcp = (void *)(ip + 1);
	__u32 headers = sizeof(*ip), bytes = skb->len - ETH_HLEN;

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IPV6) || skb->vlan_present ||
		ip->version != 6)
		return 0;
	__builtin_memcpy(&l->saddr, &ip->saddr, sizeof(l->saddr));
	__builtin_memcpy(&l->daddr, &ip->daddr, sizeof(l->daddr));
	l->head = head6_of(ip);
	l->of = (struct leaving){
		.saddr = short_of6(l->saddr), .daddr = short_of6(l->daddr), .sport = udp->source,
			.dport = udp->dest, .protocol = ip->nexthdr,
	};
	__builtin_memcpy(l->of.dmac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(l->of.smac, eth->h_source, ETH_ALEN);
	if (ip->nexthdr == IPPROTO_TCP) {
		if ((void *)(tcp + 1) > end)
			return 0;
		l->of.reset = tcp->rst;
		if (!tcp->rst && (!tcp->ack || tcp->syn || tcp->fin))
			return 0;
		headers += tcp->doff * 4;
	} else if (ip->nexthdr != IPPROTO_UDP || skb->gso_size) {
		return 0;
	}
	l->of.most = skb->gso_size ? headers + skb->gso_size : bytes;
	l->of.state = state_of(skb);
	return 1;
}

/* is_settled6 is is_settled for IPv6. */
static __always_inline int is_settled6(const struct flow_settings *s, const struct flow6_path *was,
	const struct flow6_key *against, const struct flow6_path *is)
{
	struct flow6_path *back;

	if (!s->marks)
		return 1;
	back = bpf_map_lookup_elem(&flow6_paths, against);
	if (back && back->generation == is->generation && back->ct_mark != is->ct_mark) {
		back->until = 0;
		back->generation = 0;
		return 0;
	}
	return was && was->generation == is->generation && was->ct_mark == is->ct_mark;
}

/* is_same_entry6 is is_same_entry for IPv6. */
static __always_inline int is_same_entry6(const struct flow6_key *k, const struct flow6_path *was,
	const struct flow6_path *is, __u64 now)
{
	if (was->until <= now || was->generation != is->generation || was->most < is->most ||
		was->answers != is->answers || was->head != is->head)
		return 0;
	if (was->mark != is->mark || was->priority != is->priority || was->ct_mark != is->ct_mark)
		return 0;
	return same_address(was->dmac, is->dmac) && same_address(was->smac, is->smac) &&
		was->sum == sum_of6(k, was);
}

/* enter_flow6 is enter_flow for IPv6. slot is the client's. */
static __always_inline int enter_flow6(struct __sk_buff *skb, struct nf_conn *ct,
	const struct flow_settings *s, struct flow6_key *k, const struct leaving6 *l, __u32 slot, __u64 now)
{
	struct flow6_path p = {
		.generation = s->generation, .head = l->head, .mark = skb->mark, .priority = skb->priority,
		.most = l->of.most, .answers = l->of.answers,
	};
	struct flow6_key against = answer_to6(k);
	struct flow6_path *was = bpf_map_lookup_elem(&flow6_paths, k);

	__builtin_memcpy(p.dmac, l->of.dmac, ETH_ALEN);
	__builtin_memcpy(p.smac, l->of.smac, ETH_ALEN);
	if (bpf_core_field_exists(ct->mark))
		p.ct_mark = ct->mark;
	if (was && !s->marks && is_same_entry6(k, was, &p, now))
		return 1;
	if ((!was || was->generation != s->generation) && !may_learn(slot, now))
		return 0;
	if (is_settled6(s, was, &against, &p))
		p.until = now + entry_life(ct, l->of.answers);
	if (was && was->until > now && was->generation == s->generation && was->most > p.most)
		p.most = was->most;
	p.sum = sum_of6(k, &p);
	if (was)
		*was = p;
	else
		bpf_map_update_elem(&flow6_paths, k, &p, BPF_ANY);
	stamp_flow6(k);
	/* It may have been deleted meanwhile, and forget have run before this entry was made. */
	if (!(*(volatile unsigned long *)&ct->status & DYING))
		return 1;
	bpf_map_delete_elem(&flow6_paths, k);
	return 0;
}

/* enter_answer6 is enter_answer for IPv6. */
static __always_inline void enter_answer6(const struct flow6_key *k, __u32 slot, __u64 now)
{
	struct flow6_key back = answer_to6(k);
	struct flow6_path p = { .answers = ANSWER };

	if (!may_learn(slot, now))
		return;
	p.sum = sum_of6(&back, &p);
	bpf_map_update_elem(&flow6_paths, &back, &p, BPF_ANY);
}

/* key_of_tuple6 reads a direction of a connection: its packets as they come in. */
static __always_inline void key_of_tuple6(const struct nf_conntrack_tuple *t, struct flow6_key *k)
{
	__be32 *from = (void *)&k->saddr, *to = (void *)&k->daddr;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		from[i] = t->src.u3.ip6[i];
		to[i] = t->dst.u3.ip6[i];
	}
	k->sport = t->src.u.all;
	k->dport = t->dst.u.all;
}

/* is_untranslated6 reports whether packets come in with the addresses and ports with which they
 * leave. That those of the other direction do so too is in the connection's being found by them. */
static __always_inline int is_untranslated6(const struct flow6_key *in, const struct leaving6 *l)
{
	return in->saddr.high == l->saddr.high && in->saddr.low == l->saddr.low &&
	       in->daddr.high == l->daddr.high && in->daddr.low == l->daddr.low &&
	       in->sport == l->of.sport && in->dport == l->of.dport;
}

/* owner6 is the client that has an address, or a network with it behind itself. */
static __always_inline const struct client *owner6(struct addr6 addr)
{
	const struct client *c = bpf_map_lookup_elem(&clients6, &addr);
	struct garden6_prefix key = { .bits = 128 };

	if (c)
		return c;
	__builtin_memcpy(key.addr, &addr, sizeof(key.addr));
	return bpf_map_lookup_elem(&networks6, &key);
}

/* learn_flow6 is learn_flow for IPv6. */
static __always_inline int learn_flow6(struct __sk_buff *skb, enum side side)
{
	const struct flow_settings *s;
	struct bpf_ct_opts opts = { .netns_id = -1 };
	struct bpf_sock_tuple answer = {};
	struct flow6_key k = { .side = side };
	__u32 zero = 0, which = SETTINGS_OF_FLOWS6;
	const struct client *c;
	struct learned *last;
	struct leaving6 l;
	struct nf_conn *ct;
	__u64 now;

	s = bpf_map_lookup_elem(&flow_settings, &which);
	last = bpf_map_lookup_elem(&last_learned, &zero);
	now = bpf_ktime_get_coarse_ns();
	if (!s || !last || now >= s->until || !read_leaving6(skb, &l) || is_known(skb, last, &l.of, s, now))
		return TC_ACT_UNSPEC;
	c = owner6(side == FROM_LAN ? l.saddr : l.daddr);
	if (!c)
		return TC_ACT_UNSPEC;
	__builtin_memcpy(answer.ipv6.saddr, &l.daddr, sizeof(answer.ipv6.saddr));
	__builtin_memcpy(answer.ipv6.daddr, &l.saddr, sizeof(answer.ipv6.daddr));
	answer.ipv6.sport = l.of.dport, answer.ipv6.dport = l.of.sport;
	opts.l4proto = k.protocol = l.of.protocol;
	ct = bpf_skb_ct_lookup(skb, &answer, sizeof(answer.ipv6), &opts, sizeof(opts));
	if (!ct)
		return TC_ACT_UNSPEC;
	if (opts.dir) /* the answer's */
		key_of_tuple6(&ct->tuplehash[0].tuple, &k);
	else
		key_of_tuple6(&ct->tuplehash[1].tuple, &k);
	if (!is_untranslated6(&k, &l)) {
		/* the stack translates it */
	} else if (is_lasting(ct, &l.of)) {
		if (!l.of.reset && enter_flow6(skb, ct, s, &k, &l, c->slot_offset, now))
			remember(skb, last, &l.of, s, now);
		else if (l.of.reset && bpf_map_lookup_elem(&flow6_paths, &k))
			bpf_ct_change_timeout(ct, CLOSE_MS);
	} else if (s->unanswered && is_unanswered(ct, &l.of)) {
		enter_answer6(&k, c->slot_offset, now);
		l.of.answers = UNANSWERED;
		enter_flow6(skb, ct, s, &k, &l, c->slot_offset, now);
	}
	bpf_ct_release(ct);
	return TC_ACT_UNSPEC;
}
