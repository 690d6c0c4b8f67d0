// Package visit lets devices that are not logged in reach a few hosts for a while, each device for itself: the hosts of
// an OpenID provider while somebody logs in there.
//
//	Allow: this device, these names, until then ─┐
//	Learned: the DNS gave a name these addresses ┼──▶ open(device, address and port, until)
//	Prepare: so did the gateway's own resolver ──┘
//
// Hosts are names, and the data path knows addresses. The garden remembers the addresses that names had in answers to
// clients, because a client that has such an answer does not ask again. Before each answer to any client it is asked
// whether it watches the name, which takes no lock, and an answer that tells nothing new opens nothing.
package visit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
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
	// Openable reports whether a name may open an address. It is called before each answer with a name that is watched.
	Openable func(netip.Addr) bool
	Log      *slog.Logger // nil: slog.Default()
}

// MaxOpen bounds the ports of addresses that are open for a device.
const MaxOpen = 64

// Bounds of a Garden.
const (
	maxNames     = 1024 // of patterns such as "*.example.org" whose addresses are remembered
	maxAddresses = 32   // of a name
	// lookupTime bounds what a client waits for of the gateway's own resolver.
	lookupTime = 3 * time.Second
	// ownAge is how long addresses are good that the gateway's own resolver gave, which tells no TTL.
	ownAge = 10 * time.Minute
	// tidyEach is how often names without good addresses are looked for while there are maxNames.
	tidyEach = 10 * time.Second
)

// Garden is the walled garden of devices that visit hosts. Its methods may be called from several goroutines.
type Garden struct {
	cfg     Config
	watched atomic.Pointer[watched]
	// Messages that others can cause.
	full, crowded, failed, unknown budget.OncePerMinute

	mu      sync.Mutex
	exact   map[string]addresses     // guarded by mu: of names that are watched themselves
	below   map[string]addresses     // guarded by mu: of at most maxNames other names
	tidied  time.Time                // guarded by mu: when below was last tidied
	devices map[datapath.MAC]*device // guarded by mu
}

// watched are names that devices may visit. It does not change.
type watched struct {
	names    map[string]bool
	patterns []string // "*.example.org"
}

// addresses are those of a name, and until when they are good.
type addresses map[netip.Addr]time.Time

// device is a device that visits hosts.
type device struct {
	visits []oidc.Visit // those that matter most first
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
	g := &Garden{cfg: cfg, exact: map[string]addresses{}, below: map[string]addresses{},
		devices: map[datapath.MAC]*device{}}
	g.watched.Store(&watched{})
	return g
}

// Watch implements oidc.Visitors.
func (g *Garden) Watch(hosts []oidc.Host) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.watched.Load()
	next := &watched{names: maps.Clone(old.names), patterns: slices.Clone(old.patterns)}
	if next.names == nil {
		next.names = map[string]bool{}
	}
	for _, h := range hosts {
		switch {
		case !isPattern(h.Pattern):
			next.names[h.Pattern] = true
		case !slices.Contains(next.patterns, h.Pattern):
			next.patterns = append(next.patterns, h.Pattern)
		}
	}
	g.watched.Store(next)
}

// Prepare implements oidc.Visitors. Names of patterns are known only by answers to clients.
func (g *Garden) Prepare(ctx context.Context, hosts []oidc.Host) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	names := map[string]bool{}
	for _, h := range hosts {
		if !isPattern(h.Pattern) && !g.knows(h.Pattern) {
			names[h.Pattern] = true
		}
	}
	var all sync.WaitGroup
	for name := range names {
		all.Go(func() {
			addrs, err := g.cfg.Lookup(ctx, name)
			if err != nil {
				g.unknown.Do(func() {
					g.cfg.Log.Warn("looking up a host that a login needs; the client's own questions may show it", "name", name,
						"err", err)
				})
			}
			g.Learned(name, addrs, ownAge)
		})
	}
	all.Wait()
}

// knows reports whether a name has an address that is good.
func (g *Garden) knows(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, good := range g.exact[name] {
		if good.After(now) {
			return true
		}
	}
	return false
}

// Watches implements dns.Watcher.
func (g *Garden) Watches(name string) bool {
	w := g.watched.Load()
	return w.names[name] || slices.ContainsFunc(w.patterns, func(pattern string) bool { return matches(pattern, name) })
}

