package gateway

import (
	"context"
	"slices"
)

// parts lists the parts of one network: first those that decide, then those that clients reach.
func (g *gateway) parts() []part {
	timers := part{"timers of sessions", func(context.Context) (opened, error) { return opened{run: g.table.Run}, nil }}
	return slices.Concat(g.foundation(), []part{timers}, g.terms(), g.former(), g.services(), g.forwarder())
}

// foundation are the parts below the sessions, and these.
func (g *gateway) foundation() []part {
	return []part{
		step("checks", g.check),
		{"state_dir", g.openState},
		{"address translation", g.openNAT},        // before the data path, which redirects where nothing translates
		{"limits of connections", g.openCounting}, // as well
		step("port 80", func() error { g.openHome(); return nil }),
		{"vouchers", g.openVouchers}, // closed after the sessions, whose ends it has
		{"day", g.openDaily},         // closed after the sessions, whose ends it has
		{"data path", g.openPath},    // closed after the sessions, which read the last counts from it
		{"forwarding", g.openForwarding},
		{"connections", g.openConnections}, // ended after the sessions that they belong to
		{"sessions", g.openTable},
	}
}

// terms are the parts that know how long sessions may last.
func (g *gateway) terms() []part {
	return []part{
		{"sessions elsewhere", g.openElsewhere},
		{"sessions of vouchers", g.serveVouchers},
		{"sessions of the day", g.serveDaily},
		{"rooms", g.openRooms},
	}
}

// former are the parts that have to do with what a former daemon left.
func (g *gateway) former() []part {
	return []part{
		step("clients of a former daemon", g.reconcile),
		step("their limits of connections", g.startCounting),
		step("their connections", g.endFormer),
		{"RADIUS", g.openRADIUS},
		{"accounting", func(context.Context) (opened, error) { return opened{run: g.account}, nil }},
	}
}

// services are the parts that clients reach, and those that decide about them.
func (g *gateway) services() []part {
	return []part{
		step("clients without a lease", g.forgetUnleased),
		{"newcomers", g.openNewcomers},
		{"flow log", g.openFlows}, // closed before the sessions, which it asks
		step("walled garden", g.openGarden),
		{"requests of RADIUS servers", g.openRequests},
		{"wrong passwords elsewhere", g.shareGuesses},
		{"OpenID providers", g.openProviders},
		{"login", g.openPortal},
		{"devices", g.openDevices}, // closed before the sessions, which it admits
		{"pppoe", g.openLines},     // closed before the sessions: a link that ends by then is taken up by the next daemon
		{"ident", g.openIdent},
		{"users' file", g.openUsers},
		{"dhcp", g.openDHCP},
		{"relays", g.openRelays},
		{"leases of others", g.openRenewal},
		{"dns", g.openDNS},
		{"IPv6", g.openIPv6},                    // after what it advertises
		{"prefix delegation", g.openDelegation}, // tells those of IPv6
		{"bridges", func(context.Context) (opened, error) { return opened{run: g.watchBridges}, nil }},
		{"portal", g.listenPortal},
	}
}

// forwarder switches forwarding on, once everything that decides about packets is in place.
func (g *gateway) forwarder() []part { return []part{step("forwarding on", g.forward)} }
