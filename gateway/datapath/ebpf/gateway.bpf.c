//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Admission, accounting and forwarding of an access gateway, at tc:
 *
 *	client -> lan_in -> (redirect or stack) -> WAN
 *	client <- (redirect or stack) <- wan_in <- WAN
 *	client <- lan_out <- stack <- anywhere where the stack must forward (NAT, firewalls, other interfaces)
 *
 * A packet's cost does not depend on the number of clients: an address's entry is at its place in the network, and
 * names the slot of its client. */
#include "arp.h"
#include "beside.h"
#include "cache.h"
#include "ip6.h"
#include "pppoe6.h"
#include "receive.h"

/* drop_unleased handles a packet from an address of the LAN that is not leased. */
static __always_inline int drop_unleased(struct __sk_buff *skb, const struct ethhdr *eth,
	const struct iphdr *ip)
{
	if (learn && ip->saddr != lan.gateway)
		report_newcomer(skb, ip->saddr, eth->h_source);
	return drop(skb, REASON_NOT_LEASED);
}

/* ip_in handles a packet from a client: session is the PPPoE session it came in, network order, or
 * 0. */
static __always_inline int ip_in(struct __sk_buff *skb, struct ethhdr *eth, const void *end,
	__u16 session)
{
	struct iphdr *ip = (void *)(eth + 1);
	const struct client *c;
	__u64 now;
	__u32 at;

	if (unlikely((void *)(ip + 1) > end || !is_sound(skb, ip)))
		return drop(skb, REASON_MALFORMED);
	if (unlikely(skb->pkt_type == PACKET_OTHERHOST)) /* not for this gateway */
		return TC_ACT_SHOT;
	if (!session && unlikely(ip->protocol == IPPROTO_UDP)) {
		struct ports p = ports_of(ip, end);

		if (p.source == DHCP_SERVER && p.dest == DHCP_CLIENT)
			return drop(skb, REASON_ROGUE_DHCP);
		if (is_request(ip, p))
			return request(skb, eth, ip);
		if (!ip->saddr)
			return drop(skb, REASON_NOT_LEASED);
	}
	at = session ? owner_place(ip->saddr) : place(ip->saddr);
	c = bpf_map_lookup_elem(&clients, &at);
	if (unlikely(!c))
		return drop(skb, REASON_FOREIGN_SOURCE);
	if (unlikely(c->state == STATE_NONE))
		return session ? drop(skb, REASON_NOT_LEASED) : drop_unleased(skb, eth, ip);
	if (unlikely(mac_at(c->mac) != mac_at(eth->h_source) || c->session != session))
		return drop(skb, REASON_WRONG_MAC);
	now = clock_ns();
	if (unlikely(c->state != STATE_ADMITTED || expired(c, now)))
		return session ? drop(skb, REASON_BLOCKED) : preauth(skb, ip, end);
	/* The stack does not forward frames sent to a broadcast address (RFC 1812, 5.3.4). */
	if (unlikely(ip->daddr == lan.gateway || is_multicast(ip->daddr) || skb->pkt_type != PACKET_HOST))
		return pass(skb, REASON_LOCAL);
	if (unlikely(!within_limits(skb, at, c, on_wire(skb, ip, end), 1, now)))
		return TC_ACT_SHOT;
	if (unlikely(place(ip->daddr) < lan.size))
		return forward_across(skb, ip, place(ip->daddr), end, now);
	return forward(skb, eth, ip, end, now);
}

/* clamp_up is clamp for a packet from a client on PPPoE. */
__noinline int clamp_up(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	const struct client *c;
	__u32 at;

	if ((void *)(ip + 1) > end)
		return 0;
	at = owner_place(ip->saddr);
	c = bpf_map_lookup_elem(&clients, &at);
	return c && c->session ? clamp(skb, c->mtu) : 0;
}

#define IN_SESSION6 0x63 /* a verdict: it is an IPv6 packet, see session6_in */

/* session_in handles a frame of a PPPoE session. Those of control protocols go to the
 * concentrator's socket. */
static __always_inline int session_in(struct __sk_buff *skb)
{
	void *data, *end;
	__u16 session = 0;

	switch (strip_pppoe(skb, &session)) {
	case NOT_DATA:
		return !is_ipv6_session(skb) ? TC_ACT_OK : ipv6 ? IN_SESSION6 : drop(skb, REASON_IPV6);
	case BAD_PPPOE:
		return drop(skb, REASON_MALFORMED);
	case IS_DATA:
		break;
	}
	clamp_up(skb);
	data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
	if (data + ETH_HLEN + sizeof(struct iphdr) > end || !session)
		return drop(skb, REASON_MALFORMED);
	return ip_in(skb, data, end, session);
}

