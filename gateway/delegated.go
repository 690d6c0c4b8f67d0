package gateway

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/routes"
	"github.com/gateweigh/gateweigh/gateway/delegation"
	"github.com/gateweigh/gateweigh/gateway/prefixpool"
	"github.com/gateweigh/gateweigh/gateway/routeradv"
)

// delegatedPrefixes are the /64s that the LAN has of the prefixes that the provider delegates. Clients have addresses
// of these beside those of lan.address6, at which the gateway itself stays whatever the provider does.
type delegatedPrefixes struct {
	mu  sync.Mutex
	all []delegation.Prefix // guarded by mu; /64s, at most maxDelegated
}

// maxDelegated bounds the prefixes at the same time: the present one, and former ones whose sessions go on. With that
// of lan.address6 they are as many as the data path compares.
const maxDelegated = 3

// delegatedLength is the length that the provider is asked for: RFC 6177 and BCP 157 have 256 networks for a site.
const delegatedLength = 56

// openDelegation asks the provider for a prefix, where the configuration says so.
func (g *gateway) openDelegation(context.Context) (o opened, err error) {
	if !g.cfg.WAN.Delegation {
		return o, nil
	}
	client, err := delegation.Open(delegation.Options{
		Interface: g.cfg.WAN.Interface, Folder: g.cfg.StateDir, Length: delegatedLength, Changed: g.delegated, Log: g.log,
	})
	if err != nil {
		return o, err
	}
	g.delegation = client
	return opened{close: client.Close, run: func(ctx context.Context) error { client.Run(ctx); return nil }}, nil
}

// delegated gives the LAN its /64s of the prefixes that the provider delegates now, and tells clients.
func (g *gateway) delegated(prefixes []delegation.Prefix) {
	var all []delegation.Prefix
	for _, p := range prefixes {
		var err error
		if p.Prefix, err = g.usedOf(p.Prefix); err != nil {
			g.log.Error("a delegated prefix is of no use", "prefix", p.Prefix, "err", err)
			continue
		}
		all = append(all, p)
	}
	// First those that clients begin connections with.
	slices.SortStableFunc(all, func(a, b delegation.Prefix) int { return b.PreferredUntil.Compare(a.PreferredUntil) })
	all = all[:min(len(all), maxDelegated)]
	d := &g.prefixes
	d.mu.Lock()
	d.all = all
	d.mu.Unlock()
	g.log.Info("prefixes delegated by the provider", "prefixes", linksOf(all))
	dev, err := net.InterfaceByName(g.cfg.LAN.Interface)
	if err == nil {
		err = routes.SetOnLink6(dev.Index, linksOf(all))
	}
	if err == nil {
		err = g.dp.IPv6.SetPrefixes6(g.prefixes6())
	}
	if err == nil {
		err = g.retell6(all)
	}
	if err != nil {
		g.log.Error("clients cannot use the delegated prefixes", "err", err)
	}
	g.bindings.Recheck()
}

// usedOf returns what of a delegated prefix clients have addresses of: its first /64, or each of them a /64 of it.
func (g *gateway) usedOf(prefix netip.Prefix) (netip.Prefix, error) {
	if g.cfg.LAN.ClientPrefixes.Delegated {
		return prefix, prefixpool.Check(prefix)
	}
	parts, err := delegation.Carve(prefix, []delegation.Network{{}})
	if err != nil {
		return prefix, err
	}
	return parts[0].Link, nil
}

// retell6 tells clients of their prefixes.
func (g *gateway) retell6(all []delegation.Prefix) error {
	if !g.cfg.LAN.ClientPrefixes.Delegated {
		return g.advertiser.Update(func(a *routeradv.Advertisement) { a.Prefixes = g.advertisedPrefixes() })
	}
	if err := g.setPools(linksOf(all)); err != nil {
		return err
	}
	g.advertiser.Retell()
	return nil
}

func linksOf(all []delegation.Prefix) (links []netip.Prefix) {
	for _, p := range all {
		links = append(links, p.Prefix)
	}
	return links
}

// prefixes6 returns the prefixes of which clients may have addresses.
func (g *gateway) prefixes6() []netip.Prefix {
	d := &g.prefixes
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []netip.Prefix{g.cfg.LAN.Address6.Masked()}
	if pool := g.cfg.LAN.ClientPrefixes.Pool; pool.IsValid() {
		all = append(all, pool)
	}
	return append(all, linksOf(d.all)...)
}

// advertisedPrefixes returns the prefixes as clients are told them, or those of which each is told a /64 of its own.
// Those that the provider has replaced have a preferred lifetime that is over.
func (g *gateway) advertisedPrefixes() []routeradv.Prefix {
	d := &g.prefixes
	d.mu.Lock()
	defer d.mu.Unlock()
	lan := g.cfg.LAN
	configured := lan.Address6.Masked()
	if lan.ClientPrefixes.On() {
		configured = lan.ClientPrefixes.Pool
	}
	var all []routeradv.Prefix
	if configured.IsValid() {
		all = append(all, routeradv.Prefix{Prefix: configured, Preferred: prefixPreferred, Valid: prefixValid,
			OnLink: true, Autonomous: true})
	}
	now := time.Now()
	for _, p := range d.all {
		one := routeradv.Prefix{Prefix: p.Prefix, Preferred: prefixPreferred, Valid: prefixValid,
			PreferredUntil: p.PreferredUntil, ValidUntil: p.ValidUntil, OnLink: true, Autonomous: true}
		if p.Deprecated(now) {
			one.Preferred, one.PreferredUntil = 0, time.Time{}
		}
		all = append(all, one)
	}
	return all
}
