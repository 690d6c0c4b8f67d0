package control

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// LabelValue is one counter of a Family: its value of the metric's label, and its key in Status.
type LabelValue struct{ Name, Text string }

// Family is the counters of one part of the daemon. It is a map in Status, and a metric with one series for each label
// value.
type Family struct {
	Name     string       // of the metric, between gatewayd_ and _total
	Values   []LabelValue // all that the map can have
	desc     *prometheus.Desc
	counters func(*Status) map[string]uint64
}

func family(name, help, label string, of func(*Status) map[string]uint64, words ...LabelValue) Family {
	return Family{Name: name, Values: words, counters: of, desc: desc(name+"_total", help, label)}
}

// leaseCounters are what both DHCP servers count alike, in their order.
var leaseCounters = []LabelValue{
	{"overloaded", "not answered: the disk is behind"},
	{"throttled", "not answered: too many of one MAC address"},
	{"still-there", "releases and declines without effect, because the client answers for its address"},
	{"expired", "leases that ended"},
	{"store-error", "the leases file could not be written: nobody gets a lease"},
	{"listener-error", "the gateway could not take up or end a lease"},
	{"send-error", "a reply could not be sent"},
}

// Families are all counters by word. docs/reference/gatewayd-counters.md is made of them; package gateway fills the
// maps.
var Families = []Family{
	family("packets", "Packets the data path saw, by what became of "+
		"them.", "reason", func(s *Status) map[string]uint64 { return s.Packets },
		LabelValue{"forwarded", "of logged-in clients: redirected to the next hop, or sent by the daemon"},
		LabelValue{"stack", "of logged-in clients: left to the kernel's stack to forward; `ebpf` only"},
		LabelValue{"local", "to the gateway itself (DNS, ping)"},
		LabelValue{"garden", "to or from the walled garden before login"},
		LabelValue{"portal", "HTTP before login, handed to the portal"},
		LabelValue{"rejected", "before login: answered by RST or ICMP"},
		LabelValue{"blocked", "dropped before login, where an answer is impossible or would help an attacker"},
		LabelValue{"not-leased", "dropped: from an address that nobody leased"},
		LabelValue{"wrong-mac", "dropped: from a leased address with another MAC address"},
		LabelValue{"foreign-source", "dropped: a source outside the LAN, or the LAN's from outside"},
		LabelValue{"rogue-dhcp", "dropped: a DHCP server's reply from a client"},
		LabelValue{"arp-spoof", "dropped: ARP for another client's address, or with another MAC address than its frame"},
		LabelValue{"ipv6", "dropped"},
		LabelValue{"rate", "dropped: beyond the client's rate"},
		LabelValue{"quota", "dropped: beyond the client's quota"},
		LabelValue{"connections", "refused by RST or ICMP, or dropped: they would have begun a connection beyond the " +
			"client's [limit](../nat.md#connections-of-a-client). They are in `stack` or `forwarded` too"},
		LabelValue{"malformed", "dropped: lengths do not fit header or frame"},
		LabelValue{"unasked", "dropped: by IPv6 from outside, without a packet of the client's before it ([`lan.inbound6`]" +
			"(gatewayd-keys.md#lan))"},
		LabelValue{"throttled", "dropped: beyond a [budget](../gateway.md#budgets-before-login) of a client before login, " +
			"of ARP, or of DHCP requests"},
		LabelValue{"other-network", "dropped: from a client of another network, which does not reach this one " +
			"([`network.reaches`](gatewayd-keys.md#network)); `ebpf` only"},
		LabelValue{"tagged", "frames of a VLAN, left to the kernel; `ebpf` only"},
		LabelValue{"overflow", "dropped: the next queue was full. With `tun` and `nfqueue` such packets were let pass and " +
			"counted before"},
	),
	family("repairs", "What others removed or switched off, and what became of "+
		"it.", "event", func(s *Status) map[string]uint64 { return s.Repairs },
		LabelValue{"taken-off", "programs found detached or replaced"},
		LabelValue{"attached-again", "programs attached again"},
		LabelValue{"pinned-again", "pins found removed, and made again"},
		LabelValue{"guarded-again", "the guard's rules found removed or changed, and put back"},
		LabelValue{"forwarding-again", "forwarding found switched off, and switched on again; with all data paths"},
		LabelValue{"nat-again", "rules of [NAT](../nat.md) found removed, and put back; with all data paths"},
		LabelValue{"connections-again", "rules that count [connections](../nat.md#connections-of-a-client) found removed, " +
			"and put back"},
		LabelValue{"error", "attempts that failed: see the log"},
	),
	family("dhcp", "What the DHCP server did.", "event",
		func(s *Status) map[string]uint64 { return s.DHCP }, slices.Concat([]LabelValue{
			{"discover", "received"},
			{"request", "received"},
			{"decline", "received"},
			{"release", "received"},
			{"inform", "received"},
			{"offer", "sent"},
			{"ack", "sent"},
			{"nak", "sent"},
			{"malformed", "not answered: no DHCP message"},
			{"relayed", "not answered: from a relay that is not in [`dhcp.relays`](gatewayd-keys.md#dhcp)"},
			{"bad-information", "answered, with option 82 that cannot be read"},
			{"spoofed", "not answered: another MAC address than its frame"},
			{"exhausted", "not answered: no address is free"},
			{"too-many", "not answered: the MAC address has as many addresses as it may"},
			{"claim", "addresses that devices got without a lease ([`dhcp.claims`](gatewayd-keys.md#dhcp))"},
			{"claim-refused", "addresses that devices used without a lease and did not get: the log has the reason"},
			{"claim-conflict", "of these: another device has it"},
		}, leaseCounters)...),
	family("dhcp6", "What the DHCPv6 server did.", "event",
		func(s *Status) map[string]uint64 { return s.DHCP6 }, slices.Concat([]LabelValue{
			{"solicit", "received"},
			{"request", "received"},
			{"confirm", "received"},
			{"renew", "received"},
			{"rebind", "received"},
			{"release", "received"},
			{"decline", "received"},
			{"information-request", "received"},
			{"register", "received: a client tells of an address that it has made itself (RFC 9686)"},
			{"reply", "sent, ADVERTISEs among them"},
			{"malformed", "not answered: not DHCPv6, or not for a server"},
			{"unread", "messages of which some options could not be read"},
			{"spoofed", "not answered: the source is not the client's own"},
			{"relayed", "not answered: from a relay"},
			{"rogue", "servers' messages of devices on the LAN"},
			{"other-server", "not answered: for another server"},
			{"foreign", "asked for what another client has"},
			{"exhausted", "no address or prefix is free"},
			{"too-many", "the MAC address has as many leases as it may"},
		}, leaseCounters, []LabelValue{
			{"no-source", "not answered: the interface has no link-local address"},
		})...),
	family("router_advertisements", "What the gateway told of itself as IPv6 router, and what others "+
		"did.", "event", func(s *Status) map[string]uint64 { return s.RouterAdv },
		LabelValue{"solicited", "advertisements that answered solicitations"},
		LabelValue{"unsolicited", "advertisements that nobody asked for"},
		LabelValue{"refused", "solicitations without an answer: too many, or of a client that is told nothing"},
		LabelValue{"malformed", "frames that are no solicitation and no advertisement, or pretend to be the gateway's"},
		LabelValue{"rogue", "advertisements of other routers on the LAN: the log has their MAC addresses"},
		LabelValue{"send-error", "advertisements that could not be sent"},
	),
	family("neighbours", "What the gateway heard of clients' IPv6 addresses, and "+
		"did.", "event", func(s *Status) map[string]uint64 { return s.Neighbours },
		LabelValue{"solicitation", "neighbours' received"},
		LabelValue{"advertisement", "neighbours' received"},
		LabelValue{"router-solicitation", "received"},
		LabelValue{"redirect", "refused: only the gateway sends them"},
		LabelValue{"malformed", "refused: not as RFC 4861 has it, or from another link"},
		LabelValue{"extension", "refused: extension headers, fragments among them (RFC 6980)"},
		LabelValue{"forged", "refused: names another MAC address than its frame"},
		LabelValue{"throttled", "refused: too many of one MAC address, of new ones, or of all"},
		LabelValue{"asked", "sent: whether a client is there"},
		LabelValue{"defended", "sent: that an address is taken"},
		LabelValue{"proxied", "sent in a client's place"},
		LabelValue{"send-error", "messages that could not be sent"},
		LabelValue{"outside", "addresses refused: not of the network's prefixes"},
		LabelValue{"full", "addresses refused: too many of all clients, or of those without a lease or login"},
		LabelValue{"too-many", "addresses refused: the client has as many as it may, and answers for them"},
		LabelValue{"taken", "addresses refused: another client has them, and is there"},
		LabelValue{"busy", "addresses refused: too many owners are asked for"},
		LabelValue{"spoofed", "advertisements for other clients' addresses"},
		LabelValue{"moved", "addresses that went to another client, because the owner did not answer"},
		LabelValue{"silent", "addresses removed, because the owner did not answer"},
		LabelValue{"replaced", "of these, to make room for a newer one of the client"},
	),
	family("dns", "What the DNS forwarder did.", "event", func(s *Status) map[string]uint64 { return s.DNS },
		LabelValue{"query", "received"},
		LabelValue{"forwarded", "asked of an upstream"},
		LabelValue{"local", "answered here"},
		LabelValue{"refused", "answered with an error"},
		LabelValue{"failed", "no upstream answered"},
		LabelValue{"garbage", "no query"},
		LabelValue{"foreign", "not from the LAN"},
		LabelValue{"busy", "beyond the limits of queries in progress"},
		LabelValue{"throttled", "beyond an unauthenticated client's budget, or 500 messages a second of one MAC address"},
		LabelValue{"opened", "addresses of the walled garden opened"},
		LabelValue{"open-error", "addresses of the walled garden that could not be opened"},
		LabelValue{"open-refused", "the same, because too many are open"},
	),
	family("radius", "What the RADIUS client did.", "event", func(s *Status) map[string]uint64 { return s.RADIUS },
		LabelValue{"request", "begun"},
		LabelValue{"retransmit", "packets sent again"},
		LabelValue{"answer", "received"},
		LabelValue{"timeout", "requests without an answer"},
		LabelValue{"unsigned", "answers dropped: without Message-Authenticator"},
		LabelValue{"forged", "answers dropped: a wrong signature"},
		LabelValue{"malformed", "answers dropped: no RADIUS packet"},
		LabelValue{"unexpected", "answers dropped: to no request"},
		LabelValue{"late", "right answers that came when nobody waited any more: see the log"},
		LabelValue{"disconnect", "servers' Disconnect-Requests carried out"},
		LabelValue{"coa", "servers' CoA-Requests carried out"},
		LabelValue{"dynamic-refused", "servers' requests answered with a NAK"},
		LabelValue{"dynamic-repeated", "servers' requests that came again"},
		LabelValue{"dynamic-forged", "servers' requests dropped: a wrong signature"},
		LabelValue{"dynamic-malformed", "servers' requests dropped: no RADIUS packet"},
		LabelValue{"dynamic-stranger", "requests dropped: not from a configured server"},
		LabelValue{"dynamic-outdated", "servers' requests dropped: an Event-Timestamp more than 5 minutes off"},
	),
	family("portal", "What the portal answered.", "outcome", func(s *Status) map[string]uint64 { return s.Portal },
		LabelValue{"redirect", "to the login page"}, LabelValue{"probe", "probes of admitted clients' " +
			"devices"}, LabelValue{"login", "clients logged in"},
		LabelValue{"rejected", "logins refused"},
		LabelValue{"unavailable", "logins that no method could decide"},
		LabelValue{"failed",
			"accepted logins, and logouts, that the gateway could not carry out, as on a full disk: see the log"},
		LabelValue{"backed-off", "logins too soon after wrong passwords"},
		LabelValue{"forged", "forms without the portal's token"},
		LabelValue{"logout", "clients logged out"},
		LabelValue{"turned-away", "connections beyond the limits"},
	),
	family("uam", "What a portal elsewhere sent clients for.", "outcome",
		func(s *Status) map[string]uint64 { return s.UAM },
		LabelValue{"login", "clients logged in"},
		LabelValue{"rejected", "logins refused, and requests that had no password"},
		LabelValue{"unavailable", "logins that no method could decide"},
		LabelValue{"failed",
			"accepted logins, and logouts, that the gateway could not carry out, as on a full disk: see the log"},
		LabelValue{"backed-off", "logins too soon after wrong passwords"},
		LabelValue{"stale", "logins that answer no challenge, or one that is too old"},
		LabelValue{"logout", "clients logged out"},
	),
	family("pppoe", "What the PPPoE concentrator received and "+
		"did.", "event", func(s *Status) map[string]uint64 { return s.PPPoE },
		LabelValue{"padi", "received"}, LabelValue{"padr", "received"}, LabelValue{"offer", "sent"},
		LabelValue{"begun", "sessions begun"},
		LabelValue{"refused", "a wrong cookie, an unknown service, too many sessions"},
		LabelValue{"displaced", "sessions not logged in, whose place another needed, or whose client has begun anew"},
		LabelValue{"throttled", "beyond the bounds of a MAC address"},
		LabelValue{"backed-off", "logins too soon after wrong passwords"},
		LabelValue{"malformed", "no PPPoE frame"},
		LabelValue{"stray", "frames for a session that is none"},
		LabelValue{"lost", "frames that the kernel dropped because too many waited"},
	),
	family("devices", "What became of devices that may come in without a "+
		"login.", "event", func(s *Status) map[string]uint64 { return s.Devices },
		LabelValue{"asked", "questions, each to all sources until one lets the device in"},
		LabelValue{"admitted", "sessions begun"},
		LabelValue{"refused", "questions of which all answers were no"},
		LabelValue{"undecided", "questions that a source could not answer; the device is asked about again"},
		LabelValue{"ended", "sessions ended, because a later answer was no"},
		LabelValue{"dropped", "devices not asked about, because too many waited, until they are seen again"},
	),
	family("roams", "Sessions of devices that went from one gateway to another.", "direction",
		func(s *Status) map[string]uint64 { return s.Roams },
		LabelValue{"in", "devices that came here with their session"},
		LabelValue{"taken", "of them, while the former gateway was away: it ends the session when it comes back"},
		LabelValue{"out", "devices that went to another gateway, which asked for the session"},
		LabelValue{"lost", "sessions that another gateway took while this one was away"},
		LabelValue{"failed", "devices that came here, and the former gateway did not answer, or they could not be admitted"},
	),
	family("ident", "What became of RFC 1413 queries.", "outcome", func(s *Status) map[string]uint64 { return s.Ident },
		LabelValue{"answer", "name, token or hidden"},
		LabelValue{"no-user", "no such connection, or nobody's"},
		LabelValue{"invalid", "no query"},
		LabelValue{"throttled", "closed: beyond `ident.rate`, or too many at once"},
		LabelValue{"failed", "the kernel could not be asked: see the log"},
	),
	family("admin", "What the admin page and its API did.", "event", func(s *Status) map[string]uint64 { return s.Admin },
		LabelValue{"login", "people logged in at the page"},
		LabelValue{"rejected", "wrong names, passwords and tokens"},
		LabelValue{"backed-off", "attempts too soon after wrong passwords"},
		LabelValue{"forged", "forms of other sites, or without the page's token"},
		LabelValue{"denied", "what an account may not do"},
		LabelValue{"change", "changes of sessions and vouchers asked for"},
		LabelValue{"whois", "searches for who used an address"},
		LabelValue{"turned-away", "connections beyond the limits, or from clients' networks"},
	),
	family("flowlog", "What the flow log recorded.", "event", func(s *Status) map[string]uint64 { return s.Flows },
		LabelValue{"begun", "connections"}, LabelValue{"ended", "connections"},
		LabelValue{"lost", "lines that could not be written"},
		LabelValue{"overflow", "of the kernel's reports, each repaired by a listing"},
		LabelValue{"unsent", "messages to the collector"},
		LabelValue{"rule-again", "the log's rule found removed or changed, and put back"},
	),
}

