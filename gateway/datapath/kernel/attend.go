package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/keeper"
	"github.com/gateweigh/gateweigh/gateway/nftables"
)

// Keep is the process of Config.Keeper, which it serves on its file descriptor 3 (keeper.Serve). While there is no daemon it
// compares clients' counters with their quotas as the daemon does, which needs CAP_NET_ADMIN; without, quotas wait for the next
// daemon.
func Keep(listener *os.File, log *slog.Logger) error {
	return keeper.Serve(listener, keeper.Serving{
		Alone: keeper.Alone, Log: log,
		Unowned: func(ctx context.Context, held []keeper.Item) { attend(ctx, held, log) },
	})
}

// attend ends the traffic of clients whose quota is used up, until ctx ends. It sets their interfaces down and changes nothing
// else, so that the next daemon finds what they have used.
func attend(ctx context.Context, held []keeper.Item, log *slog.Logger) {
	d := bounded(held)
	if d == nil {
		return
	}
	d.cfg.Log = log
	var err error
	if d.rules, err = nftables.Dial(); err != nil {
		log.Error("quotas wait for the next daemon", "lan", d.cfg.LAN, "err", err)
		return
	}
	defer d.rules.Close()
	down := func(c *client) error {
		if err := lower(c.line.index); err != nil && !errors.Is(err, unix.ENODEV) {
			return err // and again at the next look
		}
		d.mu.Lock()
		delete(d.bounded, c)
		d.mu.Unlock()
		log.Info("a client's quota is used up, and no daemon is there: its keeper has set the interface down", "client", c.addr)
		return nil
	}
	every := time.NewTicker(quotaEvery)
	defer every.Stop()
	for n := 0; ; n++ {
		if n%int(seenEvery/quotaEvery) == 0 || d.someDue(time.Now()) {
			d.compare(down)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// bounded returns a data path that only knows, and reads, clients with quotas; nil: there is none.
func bounded(held []keeper.Item) (d *Datapath) {
	for _, i := range held {
		var r record
		if json.Unmarshal(i.Data, &r) != nil || r.Version != recordVersion {
			continue
		}
		if d == nil {
			lan, err := net.InterfaceByIndex(r.LAN)
			if err != nil { // all units have gone with it
				return nil
			}
			d = &Datapath{cfg: Config{LAN: lan.Name}, table: tableOf(lan.Name), clients: map[netip.Addr]*client{}, bounded: map[*client]bool{}, fastestBps: fastest(lan.Name)}
		}
		c := r.client()
		if d.bound(c); d.bounded[c] {
			d.clients[c.addr] = c
		}
	}
	if d == nil || len(d.bounded) == 0 {
		return nil
	}
	return d
}