/* from_client handles a frame from a client, but those with IPv6. */
__noinline int from_client(struct __sk_buff *skb)
{
	void *data, *end;
	struct ethhdr *eth;

	data = (void *)(long)skb->data, end = (void *)(long)skb->data_end, eth = data;
	if (unlikely((void *)(eth + 1) > end))
		return drop(skb, REASON_MALFORMED);
	switch (eth->h_proto) {
	case bpf_htons(ETH_P_IP):
		if (unlikely(data + ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr) > end)) {
			__u32 want = skb->len < 14 + 20 + 20 ? skb->len : 14 + 20 + 20;

			if (bpf_skb_pull_data(skb, want))
				return drop(skb, REASON_MALFORMED);
			data = (void *)(long)skb->data, end = (void *)(long)skb->data_end, eth = data;
			if ((void *)(eth + 1) > end)
				return drop(skb, REASON_MALFORMED);
		}
		return ip_in(skb, eth, end, 0);
	case bpf_htons(ETH_P_ARP):
		if (bpf_skb_pull_data(skb, ETH_HLEN + sizeof(struct arp)))
			return drop(skb, REASON_MALFORMED);
		data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
		if (data + ETH_HLEN > end)
			return drop(skb, REASON_MALFORMED);
		return arp_in(skb, data, end);
	case bpf_htons(ETH_P_PPP_DATA):
		return lines ? session_in(skb) : TC_ACT_OK;
	case bpf_htons(ETH_P_IPV6):
		return drop(skb, REASON_IPV6);
	case bpf_htons(ETH_P_8021Q): /* a second tag */
	case bpf_htons(ETH_P_8021AD):
		return drop(skb, REASON_MALFORMED);
	}
	return TC_ACT_OK; /* not forwarded by the stack */
}

/* lan_in handles packets from the clients. */
SEC("tc")
int lan_in(struct __sk_buff *skb)
{
	int verdict;

	clear_class(skb);
	skb->cb[0] = 0;
	if (lines && skb->mark == TOO_LONG) { /* cut_in's */
		skb->mark = 0;
		return verdict_for_kernel(skb, pass(skb, REASON_REJECTED));
	}
	if (unlikely(skb->vlan_present)) {
		if (skb->vlan_tci & VLAN_ID)
			return verdict_for_kernel(skb, pass(skb, REASON_TAGGED));
		if (untag(skb))
			return drop(skb, REASON_MALFORMED);
	}
	if (ipv6 && skb->protocol == bpf_htons(ETH_P_IPV6))
		verdict = from_client6(skb);
	else
		verdict = from_client(skb);
	if (ipv6 && lines && verdict == IN_SESSION6)
		verdict = session6_in(skb);
	return verdict_for_kernel(skb, write_window_after(skb, verdict));
}

/* is_martian reports whether the stack forwards no packet from this address (RFC 1812, 5.3.7):
 * 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/3. */
static __always_inline int is_martian(__be32 source)
{
	__u8 first = bpf_ntohl(source) >> 24;

	return (__u8)(first - 1) >= 223 || first == 127;
}

/* find_path_down finds the cache's entry for a packet of an admitted client's flow; NULL: there is
 * none. */
static __always_inline const struct client *find_path_down(struct __sk_buff *skb,
	const struct iphdr *ip, const void *end, __u64 now, struct flow_path *p)
{
	const struct client *c;
	__u32 at;

	if (!find_path(skb, ip, end, FROM_WAN, now, p))
		return 0;
	at = p->at;
	c = bpf_map_lookup_elem(&clients, &at);
	return c && c->state == STATE_ADMITTED && !c->session && !expired(c, now) ? c : 0;
}

