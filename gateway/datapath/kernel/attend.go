package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/keeper"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// Keep is what the process of Setup.Keeper does: it keeps the daemon's files, and serves listener, its file descriptor
// 3 (keeper.Serve). While there is no daemon it attends the clients, which takes CAP_NET_ADMIN. Without that capability
// quotas and rules wait for the next daemon.
func Keep(listener *os.File, log *slog.Logger) error {
	log, flush := keeper.AsyncLog(log)
	defer flush(time.Second)
	return keeper.Serve(listener, keeper.Serving{
		AloneFor: keeper.AloneFor, Log: log,
		Unowned: func(ctx context.Context, held []keeper.Item) { attend(ctx, held, log) },
	})
}

// attend ends the traffic of clients whose quota is used up, until ctx ends. When another program has changed the rules
// that judge and count clients' packets, it ends the traffic of all clients. It sets interfaces down and changes
// nothing else of the clients, so that the next daemon finds what they have used.
func attend(ctx context.Context, held []keeper.Item, log *slog.Logger) {
	a, err := newAttendant(held)
	if err != nil {
		log.Error("quotas and rules wait for the next daemon", "err", err)
		return
	}
	a.ctx, a.cfg.Log = ctx, log
	if a.rules, err = nftables.Dial(); err != nil {
		log.Error("quotas and rules wait for the next daemon", "lan", a.net.Interface, "err", err)
		return
	}
	defer a.rules.Close()
	follower, err := stack.Follow()
	if err == nil {
		defer follower.Close()
		err = follower.Run(stack.Changes{LAN: a.ruled.LAN, Routing: func() {}, Rules: a.checkRules})
	}
	if err != nil {
		log.Error("changes of rules are not heard of, and found some seconds later", "lan", a.net.Interface, "err", err)
	}
	every := time.NewTicker(quotaEvery)
	defer every.Stop()
	for n := 0; ; n++ {
		seldom := n%int(seenEvery/quotaEvery) == 0
		if seldom { // they may have changed before, or what was to be done failed
			a.checkRules()
		}
		if seldom || a.someDue(time.Now()) {
			a.compareQuotas()
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// attendant is the keeper's view of the data path while no daemon runs: the clients with quotas, and all interfaces. It
// reads counters and can set interfaces down.
type attendant struct {
	*Datapath
	ctx   context.Context // ends when the next daemon is there
	ruled rulesRecord
	units []int

	checking       sync.Mutex
	interfacesDown bool // all interfaces are down; guarded by checking
}

// newAttendant makes the attendant of the clients and rules that the keeper's items describe.
func newAttendant(held []keeper.Item) (*attendant, error) {
	a := &attendant{}
	index := slices.IndexFunc(held, func(i keeper.Item) bool { return i.Key == rulesKey })
	if index < 0 {
		return nil, errors.New("the daemon has not said what its rules are")
	}
	if err := json.Unmarshal(held[index].Data, &a.ruled); err != nil || a.ruled.Version != recordVersion {
		return nil, errors.Join(
			fmt.Errorf("the daemon's records are of version %d, not %d", a.ruled.Version, recordVersion), err)
	}
	lan, err := net.InterfaceByIndex(a.ruled.LAN)
	if err != nil {
		return nil, fmt.Errorf("the LAN's interface, which has the index %d: %w", a.ruled.LAN, err)
	}
	a.Datapath = &Datapath{net: datapath.Network{Interface: lan.Name, Address6: a.ruled.Address6},
		table: tableOf(lan.Name), clients: map[netip.Addr]*client{}, bounded: map[*client]bool{},
		fastestBps: fastest(lan.Name)}
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
	return a, nil
}

// compareQuotas ends the traffic of clients whose quota is used up.
func (a *attendant) compareQuotas() {
	a.checking.Lock()
	none := a.interfacesDown || len(a.clients) == 0
	a.checking.Unlock()
	if none {
		return
	}
	a.compare(func(c *client) error {
		if a.ctx.Err() != nil {
			return nil // the next daemon's limits apply
		}
		if err := lower(c.pppoe.index); err != nil && !errors.Is(err, unix.ENODEV) {
			return err // the next comparison tries again
		}
		a.mu.Lock()
		delete(a.bounded, c)
		a.mu.Unlock()
		a.cfg.Log.Info("a client's quota is used up, and no daemon is there: its keeper has set the interface down", "client",
			c.addr)
		return nil
	})
}

// checkRules sets all interfaces down if the clients' rules are not the daemon's any more: packets would pass unjudged
// and uncounted. If a table of the guard (package guard) is gone, it blocks the LAN again. It ignores a guard that
// differs: a data path of another kind may be starting, which has a guard of its own and ends the keeper.
func (a *attendant) checkRules() {
	a.checking.Lock()
	defer a.checking.Unlock()
	if err := a.restore(); err != nil {
		a.cfg.Log.Error("others changed the rules in nftables, and no daemon is there", "lan", a.net.Interface, "err", err)
	}
}

// restore is checkRules with checking held.
func (a *attendant) restore() error {
	own := len(a.ownTables())
	current, err := a.digestsOf(a.tables())
	if err != nil {
		return err
	}
	if a.ctx.Err() != nil {
		return nil // the next daemon looks after the rules
	}
	var errs []error
	if slices.Contains(current[own:], [32]byte{}) { // first, because all interfaces take their time
		errs = append(errs, a.block())
	}
	if !slices.Equal(current[:own], a.ruled.Digests) && !a.interfacesDown {
		errs = append(errs, a.shutAll())
	}
	return errors.Join(errs...)
}

// block restores the guard's rules, which keep the kernel from forwarding the LAN's packets.
func (a *attendant) block() error {
	if _, err := net.InterfaceByIndex(a.ruled.LAN); err != nil {
		return nil // without the interface no packets come from the LAN
	}
	if err := (guard.Guard{LAN: a.net.Interface}).RenewWithFrames(a.ruled.Gateway); err != nil {
		return err
	}
	a.cfg.Log.Warn("others removed the rules in nftables that block the LAN, and no daemon is there: its keeper has "+
		"put them back; in between the machine may have forwarded what the LAN sends", "lan", a.net.Interface)
	return nil
}

// shutAll sets all interfaces down. checking is held.
func (a *attendant) shutAll() (err error) {
	for _, unit := range a.units {
		if a.ctx.Err() != nil {
			return nil // the next daemon makes all units anew
		}
		if e := lower(unit); !errors.Is(e, unix.ENODEV) {
			err = errors.Join(err, e)
		}
	}
	if err == nil {
		a.interfacesDown = true
		a.cfg.Log.Error("others changed the rules in nftables, and no daemon is there to put them back: its keeper has "+
			"set all sessions' interfaces down", "lan", a.net.Interface)
	}
	return err
}
