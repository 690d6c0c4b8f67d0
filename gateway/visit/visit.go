// Package visit lets devices that are not logged in reach a few hosts for a while, each device for itself: the hosts of
// an OpenID provider while somebody logs in there.
//
//	Allow: this device, these names, until then ─┐
//	Learned: the DNS gave a name these addresses ┼──▶ open(device, address and port, until)
//	Prepare: so did the gateway's own resolver ──┘
//
// Hosts are names, and the data path knows addresses. The garden remembers the addresses that names had in answers to
// clients, because a client that has such an answer does not ask again.
package visit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/dns"
	"github.com/gateweigh/gateweigh/gateway/oidc"
)

// Config is the configuration of a Garden. All but Log are required.
type Config struct {
	// Open is the data path's OpenFor.
	Open func(datapath.MAC, netip.AddrPort, time.Time) error
	// Lookup asks the gateway's own resolver for the addresses of a name.
	Lookup func(context.Context, string) ([]netip.Addr, error)
	// Openable reports whether a name may open an address.
	Openable func(netip.Addr) bool
	Log      *slog.Logger // nil: slog.Default()
}

// Bounds of a Garden.
const (
	maxNames     = 1024 // whose addresses are remembered
	maxAddresses = 64   // of a name
	// lookupTime bounds what a client waits for of the gateway's own resolver.
	lookupTime = 3 * time.Second
	// ownAge is how long addresses are good that the gateway's own resolver gave, which tells no TTL.
	ownAge = 10 * time.Minute
)

// Garden is the walled garden of devices that visit hosts. Its methods may be called from several goroutines.
type Garden struct {
	cfg Config

	mu      sync.Mutex
	wanted  map[string]bool                     // guarded by mu: patterns that devices have visited
	known   map[string]map[netip.Addr]time.Time // guarded by mu: addresses of names, and until when they are good
	devices map[datapath.MAC]*device            // guarded by mu
}

// device is a device that visits hosts.
type device struct {
	visits []oidc.Visit
	open   map[netip.AddrPort]opened
}

// opened is a port of an address that is open for a device.
type opened struct {
	name  string // because of which
	until time.Time
}

var (
	_ oidc.Visitors = (*Garden)(nil)
	_ dns.Watcher   = (*Garden)(nil)
)

// New makes a garden that nobody visits.
func New(cfg Config) *Garden {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Garden{cfg: cfg, wanted: map[string]bool{}, known: map[string]map[netip.Addr]time.Time{},
		devices: map[datapath.MAC]*device{}}
}

// Prepare implements oidc.Visitors. Names of patterns are known only by answers to clients.
func (g *Garden) Prepare(ctx context.Context, hosts []oidc.Host) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	names := map[string]bool{}
	g.mu.Lock()
	for _, h := range hosts {
		g.wanted[h.Pattern] = true
		if !strings.HasPrefix(h.Pattern, "*.") {
			names[h.Pattern] = true
		}
	}
	g.mu.Unlock()
	var all sync.WaitGroup
	for name := range names {
		all.Go(func() {
			addrs, err := g.cfg.Lookup(ctx, name)
			if err != nil {
				g.cfg.Log.Warn("looking up a host that a login needs; the client's own questions may show it", "name", name,
					"err", err)
			}
			g.Learned(name, addrs, ownAge)
		})
	}
	all.Wait()
}

// Watches implements dns.Watcher.
func (g *Garden) Watches(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for pattern := range g.wanted {
		if matches(pattern, name) {
			return true
		}
	}
	return false
}

// Learned implements dns.Watcher: it opens the addresses for the devices that visit the name.
func (g *Garden) Learned(name string, addrs []netip.Addr, good time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remember(name, addrs, time.Now().Add(good))
	for mac, d := range g.devices {
		if !slices.ContainsFunc(d.visits, func(v oidc.Visit) bool { return matches(v.Host.Pattern, name) }) {
			continue
		}
		if err := g.set(mac, d); err != nil {
			g.cfg.Log.Error("opening a host for a client that logs in", "name", name, "mac", mac, "err", err)
		}
	}
}

// remember enters the addresses of a name. mu is held.
func (g *Garden) remember(name string, addrs []netip.Addr, until time.Time) {
	now := time.Now()
	if g.known[name] == nil {
		if len(g.known) >= maxNames {
			maps.DeleteFunc(g.known, func(_ string, all map[netip.Addr]time.Time) bool {
				maps.DeleteFunc(all, func(_ netip.Addr, end time.Time) bool { return end.Before(now) })
				return len(all) == 0
			})
		}
		if len(g.known) >= maxNames {
			return
		}
		g.known[name] = map[netip.Addr]time.Time{}
	}
	all := g.known[name]
	for _, a := range addrs {
		if a = a.Unmap(); !g.cfg.Openable(a) {
			continue
		}
		if _, has := all[a]; !has && len(all) >= maxAddresses {
			maps.DeleteFunc(all, func(_ netip.Addr, end time.Time) bool { return end.Before(now) })
			if len(all) >= maxAddresses {
				continue
			}
		}
		if all[a].Before(until) {
			all[a] = until
		}
	}
}

// Allow implements oidc.Visitors.
func (g *Garden) Allow(mac [6]byte, visits []oidc.Visit) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.devices[mac]
	if d == nil {
		if len(visits) == 0 {
			return nil
		}
		d = &device{open: map[netip.AddrPort]opened{}}
		g.devices[mac] = d
	}
	d.visits = visits
	err := g.set(mac, d)
	if len(visits) == 0 && len(d.open) == 0 {
		delete(g.devices, mac)
	}
	return err
}

// set opens what a device may reach, and closes what it may not. mu is held.
func (g *Garden) set(mac datapath.MAC, d *device) error {
	now := time.Now()
	want := map[netip.AddrPort]opened{}
	for at, o := range d.open { // also after the name's time to live: the browser may have a connection
		if until := d.until(o.name, at.Port()); until.After(now) {
			want[at] = opened{o.name, until}
		}
	}
	for name, addrs := range g.known {
		for _, v := range d.visits {
			until := d.until(name, v.Host.Port)
			if !matches(v.Host.Pattern, name) || !until.After(now) {
				continue
			}
			for a, good := range addrs {
				if at := netip.AddrPortFrom(a, v.Host.Port); good.After(now) && want[at].until.Before(until) {
					want[at] = opened{name, until}
				}
			}
		}
	}
	var errs []error
	for at := range d.open {
		if _, stays := want[at]; !stays {
			if err := g.cfg.Open(mac, at, time.Unix(0, 0)); err != nil {
				errs = append(errs, fmt.Errorf("closing %s: %w", at, err))
				continue
			}
			delete(d.open, at)
		}
	}
	for at, o := range want {
		if d.open[at] == o {
			continue
		}
		if err := g.cfg.Open(mac, at, o.until); err != nil {
			errs = append(errs, fmt.Errorf("opening %s: %w", at, err))
			continue
		}
		d.open[at] = o
	}
	return errors.Join(errs...)
}

// until is how long a device may reach a port of a name; zero: it may not.
func (d *device) until(name string, port uint16) (until time.Time) {
	for _, v := range d.visits {
		if v.Host.Port == port && v.Until.After(until) && matches(v.Host.Pattern, name) {
			until = v.Until
		}
	}
	return until
}

// matches reports whether a name is one of a pattern's: "example.org", or "*.example.org" for all names below it.
func matches(pattern, name string) bool {
	below, wild := strings.CutPrefix(pattern, "*")
	if wild {
		return strings.HasSuffix(name, below) && len(name) > len(below)
	}
	return pattern == name
}
