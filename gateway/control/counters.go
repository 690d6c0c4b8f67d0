package control

import "github.com/prometheus/client_golang/prometheus"

// Word is one counter of a Family: its label value and its key in Status.
type Word struct{ Name, Text string }

// Family is the counters of one part of the daemon: one map of Status, and one metric with a series for each word.
type Family struct {
	Name  string // of the metric, between gatewayd_ and _total
	Words []Word // all that the map can have
	desc  *prometheus.Desc
	of    func(*Status) map[string]uint64
}

func family(name, help, label string, of func(*Status) map[string]uint64, words ...Word) Family {
	return Family{Name: name, Words: words, of: of, desc: desc(name+"_total", help, label)}
}

// Families are all counters by word. docs/reference/gatewayd-counters.md is made of them; package gateway fills the
// maps.
var Families = []Family{
	family("packets", "Packets the data path saw, by what became of "+
		"them.", "reason", func(s *Status) map[string]uint64 { return s.Packets },
		Word{"forwarded", "of logged-in clients: redirected to the next hop, or sent by the daemon"},
		Word{"stack", "of logged-in clients: left to the kernel's stack to forward; `ebpf` only"},
		Word{"local", "to the gateway itself (DNS, ping)"},
		Word{"garden", "to or from the walled garden before login"},
		Word{"portal", "HTTP before login, handed to the portal"},
		Word{"rejected", "before login: answered by RST or ICMP"},
		Word{"blocked", "dropped before login, where an answer is impossible or would help an attacker"},
		Word{"not-leased", "dropped: from an address that nobody leased"},
		Word{"wrong-mac", "dropped: from a leased address with another MAC address"},
		Word{"foreign-source", "dropped: a source outside the LAN, or the LAN's from outside"},
		Word{"rogue-dhcp", "dropped: a DHCP server's reply from a client"},
		Word{"arp-spoof", "dropped: ARP for another client's address, or with another MAC address than its frame"},
		Word{"ipv6", "dropped"},
		Word{"rate", "dropped: beyond the client's rate"},
		Word{"quota", "dropped: beyond the client's quota"},
		Word{"malformed", "dropped: lengths do not fit header or frame"},
		Word{"throttled", "dropped: beyond a [budget](../gateway.md#budgets-before-login) of a client before login, " +
			"of ARP, or of DHCP requests"},
		Word{"tagged", "frames of a VLAN, left to the kernel; `ebpf` only"},
		Word{"overflow", "dropped: the next queue was full. With `tun` and `nfqueue` such packets were let pass and " +
			"counted before"},
	),
	family("repairs", "What others removed or switched off, and what became of "+
		"it.", "event", func(s *Status) map[string]uint64 { return s.Repairs },
		Word{"taken-off", "programs found detached or replaced"},
		Word{"attached-again", "programs attached again"},
		Word{"pinned-again", "pins found removed, and made again"},
		Word{"guarded-again", "the guard's rules found removed or changed, and put back"},
		Word{"forwarding-again", "forwarding found switched off, and switched on again; with all data paths"},
		Word{"nat-again", "rules of [NAT](../nat.md) found removed, and put back; with all data paths"},
		Word{"error", "attempts that failed: see the log"},
	),
	family("dhcp", "What the DHCP server did.", "event", func(s *Status) map[string]uint64 { return s.DHCP },
		Word{"discover", "received"},
		Word{"request", "received"},
		Word{"decline", "received"},
		Word{"release", "received"},
		Word{"inform", "received"},
		Word{"offer", "sent"},
		Word{"ack", "sent"},
		Word{"nak", "sent"},
		Word{"malformed", "not answered: no DHCP message"},
		Word{"relayed", "not answered: from a relay"},
		Word{"spoofed", "not answered: another MAC address than its frame"},
		Word{"exhausted", "not answered: no address is free"},
		Word{"too-many", "not answered: the MAC address has as many addresses as it may"},
		Word{"overloaded", "not answered: the disk is behind"},
		Word{"throttled", "not answered: too many of one MAC address"},
		Word{"still-there", "releases and declines without effect, because the client answers for its address"},
		Word{"expired", "leases that ended"},
		Word{"store-error", "the leases file could not be written: nobody gets a lease"},
		Word{"listener-error", "the gateway could not take up or end a lease"},
		Word{"send-error", "a reply could not be sent"},
	),
	family("dns", "What the DNS forwarder did.", "event", func(s *Status) map[string]uint64 { return s.DNS },
		Word{"query", "received"},
		Word{"forwarded", "asked of an upstream"},
		Word{"local", "answered here"},
		Word{"refused", "answered with an error"},
		Word{"failed", "no upstream answered"},
		Word{"garbage", "no query"},
		Word{"foreign", "not from the LAN"},
		Word{"busy", "beyond the limits of queries in progress"},
		Word{"throttled", "beyond an unauthenticated client's budget, or 500 messages a second of one MAC address"},
		Word{"opened", "addresses of the walled garden opened"},
		Word{"open-error", "addresses of the walled garden that could not be opened"},
		Word{"open-refused", "the same, because too many are open"},
	),
	family("radius", "What the RADIUS client did.", "event", func(s *Status) map[string]uint64 { return s.RADIUS },
		Word{"request", "begun"},
		Word{"retransmit", "packets sent again"},
		Word{"answer", "received"},
		Word{"timeout", "requests without an answer"},
		Word{"unsigned", "answers dropped: without Message-Authenticator"},
		Word{"forged", "answers dropped: a wrong signature"},
		Word{"malformed", "answers dropped: no RADIUS packet"},
		Word{"unexpected", "answers dropped: to no request"},
		Word{"late", "right answers that came when nobody waited any more: see the log"},
		Word{"disconnect", "servers' Disconnect-Requests carried out"},
		Word{"coa", "servers' CoA-Requests carried out"},
		Word{"dynamic-refused", "servers' requests answered with a NAK"},
		Word{"dynamic-repeated", "servers' requests that came again"},
		Word{"dynamic-forged", "servers' requests dropped: a wrong signature"},
		Word{"dynamic-malformed", "servers' requests dropped: no RADIUS packet"},
		Word{"dynamic-stranger", "requests dropped: not from a configured server"},
		Word{"dynamic-outdated", "servers' requests dropped: an Event-Timestamp more than 5 minutes off"},
	),
	family("portal", "What the portal answered.", "outcome", func(s *Status) map[string]uint64 { return s.Portal },
		Word{"redirect", "to the login page"}, Word{"probe", "probes of admitted clients' " +
			"devices"}, Word{"login", "clients logged in"},
		Word{"rejected", "logins refused"},
		Word{"unavailable", "logins that no method could decide"},
		Word{"failed", "accepted logins, and logouts, that the gateway could not carry out, as on a full disk: see the log"},
		Word{"backed-off", "logins too soon after wrong passwords"},
		Word{"forged", "forms without the portal's token"},
		Word{"logout", "clients logged out"},
		Word{"turned-away", "connections beyond the limits"},
	),
	family("pppoe", "What the PPPoE concentrator received and "+
		"did.", "event", func(s *Status) map[string]uint64 { return s.PPPoE },
		Word{"padi", "received"}, Word{"padr", "received"}, Word{"offer", "sent"}, Word{"begun", "sessions begun"},
		Word{"refused", "a wrong cookie, an unknown service, too many sessions"},
		Word{"displaced", "sessions not logged in, whose place another needed, or whose client has begun anew"},
		Word{"throttled", "beyond the bounds of a MAC address"},
		Word{"backed-off", "logins too soon after wrong passwords"},
		Word{"malformed", "no PPPoE frame"},
		Word{"stray", "frames for a session that is none"},
		Word{"lost", "frames that the kernel dropped because too many waited"},
	),
	family("ident", "What became of RFC 1413 queries.", "outcome", func(s *Status) map[string]uint64 { return s.Ident },
		Word{"answer", "name, token or hidden"},
		Word{"no-user", "no such connection, or nobody's"},
		Word{"invalid", "no query"},
		Word{"throttled", "closed: beyond `ident.rate`, or too many at once"},
		Word{"failed", "the kernel could not be asked: see the log"},
	),
	family("flowlog", "What the flow log recorded.", "event", func(s *Status) map[string]uint64 { return s.Flows },
		Word{"begun", "connections"}, Word{"ended", "connections"},
		Word{"lost", "lines that could not be written"},
		Word{"overflow", "of the kernel's reports, each repaired by a listing"},
		Word{"unsent", "messages to the collector"},
		Word{"rule-again", "the log's rule found removed or changed, and put back"},
	),
}

// notes are what the page of counters says of metrics besides their help.
var notes = map[string]string{
	"clients": "The state `leased` has an address and has not been shown the login page, `preauth` " +
		"was redirected to it, `authenticated` has a session: its packets are forwarded",
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
