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
	"sync/atomic"
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
	log, flush := keeper.Aside(log)
	defer flush(time.Second)
	return keeper.Serve(listener, keeper.Serving{
		Alone: keeper.Alone, Log: log,
		Unowned: func(ctx context.Context, held []keeper.Item) { attend(ctx, held, log) },
	})
}

// attend ends the traffic of clients whose quota is used up, and of all once others have changed the rules that judge and count
// them, until ctx ends. It sets interfaces down and changes nothing else of the clients, so that the next daemon finds what they
// have used.
func attend(ctx context.Context, held []keeper.Item, log *slog.Logger) {
	a := attended(held)
	if a == nil {
		return
	}
	a.cfg.Log = log
	var err error
	if a.rules, err = nftables.Dial(); err != nil {
		log.Error("quotas wait for the next daemon", "lan", a.cfg.LAN, "err", err)
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
	was   ruled
	units []int
	shut  atomic.Bool // all interfaces are down
}

// attended makes one; nil: no client is left.
func attended(held []keeper.Item) *attendance {
	a := &attendance{}
	at := slices.IndexFunc(held, func(i keeper.Item) bool { return i.Key == rulesKey })
	if at < 0 || json.Unmarshal(held[at].Data, &a.was) != nil || a.was.Version != recordVersion {
		return nil
	}
	lan, err := net.InterfaceByIndex(a.was.LAN)
	if err != nil { // all units have gone with it
		return nil
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
		return nil
	}
	return a
}

// compareQuotas ends the traffic of clients whose quota is used up.
func (a *attendance) compareQuotas(ctx context.Context) {
	if a.shut.Load() || len(a.clients) == 0 {
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
// uncounted. Where the guard's are gone it blocks the LAN again.
func (a *attendance) checkRules() {
	for n, t := range a.tables() {
		is, err := a.rules.Digest(t)
		switch {
		case err != nil:
		case n == 0 && is != a.was.Digest && !a.shut.Load():
			err = a.shutAll()
		case n > 0 && is == [32]byte{}:
			err = guard.Guard{LAN: a.cfg.LAN}.RenewWithFrames(a.was.Gateway)
		}
		if err != nil {
			a.cfg.Log.Error("others changed the rules in nftables, and no daemon is there", "lan", a.cfg.LAN, "err", err)
		}
	}
}

func (a *attendance) shutAll() (err error) {
	for _, unit := range a.units {
		if e := lower(unit); !errors.Is(e, unix.ENODEV) {
			err = errors.Join(err, e)
		}
	}
	if err == nil {
		a.shut.Store(true)
		a.cfg.Log.Error("others changed the rules in nftables, and no daemon is there to put them back: its keeper has set all sessions' interfaces down", "lan", a.cfg.LAN)
	}
	return err
}
