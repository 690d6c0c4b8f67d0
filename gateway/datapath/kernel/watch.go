package kernel

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/guard"
	"github.com/gateweigh/gateweigh/gateway/datapath/stack"
	"github.com/gateweigh/gateweigh/gateway/nftables"
)

// watcher follows the LAN's interface and netfilter's rules.
type watcher struct {
	follower *stack.Follower
	once     sync.Once
	gone     chan struct{} // closed once the LAN's interface is gone
}

func (d *Datapath) watch() (*watcher, error) {
	follower, err := stack.Follow()
	if err != nil {
		return nil, err
	}
	w := &watcher{follower: follower, gone: make(chan struct{})}
	own, err := d.rules.Port()
	if err == nil {
		err = follower.Run(stack.Changes{LAN: d.lan.Index, Routing: func() { d.checkLAN(w) }, Rules: d.keepRules, Own: own})
	}
	if err != nil {
		return nil, errors.Join(err, follower.Close())
	}
	d.checkLAN(w)
	return w, nil
}

func (d *Datapath) checkLAN(w *watcher) {
	if _, err := net.InterfaceByIndex(d.lan.Index); err != nil {
		w.once.Do(func() { close(w.gone) })
	}
}

func (w *watcher) close() error { return w.follower.Close() }

// keepRules restores the rules after nftables was flushed: until then the machine forwards what the
// LAN sends, and clients may use any address.
func (d *Datapath) keepRules() {
	there := true
	var errs []error
	for _, family := range []uint8{unix.NFPROTO_NETDEV, unix.NFPROTO_INET, unix.NFPROTO_IPV4} {
		has, err := stack.HasTable(family, guard.Table(d.cfg.LAN))
		there, errs = there && has, append(errs, err)
	}
	err := errors.Join(errs...)
	if err == nil && !there {
		if err = d.restore(); err == nil {
			d.cfg.Log.Warn("the rules were taken out of nftables, and are back; in between the machine forwarded what the LAN sends", "lan", d.cfg.LAN)
		}
	}
	if err != nil {
		d.cfg.Log.Error("keeping the rules in nftables", "lan", d.cfg.LAN, "err", err)
	}
}

// restore replaces the rules and adds the clients to them. What was counted since the last reading is
// lost.
func (d *Datapath) restore() error {
	d.replacing.Lock()
	defer d.replacing.Unlock()
	if err := d.shut(nil); err != nil {
		return fmt.Errorf("restoring the rules: %w", err)
	}
	var errs []error
	for _, c := range d.all() {
		c.mu.Lock()
		if c.line != nil {
			var b nftables.Batch
			enter(&b, d.table, c.line.index, c.addr)
			c.lost.from, c.lost.own = c.lost.from.Plus(c.read.from), c.lost.own.Plus(c.read.own)
			c.read.from, c.read.own = nftables.Counted{}, nftables.Counted{}
			if err := d.rules.Commit(&b); err != nil {
				errs = append(errs, fmt.Errorf("restoring the rules of %s: %w", c.addr, err))
			}
		}
		c.mu.Unlock()
	}
	return errors.Join(errs...)
}