// metricNotes are texts that the page of counters adds to the help texts of metrics.
var metricNotes = map[string]string{
	"dhcp6_leases": "`kind` is `address`, `prefix`, `registered` (made by the client itself, RFC 9686) or `declined` " +
		"(another host has it)",
	"delegated_prefix_preferred_until_seconds": "In the past: the provider has replaced it or does not renew it, and sessions go on",
	"ipv6_addresses": "Link-local ones among them; without `lan.address6` this metric and the next ones are left out",
	"clients": "The state `leased` has an address and has not been shown the login page, `preauth` " +
		"was redirected to it, `authenticated` has a session: its packets are forwarded",
	"store_up":          "This metric and the next ones are left out unless `store.kind` is `\"redis\"`",
	"accounting_outbox": "Growing: no server answers",
	"accounting_aside": "Of sessions of which a server confirmed no event in five attempts while it confirmed " +
		"others. They are tried every ten minutes, in order, delay nobody, and are not part of `accounting_outbox`",
	"radius_server_up": "`purpose` is `logins` or `accounting`. `gatewayd status` and the log say why a server is not up",
	"sessions_unkept": "At 1 nobody new is admitted, and ends of sessions wait: free space at `state_dir`. " +
		"0 again once as much was written as could not be",
	"repairs_total": "Of programs and guard of `ebpf`, of forwarding and of NAT. Anything but 0 needs a " +
		"look at the log",
	"packets_total":           "How they agree with others: [what is counted](../gateway-reference.md#what-is-counted)",
	"forwarded_bytes_total":   "All clients since the data path began",
	"forwarded_packets_total": "All clients since the data path began",
}
