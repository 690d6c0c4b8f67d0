package gateway

import (
	"errors"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/dhcp6"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// openDHCP6 begins to serve DHCPv6 to the clients that the data path hears.
func (g *gateway) openDHCP6(h *heard6, local netip.Addr) (err error) {
	own := g.cfg.LAN.Address6
	duid, err := keptKey(filepath.Join(g.cfg.StateDir, "dhcp6.duid"), uuidBytes)
	if err != nil {
		return err
	}
	if g.leases6, err = dhcp6.OpenFile(filepath.Join(g.cfg.StateDir, "leases6.db")); err != nil {
		return err
	}
	cfg := dhcp6.Config{
		Interface: g.cfg.LAN.Interface, DUID: append([]byte{0, duidUUID}, duid...), Source: local, Store: g.leases6,
		Prefixes: g.dhcp6Prefixes, Taken: func(c dhcp6.Client, addr netip.Addr) bool {
			owner, bound := g.bindings.Owner(addr)
			return bound && owner != c || addr == own.Addr()
		},
		Lease: g.cfg.DHCP.Lease, ShortLease: g.cfg.DHCP.ShortLease, Settled: g.authenticated6,
		PerMAC: datapath.Senders, Register: true, Requests: h.servers.open, Log: g.log,
		Lengths: dhcp6.Lengths{Usual: g.cfg.DHCP6.PDLength, Shortest: g.cfg.DHCP6.PDLength, Longest: longestDelegated},
	}
	cfg.Wanted, cfg.DNSOf = g.grants.wish, g.grants.dns
	cfg.InSession = func(c dhcp6.Client) bool { return c.Session != 0 && g.concerns6(c) }
	if g.dns != nil {
		cfg.DNS = []netip.Addr{own.Addr()}
	}
	if g.cfg.DHCP.Domain != "" {
		cfg.Search = []string{g.cfg.DHCP.Domain}
	}
	if g.portal != nil {
		cfg.CaptivePortalURL = g.portal.APIURL6()
	}
	if g.dhcp6, err = dhcp6.New(cfg, leases6{g}); err != nil {
		return errors.Join(err, g.leases6.Close())
	}
	for _, l := range g.dhcp6.Leases() {
		if !g.concerns6(l.Client()) { // the session has ended while no daemon was there
			g.dhcp6.End(l.Client())
			continue
		}
		if err := (leases6{g}).Leased(l); err != nil {
			g.log.Warn("a lease of a former daemon is not taken up", "addr", l.Prefix, "err", err)
		}
	}
	return nil
}

// longestDelegated is the length of the smallest network in which hosts make addresses (RFC 4862, 5.5.3).
const longestDelegated = 64

// dhcp6Prefixes returns the LAN's prefixes, and the pools of addresses in them and of networks where clients get any.
// Where each client has a /64 of its own, those alone get addresses to which RADIUS gives some.
func (g *gateway) dhcp6Prefixes() (out dhcp6.Prefixes) {
	now := time.Now()
	for _, p := range g.advertisedPrefixes() {
		out.OnLink = append(out.OnLink, p.Prefix)
		pool := dhcp6.Pool{Prefix: p.Prefix, Preferred: p.Preferred, Valid: p.Valid}
		if !p.ValidUntil.IsZero() {
			pool.Valid = max(0, min(pool.Valid, p.ValidUntil.Sub(now)))
			pool.Preferred = max(0, min(pool.Preferred, p.PreferredUntil.Sub(now)))
		}
		pool.Named = g.cfg.DHCP6.Mode != config.Stateful
		if g.givesAddrs() {
			out.Addresses = append(out.Addresses, pool)
		}
	}
	out.Delegated = g.pdPools(now)
	return out
}

// The server's identifier is a UUID (RFC 6355).
const (
	duidUUID  = 4
	uuidBytes = 16
)

// authenticated6 reports whether a client is logged in.
func (g *gateway) authenticated6(c dhcp6.Client) bool {
	key, known := g.table.Find(c.MAC, c.Session)
	if !known {
		return false
	}
	s, known := g.table.Get(key.Addr)
	return known && s.At(time.Now()).State == session.Authenticated
}

// leases6 enters leased and registered addresses into the bindings, and gives clients the networks that are delegated
// to them.
type leases6 struct{ g *gateway }

var _ dhcp6.Events = leases6{}

func (l leases6) Leased(lease dhcp6.Lease) error {
	anchor, addr := lease.Client(), lease.Prefix.Addr()
	if lease.Kind == dhcp6.Delegated {
		return l.g.delegate6(anchor, lease.Prefix)
	}
	if lease.Kind == dhcp6.Registered {
		l.g.bindings.Used(anchor, addr)
		return nil
	}
	return l.g.bindings.Assign(anchor, addr)
}

func (l leases6) Released(lease dhcp6.Lease) error {
	if lease.Kind == dhcp6.Delegated {
		return l.g.undelegate6(lease.Client(), lease.Prefix)
	}
	if lease.Kind == dhcp6.Address {
		l.g.bindings.Unassign(lease.Client(), lease.Prefix.Addr())
	}
	return nil
}

func (l leases6) Rogue(mac dhcp6.MAC, source netip.Addr) {
	l.g.rogue("answers DHCPv6 clients as a server", "DHCPv6 guard, RFC 7610", mac)
}
