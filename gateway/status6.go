package gateway

import (
	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/dhcp6"
	"github.com/gateweigh/gateweigh/gateway/routeradv"
	"github.com/gateweigh/gateweigh/gateway/timeline"
)

// showIPv6 adds what clients have of IPv6 to the status, where they have any.
func (g *gateway) showIPv6(st *control.Status) {
	if g.bindings == nil {
		return
	}
	b := g.bindings.Stats()
	st.IPv6 = &control.IPv6{Addresses: b.Table.Bindings, Clients: b.Table.Clients, Contests: b.Table.Contests}
	st.Neighbours = neighbourCounts(b)
	for word, n := range claimCounts(b.Table) {
		st.Neighbours[word] = n
	}
	if g.advertiser != nil {
		st.RouterAdv = routerCounts(g.advertiser.Stats())
	}
	if g.dhcp6 != nil {
		d := g.dhcp6.Stats()
		st.DHCP6 = dhcp6Counts(d)
		st.IPv6.Leases = map[string]int{
			"address": d.Addresses, "prefix": d.Prefixes, "registered": d.Registered, "declined": d.DeclinedAddresses,
		}
	}
	if g.delegation != nil {
		state := g.delegation.State()
		st.IPv6.Delegation = state.LastError
		for _, p := range state.Prefixes {
			st.IPv6.Delegated = append(st.IPv6.Delegated, control.DelegatedPrefix{Prefix: p.Prefix,
				PreferredUntil: timeline.Wall(p.PreferredUntil), ValidUntil: timeline.Wall(p.ValidUntil)})
		}
	}
}

func neighbourCounts(b bindings.Stats) map[string]uint64 {
	return map[string]uint64{
		"solicitation": b.Solicitations, "advertisement": b.Advertisements,
		"router-solicitation": b.RouterSolicitations, "redirect": b.Redirects, "malformed": b.Malformed,
		"extension": b.Extensions, "forged": b.Forged, "throttled": b.Throttled, "asked": b.Asked, "defended": b.Defended,
		"proxied": b.Proxied, "send-error": b.SendErrors,
	}
}

func claimCounts(c bindings.Counts) map[string]uint64 {
	return map[string]uint64{
		"outside": c.Outside, "full": c.Full, "too-many": c.TooMany, "taken": c.Taken, "busy": c.Busy,
		"spoofed": c.Spoofed, "moved": c.Moved, "silent": c.Silent, "replaced": c.Replaced,
	}
}

func routerCounts(r routeradv.Stats) map[string]uint64 {
	return map[string]uint64{
		"solicited": r.Solicited, "unsolicited": r.Unsolicited, "refused": r.Refused, "malformed": r.Malformed,
		"rogue": r.Rogue, "send-error": r.SendErrors,
	}
}

func dhcp6Counts(d dhcp6.Stats) map[string]uint64 {
	return map[string]uint64{
		"solicit": d.Solicits, "request": d.Requests, "confirm": d.Confirms, "renew": d.Renews, "rebind": d.Rebinds,
		"release": d.Releases, "decline": d.Declines, "information-request": d.InformationRequests,
		"register": d.Registrations, "reply": d.Replies, "malformed": d.Malformed, "unread": d.Unread,
		"spoofed": d.Spoofed, "relayed": d.Relayed, "rogue": d.Rogue, "other-server": d.OtherServer,
		"foreign": d.Foreign, "exhausted": d.Exhausted, "too-many": d.TooMany, "overloaded": d.Overloaded,
		"throttled": d.Throttled, "still-there": d.StillThere, "expired": d.Expired, "store-error": d.StoreErrors,
		"listener-error": d.EventErrors, "send-error": d.SendErrors, "no-source": d.NoSourceDrops,
	}
}