/* to_client handles a packet from the WAN, but those with IPv6. */
__noinline int to_client(struct __sk_buff *skb)
{
	const struct settings *s;
	const struct client *c;
	void *data, *end;
	struct ethhdr *eth;
	struct iphdr *ip;
	__u32 at, zero = 0;
	struct flow_path flow;
	__u64 now;

	data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
	eth = data, ip = data + ETH_HLEN;
	if (unlikely(data + ETH_HLEN + sizeof(*ip) + sizeof(struct tcphdr) > end)) {
		__u32 want = skb->len < 14 + 20 + 20 ? skb->len : 14 + 20 + 20;

		if (bpf_skb_pull_data(skb, want))
			return TC_ACT_OK;
		data = (void *)(long)skb->data, end = (void *)(long)skb->data_end;
		eth = data, ip = data + ETH_HLEN;
	}
	if (unlikely((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || !is_sound(skb, ip)))
		return TC_ACT_OK; /* the stack knows what to do with it */
	if (unlikely(skb->pkt_type != PACKET_HOST))
		return TC_ACT_OK;
	if (unlikely(owner_place(ip->saddr) != NOBODY))
		return drop(skb, REASON_FOREIGN_SOURCE);
	now = clock_ns();
	c = find_path_down(skb, ip, end, now, &flow);
	if (c) {
		struct wire w = on_wire(skb, ip, end);

		if (!within_limits(skb, flow.at, c, w, 0, now))
			return TC_ACT_SHOT;
		add_to_tally(&flow, w, FROM_WAN);
		return send_by_path(skb, &flow, c->mac, lan.ifindex);
	}
	at = owner_place(ip->daddr);
	c = bpf_map_lookup_elem(&clients, &at);
	if (!c || ip->daddr == lan.gateway)
		return TC_ACT_OK;
	if (c->state == STATE_NONE || (place(ip->daddr) >= lan.size && !c->session))
		return drop_unowned(skb);
	s = bpf_map_lookup_elem(&gateway_settings, &zero);
	if (is_too_long(skb, ip, c, end) && c->state == STATE_ADMITTED && !expired(c, now)) {
		if (unreachable(skb, lan.gateway, ICMP_FRAG_NEEDED, c->mtu))
			return drop(skb, REASON_MALFORMED);
		count(skb, REASON_REJECTED);
		return bpf_redirect(wan_ifindex, 0);
	}
	if (!s || !may_redirect(s, now) || is_martian(ip->saddr)) /* lan_out will see it */
		return TC_ACT_OK;
	if (!may_receive(skb, ip, at, c, end, now))
		return TC_ACT_SHOT;
	set_judged(skb);
	if (c->state != STATE_ADMITTED || expired(c, now)) /* of the garden */
		return TC_ACT_UNSPEC;
	if (!may_bypass_stack(skb, ip, c->session ? c->mtu : s->lan_mtu, end)) {
		count(skb, REASON_STACK);
		return TC_ACT_UNSPEC;
	}
	return readdress(skb, eth, ip, c->mac, 0, lan.ifindex);
}

/* wan_in handles packets for the clients: all of them where packets are redirected, and
 * otherwise those for nobody. */
SEC("tc")
int wan_in(struct __sk_buff *skb)
{
	int verdict;

	clear_class(skb);
	skb->cb[0] = 0;
	if (unlikely(skb->vlan_present) && ((skb->vlan_tci & VLAN_ID) || untag(skb)))
		return verdict_for_kernel(skb, TC_ACT_OK);
	if (ipv6 && skb->protocol == bpf_htons(ETH_P_IPV6))
		verdict = ip6_down(skb);
	else
		verdict = to_client(skb);
	return verdict_for_kernel(skb, write_window_after(skb, verdict));
}

/* is_own reports whether a packet is from this machine, because no interface received
 * it, or from a machine behind another interface that uses the gateway's address, and not a
 * packet from a client or the WAN that a rule masqueraded. The packet's socket shows neither:
 * packets of machines behind virtual links may still have their sender's, and a firewall's
 * rejections have none. */
static __always_inline int is_own(const struct __sk_buff *skb, const struct iphdr *ip)
{
	__u32 from = skb->ingress_ifindex;

	return !from || (ip->saddr == lan.gateway && from != lan.ifindex && from != wan_ifindex);
}

/* is_judged reports whether lan_in or wan_in has marked a packet. The mark of a packet that
 * came in elsewhere is its sender's: marks stay with packets that cross virtual links. onward
 * clears it from packets that lan_in or wan_in did not judge. */
static __always_inline int is_judged(const struct __sk_buff *skb)
{
	__u32 from = skb->ingress_ifindex;

	return skb->tc_index == JUDGED && (from == wan_ifindex || from == lan.ifindex);
}

/* is_from_beside reports whether a packet is from a client of another network that does not reach
 * this one's. */
static __always_inline int is_from_beside(const struct __sk_buff *skb)
{
	struct pair both = { .from = skb->ingress_ifindex, .to = lan.ifindex };

	if (both.from == wan_ifindex || both.from == lan.ifindex || !both.from)
		return 0;
	return bpf_map_lookup_elem(&members, &both.from) && !bpf_map_lookup_elem(&reaches, &both);
}

static __always_inline int towards_client(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	const struct client *c;
	int admitted;
	__u64 now;
	__u32 at;

	if (is_judged(skb))
		return TC_ACT_OK;
	if (beside && is_from_beside(skb))
		return drop(skb, REASON_OTHER_NETWORK);
	if (ipv6 && (void *)(eth + 1) <= end && eth->h_proto == bpf_htons(ETH_P_IPV6))
		return ip6_out(skb);
	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return TC_ACT_OK;
	at = owner_place(ip->daddr);
	c = bpf_map_lookup_elem(&clients, &at);
	if (!c)
		return TC_ACT_OK;
	now = clock_ns();
	admitted = c->state == STATE_ADMITTED && !expired(c, now);
	if (is_own(skb, ip)) {
		if (ip->saddr == lan.gateway && !admitted)
			from_portal(skb, ip, end);
		return TC_ACT_OK;
	}
	if (c->state == STATE_NONE)
		return drop(skb, REASON_NOT_LEASED);
	if (!may_receive(skb, ip, at, c, end, now))
		return TC_ACT_SHOT;
	/* The stack's neighbour entry may be that of a former owner of the address. */
	if (mac_at(eth->h_dest) != mac_at(c->mac))
		bpf_skb_store_bytes(skb, 0, c->mac, ETH_ALEN, 0);
	return admitted ? pass(skb, REASON_STACK) : TC_ACT_OK;
}

/* lan_out handles packets to the clients, and judges those that the stack forwards: all
 * of them where nothing is redirected, otherwise those from interfaces other than the
 * WAN. It gives the portal's answers the address that the client requested. */
SEC("tc")
int lan_out(struct __sk_buff *skb)
{
	int verdict;

	skb->cb[0] = 0;
	verdict = write_window_after(skb, towards_client(skb));
	if (lines && verdict == TC_ACT_OK)
		verdict = ipv6 && skb->protocol == bpf_htons(ETH_P_IPV6) ? to_session6(skb) : to_pppoe_session(skb, verdict);
	return verdict == TC_ACT_OK ? TC_ACT_UNSPEC : verdict;
}

/* cut_in receives what the cutter has cut. */
SEC("tc")
int cut_in(struct __sk_buff *skb)
{
	return ipv6 && skb->protocol == bpf_htons(ETH_P_IPV6) ? cut6_in(skb) : cut4_in(skb);
}

/* class_of is the class of a packet that the stack forwarded, for the htb of the WAN's
 * interface; 0: it has none. */
SEC("tc")
int class_of(struct __sk_buff *skb)
{
	__u32 class = skb->tc_index;

	return skb->ingress_ifindex == lan.ifindex && class && class != JUDGED ? WAN_CLASSES | class : 0;
}

/* portal_lookup hands the portal the connections to port 80 that lan_in has redirected
 * to the gateway. They keep that port, which distinguishes them from the clients' own
 * connections to the portal. The incoming interface is not checked, which would need
 * kernel 5.17: lan_in and wan_in drop packets that use a client's address without
 * right. */
SEC("sk_lookup")
int portal_lookup(struct bpf_sk_lookup *ctx)
{
	const struct client *c;
	struct bpf_sock *sk;
	__u32 zero = 0, at;

	if (ipv6 && ctx->family == AF_INET6 && ctx->protocol == IPPROTO_TCP && ctx->local_port == 80)
		return portal_lookup6(ctx);
	if (ctx->family != AF_INET || ctx->protocol != IPPROTO_TCP || ctx->local_port != 80 ||
	    ctx->local_ip4 != lan.gateway)
		return SK_PASS;
	at = place(ctx->remote_ip4);
	c = bpf_map_lookup_elem(&clients, &at);
	/* From the gateway itself, or from a client that may reach a server here. */
	if (!c || c->state == STATE_NONE || (c->state == STATE_ADMITTED &&
		!expired(c, bpf_ktime_get_coarse_ns())))
		return SK_PASS;
	sk = bpf_map_lookup_elem(&portal, &zero);
	if (!sk)
		return SK_PASS;
	bpf_sk_assign(ctx, sk, 0);
	bpf_sk_release(sk);
	return SK_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
