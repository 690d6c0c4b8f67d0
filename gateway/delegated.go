package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/delegation"
	"github.com/gateweigh/gateweigh/gateway/prefixpool"
	"github.com/gateweigh/gateweigh/gateway/routeradv"
)

// delegatedPrefixes are the /64s that the LAN has of the prefixes that the provider delegates. Clients have addresses
// of these beside those of lan.address6, at which the gateway itself stays whatever the provider does.
type delegatedPrefixes struct {
	mu  sync.Mutex
	all []usedPrefix // guarded by mu; at most maxDelegated
}

// usedPrefix is what of a delegated prefix the LAN's clients have addresses of.
type usedPrefix struct {
	delegation.Prefix
	whole netip.Prefix // as the provider delegates it
}

// maxDelegated bounds the prefixes at the same time: the present one, and former ones whose sessions go on. With that
// of lan.address6 they are as many as the data path compares.
const maxDelegated = 3

// delegatedLength is the length that the provider is asked for: RFC 6177 and BCP 157 have 256 networks for a site.
const delegatedLength = 56

// How long hosts keep addresses of a delegated prefix at most. The provider may replace it at any time, and a host does
// not take less than two hours for one that it holds for longer (RFC 9096: ND_PREFERRED_LIMIT, ND_VALID_LIMIT).
const (
	delegatedPreferred = 45 * time.Minute
	delegatedValid     = 90 * time.Minute
)

// openDelegation asks the provider for a prefix, where the configuration says so, or takes part in what the daemon asks
// for several networks.
func (g *gateway) openDelegation(context.Context) (o opened, err error) {
	switch p := g.provider; {
	case !g.cfg.WAN.Delegation:
		return o, nil
	case p != nil:
		g.delegation = p.client
		return opened{run: func(ctx context.Context) error { p.follow(ctx, g.delegated); return nil }}, nil
	}
	g.delegation, o, err = askProvider(g.cfg, g.delegated, g.log)
	return o, err
}

// askProvider opens the client that asks for prefixes and tells of them.
func askProvider(cfg *config.Config, tell func([]delegation.Prefix), log *slog.Logger) (*delegation.Client, opened,
	error) {
	client, err := delegation.Open(delegation.Options{
		Interface: cfg.WAN.Interface, Folder: cfg.StateDir, Length: delegatedLength, Changed: tell, Log: log,
	})
	if err != nil {
		return nil, opened{}, err
	}
	return client, opened{close: client.Close, run: func(ctx context.Context) error { client.Run(ctx); return nil }}, nil
}

// provider has the prefixes that the provider delegates for several networks.
type provider struct {
	client *delegation.Client

	mu       sync.Mutex // guards what follows
	known    bool
	prefixes []delegation.Prefix
	changed  chan struct{} // closed when they have changed
}

// openProvider asks for prefixes for all networks.
func (s *several) openProvider(context.Context) (o opened, err error) {
	if !s.cfg.WAN.Delegation {
		return o, nil
	}
	s.provider = &provider{changed: make(chan struct{})}
	s.provider.client, o, err = askProvider(s.cfg, s.provider.set, s.Log)
	return o, err
}

func (p *provider) set(prefixes []delegation.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.prefixes = true, prefixes
	close(p.changed)
	p.changed = make(chan struct{})
}