// Learned implements dns.Watcher: it opens the addresses that are new for the devices that visit the name.
func (g *Garden) Learned(name string, addrs []netip.Addr, good time.Duration) {
	if !g.Watches(name) {
		return
	}
	openable := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		if a = a.Unmap(); g.cfg.Openable(a) {
			openable = append(openable, a)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	fresh := g.remember(name, openable, now, now.Add(good))
	if len(fresh) == 0 {
		return
	}
	for mac, d := range g.devices {
		if err := g.add(mac, d, name, fresh, now); err != nil {
			g.failed.Do(func() {
				g.cfg.Log.Error("opening a host for a client that logs in", "name", name, "mac", mac, "err", err)
			})
		}
	}
}

// remember enters the addresses of a name, and returns those that were not good before. mu is held.
func (g *Garden) remember(name string, addrs []netip.Addr, now, until time.Time) (fresh []netip.Addr) {
	names := g.below
	if g.watched.Load().names[name] {
		names = g.exact
	}
	all := names[name]
	if all == nil {
		if len(g.below) >= maxNames && now.Sub(g.tidied) >= tidyEach {
			g.tidied = now
			maps.DeleteFunc(g.below, func(_ string, all addresses) bool { return all.tidy(now) == 0 })
		}
		if len(g.below) >= maxNames && !g.watched.Load().names[name] {
			g.full.Do(func() {
				g.cfg.Log.Warn("a name that a login may need is not opened: too many names of oidc.garden's patterns are in use",
					"name", name, "most", maxNames)
			})
			return nil
		}
		all = addresses{}
		names[name] = all
	}
	for _, a := range addrs {
		if _, has := all[a]; !has && len(all) >= maxAddresses && all.tidy(now) >= maxAddresses {
			continue
		}
		if !all[a].After(now) {
			fresh = append(fresh, a)
		}
		if all[a].Before(until) {
			all[a] = until
		}
	}
	return fresh
}

// tidy drops the addresses that are no longer good, and returns how many are left.
func (all addresses) tidy(now time.Time) int {
	maps.DeleteFunc(all, func(_ netip.Addr, end time.Time) bool { return !end.After(now) })
	return len(all)
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
	d.visits = latest(visits)
	err := g.set(mac, d)
	if len(visits) == 0 && len(d.open) == 0 {
		delete(g.devices, mac)
	}
	return err
}

// latest is each host once, until the last of its visits.
func latest(visits []oidc.Visit) (all []oidc.Visit) {
	for _, v := range visits {
		i := slices.IndexFunc(all, func(other oidc.Visit) bool { return other.Host == v.Host })
		switch {
		case i < 0:
			all = append(all, v)
		case v.Until.After(all[i].Until):
			all[i].Until = v.Until
		}
	}
	return all
}

// add opens the fresh addresses of a name for a device, if it visits the name. mu is held.
func (g *Garden) add(mac datapath.MAC, d *device, name string, fresh []netip.Addr, now time.Time) error {
	var errs []error
	for _, v := range d.visits {
		until := d.until(name, v.Host.Port)
		if !matches(v.Host.Pattern, name) || !until.After(now) {
			continue
		}
		for _, a := range fresh {
			at := netip.AddrPortFrom(a, v.Host.Port)
			if o, has := d.open[at]; has && !o.until.Before(until) {
				continue
			} else if !has && len(d.open) >= MaxOpen {
				g.crowded.Do(func() {
					g.cfg.Log.Warn("a client that logs in needs more addresses than may be open for it", "mac", mac, "name", name,
						"most", MaxOpen)
				})
				if isPattern(v.Host.Pattern) {
					return errors.Join(errs...) // what is open matters as much
				}
				return errors.Join(append(errs, g.set(mac, d))...)
			}
			errs = append(errs, g.openOne(mac, d, at, opened{name, until}))
		}
	}
	return errors.Join(errs...)
}

// openOne opens a port of an address for a device. mu is held.
func (g *Garden) openOne(mac datapath.MAC, d *device, at netip.AddrPort, o opened) error {
	if err := g.cfg.Open(mac, at, o.until); err != nil {
		return fmt.Errorf("opening %s: %w", at, err)
	}
	d.open[at] = o
	return nil
}

// set opens what a device may reach, and closes what it may not. mu is held.
func (g *Garden) set(mac datapath.MAC, d *device) error {
	want := g.wanted(d, time.Now())
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
		if d.open[at] != o {
			errs = append(errs, g.openOne(mac, d, at, o))
		}
	}
	return errors.Join(errs...)
}

// candidate is a port of an address that may be opened for a device.
type candidate struct {
	at   netip.AddrPort
	as   opened
	rank int // 0 matters most
}

// wanted is what is to be open for a device: addresses that are good before those that were, in the order of the
// visits, at most MaxOpen. mu is held.
func (g *Garden) wanted(d *device, now time.Time) map[netip.AddrPort]opened {
	var all []candidate
	for i, v := range d.visits {
		for _, names := range []map[string]addresses{g.exact, g.below} {
			for name, addrs := range names {
				until := d.until(name, v.Host.Port)
				if !matches(v.Host.Pattern, name) || !until.After(now) {
					continue
				}
				for a, good := range addrs {
					at := netip.AddrPortFrom(a, v.Host.Port)
					rank := 2 * i
					if _, open := d.open[at]; !open {
						rank++
					}
					if good.After(now) {
						all = append(all, candidate{at, opened{name, until}, rank})
					}
				}
			}
		}
	}
	for at, o := range d.open { // also after the name's time to live: the browser may have a connection
		if until := d.until(o.name, at.Port()); until.After(now) {
			all = append(all, candidate{at, opened{o.name, until}, 2 * len(d.visits)})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), a.at.Compare(b.at), cmp.Compare(a.as.name, b.as.name))
	})
	want := map[netip.AddrPort]opened{}
	for _, c := range all {
		if before, has := want[c.at]; has && before.until.Before(c.as.until) || !has && len(want) < MaxOpen {
			want[c.at] = c.as
		}
	}
	return want
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

// isPattern reports whether a pattern is of several names.
func isPattern(pattern string) bool { return strings.HasPrefix(pattern, "*") }

// matches reports whether a name is one of a pattern's: "example.org", or "*.example.org" for all names below it.
func matches(pattern, name string) bool {
	below, wild := strings.CutPrefix(pattern, "*")
	if wild {
		return strings.HasSuffix(name, below) && len(name) > len(below)
	}
	return pattern == name
}
