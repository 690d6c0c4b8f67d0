package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/guard"
	"github.com/gateweigh/gateweigh/gateway/datapath/stack"
	"github.com/gateweigh/gateweigh/gateway/keeper"
	"github.com/gateweigh/gateweigh/gateway/nftables"
)

// Keep is the process of Config.Keeper, which it serves on its file descriptor 3 (keeper.Serve). While there is no daemon it
// attends the clients, which needs CAP_NET_ADMIN; without, quotas wait for the next daemon.
func Keep(listener *os.File, log *slog.Logger) error {
	return keeper.Serve(listener, keeper.Serving{
		Alone: keeper.Alone, Log: log,
		Unowned: func(ctx context.Context, held []keeper.Item) { attend(ctx, held, log) },
	})
}

// attend ends the traffic of clients whose quota is used up, and of all once others have changed the rules that judge and count
// them, until ctx ends. It sets interfaces down and changes nothing else of the clients, so that the next daemon finds what they
// have used.
func attend(ctx context.Context, held []keeper.Item, log *slog.Logger) {
	a, err := attended(held)
	if err != nil {
		log.Error("nobody looks after quotas and rules until the next daemon", "err", err)
	}
	if a == nil {
		return
	}
	a.cfg.Log = log
	if a.rules, err = nftables.Dial(); err != nil {
		log.Error("nobody looks after quotas and rules until the next daemon", "lan", a.cfg.LAN, "err", err)
		return
	}
	defer a.rules.Close()
	follower, err := stack.Follow()
	if err == nil {
		defer follower.Close()
		err = follower.Run(stack.Changes{LAN: a.was.LAN, Routing: func() {}, Rules: a.checkRules})
	}
	if err != nil {
		log.Error("nobody looks after the rules until the next daemon", "lan", a.cfg.LAN, "err", err)
	}
	a.checkRules() // which may have changed before
	every := time.NewTicker(quotaEvery)
	defer every.Stop()
	for n := 0; ; n++ {
		if a.again() {
			a.checkRules()
		}
		if n%int(seenEvery/quotaEvery) == 0 || a.someDue(time.Now()) {
			a.compareQuotas(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// attendance is a data path that only knows, and reads, what a keeper has: its clients with quotas, and all interfaces.
type attendance struct {
	*Datapath
	units []int

	checking sync.Mutex // guards what follows
	was      ruled
	shut     bool // all interfaces are down
	failed   bool // the rules are to be checked again
}

// attended makes one; nil: no client is left.
func attended(held []keeper.Item) (*attendance, error) {
	a := &attendance{}
	at := slices.IndexFunc(held, func(i keeper.Item) bool { return i.Key == rulesKey })
	if at < 0 || json.Unmarshal(held[at].Data, &a.was) != nil || a.was.Version != recordVersion {
		return nil, errors.New("the records are those of another version")
	}
	lan, err := net.InterfaceByIndex(a.was.LAN)
	if err != nil { // all units have gone with it
		return nil, nil
	}
	a.Datapath = &Datapath{cfg: Config{LAN: lan.Name}, table: tableOf(lan.Name), clients: map[netip.Addr]*client{}, bounded: map[*client]bool{}, fastestBps: fastest(lan.Name)}
	for _, i := range held {
		var r record
		if i.Key == rulesKey || json.Unmarshal(i.Data, &r) != nil || r.Version != recordVersion {
			continue
		}
		c := r.client()
		a.units = append(a.units, r.Unit)
		if a.bound(c); a.bounded[c] {
			a.clients[c.addr] = c
		}
	}
	if len(a.units) == 0 {
		return nil, nil
	}
	return a, nil
}

// again reports whether the last check of the rules failed.
func (a *attendance) again() bool {
	a.checking.Lock()
	defer a.checking.Unlock()
	return a.failed
}

// compareQuotas ends the traffic of clients whose quota is used up.
func (a *attendance) compareQuotas(ctx context.Context) {
	if len(a.clients) == 0 {
		return
	}
	a.compare(func(c *client) error {
		if ctx.Err() != nil {
			return nil // the next daemon's limits apply
		}
		if err := lower(c.line.index); err != nil && !errors.Is(err, unix.ENODEV) {
			return err // and again at the next look
		}
		a.mu.Lock()
		delete(a.bounded, c)
		a.mu.Unlock()
		a.cfg.Log.Info("a client's quota is used up, and no daemon is there: its keeper has set the interface down", "client", c.addr)
		return nil
	})
}

// checkRules sets all interfaces down if the clients' rules are not the daemon's any more: packets would pass unjudged and
// uncounted. Where others changed the guard's it blocks the LAN again.
func (a *attendance) checkRules() {
	a.checking.Lock()
	defer a.checking.Unlock()
	for n, t := range a.tables() {
		is, err := a.rules.Digest(t)
		if err == nil && is != a.was.Digests[n] {
			if n == 0 {
				err = a.shutAll()
			} else {
				err = a.blockAgain()
			}
		}
		if a.failed = err != nil; a.failed {
			a.cfg.Log.Error("keeping the rules in nftables while no daemon is there; trying again", "lan", a.cfg.LAN, "table", t.Name, "err", err)
			return
		}
	}
}

func (a *attendance) shutAll() (err error) {
	if a.shut {
		return nil
	}
	for _, unit := range a.units {
		if e := lower(unit); !errors.Is(e, unix.ENODEV) {
			err = errors.Join(err, e)
		}
	}
	if err == nil {
		a.shut = true
		a.cfg.Log.Error("others changed the rules in nftables, and no daemon is there to put them back: its keeper has set all sessions' interfaces down", "lan", a.cfg.LAN)
	}
	return err
}

func (a *attendance) blockAgain() (err error) {
	if err = (guard.Guard{LAN: a.cfg.LAN}).RenewWithFrames(a.was.Gateway); err != nil {
		return err
	}
	for n, t := range a.tables() {
		if n > 0 && err == nil {
			a.was.Digests[n], err = a.rules.Digest(t)
		}
	}
	if err == nil {
		a.cfg.Log.Error("others changed the rules in nftables that block the LAN, and no daemon is there: its keeper has put them back", "lan", a.cfg.LAN)
	}
	return err
}
