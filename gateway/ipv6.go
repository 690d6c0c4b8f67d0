package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/routes"
	"github.com/gateweigh/gateweigh/gateway/routeradv"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Clients make their IPv6 addresses themselves, of the prefix that router advertisements tell them. Package bindings
// learns which client has which address. A client of the session table, known by its IPv4 address, has the addresses of
// its MAC address as further ones. So they are admitted, limited and counted with it. A device without IPv4 is a client
// once it sends a packet from one of its addresses. A PPPoE session and the LAN are links of their own, also of one MAC
// address.
//
//	data path ── heard ──▶ routeradv (solicitations) ──▶ advertisements
//	                 ├───▶ bindings ── Bound, Gone ──▶ addresses6 ── Extend, Withdraw ──▶ session table
//	                 └──── packets of addresses that no client has ────▶ Enter ───────────────▶
type addresses6 struct {
	// turns are held while the addresses of a client's MAC address change, which waits for the disk. Those of others may
	// change meanwhile, and are written together with them.
	turns [256]sync.Mutex

	mu    sync.Mutex
	bound map[bindings.Anchor][]netip.Addr // guarded by mu; those that no client has yet included

	entering newcomers6
}

// How long prefixes and the router are good for (RFC 4861, section 6.2.1).
const (
	prefixValid     = 24 * time.Hour
	prefixPreferred = 4 * time.Hour
	routerLifetime  = 30 * time.Minute
	resolverTime    = 30 * time.Minute
)

// openIPv6 learns clients' IPv6 addresses and advertises the prefix, where the network has one.
func (g *gateway) openIPv6(context.Context) (o opened, err error) {
	lan := g.cfg.LAN
	if !lan.Address6.IsValid() {
		return o, nil
	}
	given := g.regrant()
	if err := errors.Join(g.openEach6(), g.openPools6()); err != nil {
		return o, err
	}
	g.equip6()
	local, err := linkLocal(lan.Interface)
	if err != nil {
		return o, err
	}
	heard, err := listen6(g.dp.IPv6, g.hasSessions6())
	if err != nil {
		return o, err
	}
	if g.bindings, err = bindings.Open(g.bindingsConfig(heard, local)); err != nil {
		return o, errors.Join(err, heard.Close())
	}
	o.close = func() error { return errors.Join(heard.Close(), g.bindings.Close()) }
	if g.advertiser, err = routeradv.New(g.advertiserConfig(heard, local)); err != nil {
		return o, err
	}
	if len(given) > 0 { // so that what they were told can be withdrawn
		g.advertiser.Retell(given...)
	}
	g.resume6()
	parts := []func(context.Context) error{g.bindings.Run, g.advertiser.Run, g.followUpstream6,
		func(ctx context.Context) error {
			defer g.addresses6.entering.together.Wait()
			return heard.run(ctx, g.bindings.Used, g.sent6)
		}}
	if g.cfg.DHCP6.Mode != config.Off {
		if err := g.openDHCP6(heard, local); err != nil {
			return o, err
		}
		parts = append(parts, g.dhcp6.Run)
		o.close = func() error {
			return errors.Join(g.dhcp6.Close(), g.leases6.Close(), heard.Close(), g.bindings.Close())
		}
	}
	g.takeBack6()
	o.run = func(ctx context.Context) error { return runAll(ctx, parts...) }
	return o, nil
}

func (g *gateway) advertiserConfig(heard *heard6, local netip.Addr) routeradv.Config {
	out := routeradv.Config{
		Interface: g.cfg.LAN.Interface, LinkLocal: local, Frames: heard.routers.open, Log: g.log,
		Rogue: func(r routeradv.Rogue) { g.rogue("advertises itself as an IPv6 router", raGuard, r.MAC) },
	}
	if g.cfg.LAN.ClientPrefixes.On() {
		out.Told = g.toldEach
	} else {
		out.All = g.advertisement()
	}
	return out
}

