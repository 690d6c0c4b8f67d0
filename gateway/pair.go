// Two gateways on one LAN, of which one serves at a time. Each begins as the standby: it has the clients of the other
// one in its table and its data path, and nothing that clients reach. To serve, it opens the rest. To be the standby
// again, it closes everything and opens what a standby has; admitted clients' packets go on meanwhile.
//
//	              keepalived's notify, the address at the LAN, or the lease in the store
//	standby ──────────────────────────────▶ active ──────── another one has a later term ──┐
//	   ▲                                       └─────────── keepalived's notify ───────────┤
//	   └───────────────────────────────────────────────────────────────────────────────────┘

package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
)

// errStandby ends what an active gateway has open.
var errStandby = errors.New("this gateway is the standby now")

// pair is a gateway of two, as long as the daemon runs.
type pair struct {
	cfg *config.Config
	log *slog.Logger

	mu      sync.Mutex // guards what follows
	told    bool       // keepalived says that this gateway is to serve
	fenced  string     // the gateway that serves in place of this one, until keepalived takes the addresses away; "": none
	changed chan struct{}
	life    *pairLife // nil: the standby is being opened
}

// runPair serves as one of two gateways until ctx ends.
func runPair(ctx context.Context, cfg *config.Config, d Daemon) error {
	p := &pair{cfg: cfg, log: d.Log, changed: make(chan struct{})}
	d.Ready = sync.OnceFunc(d.Ready)
	for {
		err := p.live(ctx, d)
		if !errors.Is(err, errStandby) || ctx.Err() != nil {
			return err
		}
		p.log.Warn("another gateway serves: this one is the standby now", "site", cfg.Pair.Site)
	}
}

// live is a standby that may become active, until it is to be a standby again (errStandby).
func (p *pair) live(ctx context.Context, d Daemon) error {
	g := newGateway(p.cfg, d)
	l := &pairLife{pair: p, g: g, feed: newFeed()}
	g.reload, g.pair = g.admin.reloading(d.Reload), l
	store := g.store.part(p.cfg, d, g.sessionsNow)
	defer p.set(nil)
	return runParts(ctx, slices.Concat([]part{{"control", g.openControl}, store}, g.foundation(), g.former(),
		g.forwarder(), []part{{"pair", l.open}}, daemonParts(p.cfg, g.status)), d.Ready)
}

// set notes what is open.
func (p *pair) set(l *pairLife) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life = l
}

// become is what keepalived's notify says.
func (p *pair) become(active bool) error {
	if p.cfg.Pair.By != config.ByKeepalived {
		return fmt.Errorf("pair.by is %q: gatewayd itself finds out which gateway serves", p.cfg.Pair.By)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = active
	if !active {
		p.fenced = ""
	}
	p.signal()
	return nil
}

// fence notes that another gateway serves in place of this one.
func (p *pair) fence(by string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = false
	if p.cfg.Pair.By == config.ByKeepalived {
		p.fenced = by
	}
	p.signal()
}

// fencedBy returns the gateway that serves in place of this one, while keepalived has not taken the addresses away.
func (p *pair) fencedBy() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fenced
}

// signal wakes those that wait for a change. mu is held.
func (p *pair) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// wanted returns whether keepalived wants this gateway to serve, and a channel that is closed when that may change.
func (p *pair) wanted() (serves bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told && p.fenced == "", p.changed
}

// state is what operators see of the pair.
func (p *pair) state() *control.Pair {
	p.mu.Lock()
	l, fenced := p.life, p.fenced
	p.mu.Unlock()
	out := &control.Pair{Site: p.cfg.Pair.Site, Role: control.Standby}
	if l == nil {
		out.Why = "it is being opened"
		return out
	}
	l.showIn(out)
	if fenced != "" {
		out.Why = fmt.Sprintf("%s serves, and keepalived still has the addresses here: gatewayd waits until it gives them "+
			"up (notify: gatewayd cluster become standby)", fenced)
	}
	out.Ready = out.Why == ""
	return out
}