// follow tells a network of the prefixes, and of each change, until ctx ends.
func (p *provider) follow(ctx context.Context, tell func([]delegation.Prefix)) {
	for {
		p.mu.Lock()
		known, prefixes, changed := p.known, p.prefixes, p.changed
		p.mu.Unlock()
		if known {
			tell(prefixes)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// delegated gives the LAN its /64s of the prefixes that the provider delegates now, and tells clients.
func (g *gateway) delegated(prefixes []delegation.Prefix) {
	var all []usedPrefix
	for _, p := range prefixes {
		used := usedPrefix{p, p.Prefix}
		var err error
		if used.Prefix.Prefix, err = g.usedOf(p.Prefix); err != nil {
			g.log.Error("a delegated prefix is of no use", "prefix", p.Prefix, "err", err)
			continue
		}
		all = append(all, used)
	}
	// First those that clients begin connections with.
	slices.SortStableFunc(all, func(a, b usedPrefix) int { return b.PreferredUntil.Compare(a.PreferredUntil) })
	all = all[:min(len(all), maxDelegated)]
	before := g.prefixes6()
	d := &g.prefixes
	d.mu.Lock()
	d.all = all
	d.mu.Unlock()
	g.watchPrefixes(before, g.prefixes6())
	g.log.Info("prefixes delegated by the provider", "prefixes", linksOf(all))
	err := g.dp.IPv6.SetPrefixes6(g.prefixes6(), g.onLink6(linksOf(all)))
	if err == nil && g.cfg.LAN.ClientPrefixes.Delegated {
		err = g.setPools(linksOf(all))
	}
	if err == nil {
		err = g.dp.IPv6.SetPools6(g.routed6())
	}
	if err == nil {
		g.equip6()
		err = g.retell6()
	}
	if err != nil {
		g.log.Error("clients cannot use the delegated prefixes", "err", err)
	}
	g.bindings.Recheck()
}

// usedOf returns what of a delegated prefix clients have addresses of: its first /64, of several networks each its own,
// or each client a /64 of it.
func (g *gateway) usedOf(prefix netip.Prefix) (netip.Prefix, error) {
	if g.cfg.LAN.ClientPrefixes.Delegated {
		return prefix, prefixpool.Check(prefix)
	}
	return delegation.Subnet(prefix, g.cfg.Subnet)
}

// retell6 tells clients of their prefixes.
func (g *gateway) retell6() error {
	if !g.cfg.LAN.ClientPrefixes.Delegated {
		return g.advertiser.Update(func(a *routeradv.Advertisement) {
			a.Prefixes, a.Routes = g.advertisedPrefixes(), g.advertisedRoutes()
		})
	}
	g.takeBack6()
	g.advertiser.Retell()
	return nil
}

func linksOf(all []usedPrefix) (links []netip.Prefix) {
	for _, p := range all {
		links = append(links, p.Prefix.Prefix)
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
	for _, named := range g.cfg.LAN.PrefixPools {
		all = append(all, named.Network)
	}
	return append(all, linksOf(d.all)...)
}

// advertisedRoutes returns the routes to prefixes that the provider delegates, and to a private prefix of the LAN, of
// which clients are told whether there is a way to the Internet or not (RFC 7084, L-3). Those to replaced prefixes are
// withdrawn, and none is told for longer than the provider's prefix lasts.
func (g *gateway) advertisedRoutes() (all []routeradv.Route) {
	if !g.cfg.WAN.Delegation {
		return nil
	}
	if own := g.cfg.LAN.Address6.Masked(); own.Addr().IsPrivate() {
		all = append(all, routeradv.Route{Prefix: own, Lifetime: routerLifetime})
	}
	d := &g.prefixes
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, p := range d.all {
		one := routeradv.Route{Prefix: p.whole, Lifetime: routerLifetime, Until: p.ValidUntil}
		if p.Deprecated(now) {
			one.Lifetime = 0
		}
		if !slices.ContainsFunc(all, func(r routeradv.Route) bool { return r.Prefix == one.Prefix }) {
			all = append(all, one)
		}
	}
	return all
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
	present := func(p netip.Prefix) {
		all = append(all, routeradv.Prefix{Prefix: p, Preferred: prefixPreferred, Valid: prefixValid, OnLink: true,
			Autonomous: true, Delegates: g.cfg.DHCP6.PDPool.On()})
	}
	if configured.IsValid() {
		present(configured)
	}
	for _, named := range lan.PrefixPools {
		present(named.Network)
	}
	now := time.Now()
	for _, p := range d.all {
		one := routeradv.Prefix{Prefix: p.Prefix.Prefix, Preferred: delegatedPreferred, Valid: delegatedValid,
			PreferredUntil: p.PreferredUntil, ValidUntil: p.ValidUntil, OnLink: true, Autonomous: true,
			Delegates: g.cfg.DHCP6.PDPool.On()}
		if p.Deprecated(now) {
			one.Preferred, one.PreferredUntil = 0, time.Time{}
		}
		all = append(all, one)
	}
	return all
}