func (g *gateway) bindingsConfig(heard *heard6, local netip.Addr) bindings.Config {
	lan := g.cfg.LAN
	return bindings.Config{
		Interface: lan.Interface, Source: local, Frames: heard.neighbours.open, Log: g.log,
		Rules: bindings.Rules{
			MayUse:   g.mayUse6,
			IsOwn:    func(addr netip.Addr) bool { return addr == local || addr == routes.NextHop6 },
			Known:    func(a bindings.Anchor) bool { _, known := g.table.Find(a.MAC, a.Session); return known },
			LastSeen: g.seen6,
			Isolated: lan.NDProxy != config.Off,
			Most:     int(datapath.Network{Address: lan.Address}.Addrs6()),
		},
		Proxy:     lan.NDProxy == config.NDProxyAll,
		Bound:     g.bound6,
		Gone:      g.gone6,
		Redirects: func(mac bindings.MAC) { g.rogue("sends IPv6 redirects", raGuard, mac) },
		Store:     savedAddresses{g},
	}
}

// mayUse6 reports whether a client may have an address, as far as its prefix and the gateway's own decide that.
func (g *gateway) mayUse6(a bindings.Anchor, addr netip.Addr) bool {
	if !g.concerns6(a) {
		return false
	}
	if g.cfg.LAN.ClientPrefixes.On() {
		return g.each6.isOf(a, addr) && addr != netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	return addr != g.cfg.LAN.Address6.Addr() && slices.ContainsFunc(g.prefixes6(), func(p netip.Prefix) bool {
		return p.Contains(addr) && addr != p.Addr() // which all routers have (RFC 4291, 2.6.1)
	})
}

// savedAddresses are the IPv6 addresses of the session table's clients, which a former daemon saved.
type savedAddresses struct{ g *gateway }

var _ bindings.Store = savedAddresses{}

func (s savedAddresses) Load() (all []bindings.Saved, err error) {
	for c := range s.g.table.Each {
		of := s.g.sessionPrefixes(c)
		behind := append(slices.Clip(of.Delegated), of.Routed...)
		for _, addr := range append([]netip.Addr{c.Addr}, c.FurtherAddrs...) {
			if addr.Is6() && !slices.ContainsFunc(behind, func(p netip.Prefix) bool { return p.Contains(addr) }) {
				all = append(all, bindings.Saved{Addr: addr, Anchor: anchorOf(c)})
			}
		}
	}
	return all, nil
}

// Put and Delete do nothing: Extend and Withdraw write to the table's file.
func (savedAddresses) Put(bindings.Saved) error { return nil }

func (savedAddresses) Delete(netip.Addr) error { return nil }

// runAll runs functions until ctx ends or one of them fails.
func runAll(ctx context.Context, all ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(all))
	for _, run := range all {
		go func() { results <- run(ctx) }()
	}
	var err error
	for range all {
		if e := <-results; e != nil {
			err = errors.Join(err, e)
			cancel()
		}
	}
	return err
}

// advertisement is what all clients are told.
func (g *gateway) advertisement() routeradv.Advertisement {
	own := g.cfg.LAN.Address6
	a := routeradv.Advertisement{
		RouterLifetime: g.upstream6.routerLifetime(),
		Managed:        g.cfg.DHCP6.Mode == config.Stateful, Other: g.cfg.DHCP6.Mode != config.Off,
		Prefixes: g.advertisedPrefixes(), Routes: g.advertisedRoutes(),
	}
	if g.cfg.LAN.NAT64.IsValid() {
		a.NAT64Prefix, a.NAT64PrefixExpiry = g.cfg.LAN.NAT64, routerLifetime
	}
	if g.dns != nil {
		a.DNSServers, a.DNSLifetime = []netip.Addr{own.Addr()}, resolverTime
	}
	if g.cfg.DHCP.Domain != "" {
		a.SearchDomains, a.DNSLifetime = []string{g.cfg.DHCP.Domain}, resolverTime
	}
	if g.portal != nil {
		a.CaptivePortal = g.portal.APIURL6()
	}
	return a
}

// linkLocal returns the link-local address of an interface, by which clients know their router.
func linkLocal(name string) (netip.Addr, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("interface %s: %w", name, err)
	}
	addrs, err := dev.Addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("reading the addresses of %s: %w", name, err)
	}
	for _, addr := range addrs {
		if p, err := netip.ParsePrefix(addr.String()); err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no link-local IPv6 address, by which clients know their router: is IPv6 off "+
		"there (sysctl net.ipv6.conf.%s.disable_ipv6)?", name, name)
}

// seen6 returns when the data path last forwarded a packet of the client that has an address; zero: never.
func (g *gateway) seen6(addr netip.Addr) time.Time {
	s, known := g.table.Get(addr)
	if !known {
		return time.Time{}
	}
	return s.Seen
}

// begin waits for a MAC address's turn, which lasts until end is called. mu must not be held.
func (a *addresses6) begin(mac datapath.MAC) (end func()) {
	turn := &a.turns[mac[5]^mac[4]*7^mac[3]*31]
	turn.Lock()
	return turn.Unlock
}

// anchorOf is what a client's addresses are bound to.
func anchorOf(s session.Session) bindings.Anchor {
	return bindings.Anchor{MAC: s.MAC, Session: s.PPPoE.Session}
}

// of returns the addresses that are bound to an anchor.
func (a *addresses6) of(anchor bindings.Anchor) []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.bound[anchor])
}

// add notes that an address is bound to an anchor, and reports whether it was not.
func (a *addresses6) add(anchor bindings.Anchor, addr netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bound == nil {
		a.bound = map[bindings.Anchor][]netip.Addr{}
	}
	if slices.Contains(a.bound[anchor], addr) {
		return false
	}
	a.bound[anchor] = append(a.bound[anchor], addr)
	return true
}

// drop notes that an address is not bound to an anchor, and reports whether it was.
func (a *addresses6) drop(anchor bindings.Anchor, addr netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := slices.Contains(a.bound[anchor], addr)
	a.bound[anchor] = slices.DeleteFunc(a.bound[anchor], func(other netip.Addr) bool { return other == addr })
	if len(a.bound[anchor]) == 0 {
		delete(a.bound, anchor)
	}
	return was
}

// bound6 gives a client IPv6 addresses that it has made itself.
func (g *gateway) bound6(anchor bindings.Anchor, addrs ...netip.Addr) {
	a := &g.addresses6
	defer a.begin(anchor.MAC)()
	for _, addr := range addrs {
		if a.add(anchor, addr) {
			g.each6.used(anchor, addr)
		}
	}
	if key, known := g.table.Find(anchor.MAC, anchor.Session); known {
		g.extend6(key, addrs...)
	}
}

// gone6 takes an IPv6 address from a client.
func (g *gateway) gone6(anchor bindings.Anchor, addr netip.Addr) {
	a := &g.addresses6
	defer a.begin(anchor.MAC)()
	if a.drop(anchor, addr) {
		g.each6.unused(anchor, addr)
	}
	s, known := g.table.Get(addr)
	if !known || anchorOf(s) != anchor {
		return
	}
	g.withdraw6(s.Key, addr)
}

func (g *gateway) withdraw6(key session.Key, addr netip.Addr) {
	if err := g.table.Withdraw(key, addr); err != nil && !errors.Is(err, session.ErrMoved) {
		g.log.Error("an IPv6 address stays with a client that has left it", "client", key.String(), "addr", addr, "err", err)
	}
}

// leased6 gives a client that has leased an IPv4 address the IPv6 addresses of its MAC address.
func (g *gateway) leased6(key session.Key) {
	a := &g.addresses6
	defer a.begin(key.MAC)()
	var fresh []netip.Addr
	for _, addr := range a.of(bindings.Anchor{MAC: key.MAC}) {
		if _, known := g.table.Get(addr); !known {
			fresh = append(fresh, addr)
		}
	}
	if len(fresh) > 0 {
		g.extend6(key, fresh...)
	}
	g.giveNetworks6(key)
}

func (g *gateway) extend6(key session.Key, addrs ...netip.Addr) {
	err := g.table.Extend(key, addrs...)
	switch {
	case err == nil || errors.Is(err, session.ErrMoved) || errors.Is(err, session.ErrClosed):
	default:
		g.log.Error("a client cannot use its IPv6 addresses", "client", key.String(), "addrs", addrs, "err", err)
	}
}

// raGuard is what keeps devices from acting as routers.
const raGuard = "RA guard, RFC 6105"

// rogue tells of a device that does what only the gateway may. The data path drops its frames; other clients hear them
// unless access points and switches drop them.
func (g *gateway) rogue(does, guard string, mac [6]byte) {
	g.log.Warn("a device on the LAN "+does+": have access points and switches drop that ("+guard+")",
		"mac", net.HardwareAddr(mac[:]).String())
}
