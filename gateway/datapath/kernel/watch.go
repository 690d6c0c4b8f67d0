package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// watcher follows the LAN's interface and netfilter's rules.
type watcher struct {
	follower *stack.Follower
	once     sync.Once
	lanGone  chan struct{} // closed once the LAN's interface is gone
}

func (d *Datapath) watch() (*watcher, error) {
	follower, err := stack.Follow()
	if err != nil {
		return nil, err
	}
	w := &watcher{follower: follower, lanGone: make(chan struct{})}
	ownPort, err := d.rules.Port()
	if err == nil {
		err = follower.Run(
			stack.Changes{LAN: d.lan.Index, Routing: func() { d.checkLAN(w) }, Rules: d.keepRules, OwnPort: ownPort})
	}
	if err != nil {
		return nil, errors.Join(err, follower.Close())
	}
	d.checkLAN(w)
	return w, nil
}

func (d *Datapath) checkLAN(w *watcher) {
	if _, err := net.InterfaceByIndex(d.lan.Index); err != nil {
		w.once.Do(func() { close(w.lanGone) })
	}
}

func (w *watcher) close() error { return w.follower.Close() }

// keepRules restores the rules after they were changed or nftables was flushed. Until then the machine may forward
// packets from the LAN, and clients may use any address.
func (d *Datapath) keepRules() {
	d.replacing.Lock()
	defer d.replacing.Unlock()
	reason, err := d.changed()
	if err == nil && reason != "" {
		if err = d.restore(); err == nil {
			d.cfg.Log.Warn("others changed the rules in nftables, and they are back; in between the machine may have "+
				"forwarded what the LAN sends", "lan", d.net.Interface, "what", reason)
		}
	}
	if err != nil {
		d.cfg.Log.Error("keeping the rules in nftables", "lan", d.net.Interface, "err", err)
	}
}

// tables are those that keep the LAN's packets from passing: the clients' own first.
func (d *Datapath) tables() [3]nftables.Table {
	name := guard.Table(d.net.Interface)
	return [...]nftables.Table{d.table, {Family: nftables.NetDev, Name: name}, {Family: nftables.Inet, Name: name}}
}

// noteRules remembers the rules as they are, and tells the keeper. replacing is held.
func (d *Datapath) noteRules() error {
	for i, t := range d.tables() {
		var err error
		if d.digests[i], err = d.rules.Digest(t); err != nil {
			return err
		}
	}
	d.keepDigest()
	return nil
}

// changed names the parts of the rules that differ from the noted ones; "": none. replacing is held.
func (d *Datapath) changed() (string, error) {
	for i, t := range d.tables() {
		if now, err := d.rules.Digest(t); err != nil || now != d.digests[i] {
			return "rules", err
		}
	}
	for set, want := range d.keys() {
		var current [][]byte
		err := d.rules.Elements(d.table, set, func(key, _ []byte) { current = append(current, key) })
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return "", err
		}
		slices.SortFunc(current, bytes.Compare)
		slices.SortFunc(want, bytes.Compare)
		if err != nil || !slices.EqualFunc(current, want, bytes.Equal) {
			return "clients", nil
		}
	}
	return "", nil
}

// keys returns the elements that the rules must have. replacing is held.
func (d *Datapath) keys() map[string][][]byte {
	all := map[string][][]byte{setFrom: nil, setOwn: nil}
	for _, c := range d.all() {
		c.mu.Lock()
		if c.pppoe != nil {
			all[setFrom] = append(all[setFrom], fromKey(c.pppoe.index, c.addr))
			all[setOwn] = append(all[setOwn], ownKey(c.pppoe.index))
		}
		c.mu.Unlock()
	}
	return all
}

// restore replaces the rules and adds the clients to them. Packets counted since the last reading are lost from the
// counts. replacing is held.
func (d *Datapath) restore() error {
	if err := d.closeLAN(nil, true); err != nil {
		return fmt.Errorf("restoring the rules: %w", err)
	}
	var errs []error
	for _, c := range d.all() {
		c.mu.Lock()
		if c.pppoe != nil {
			var b nftables.Batch
			addClientRules(&b, d.table, c.pppoe.index, c.addr)
			c.lostCounts.fromClient, c.lostCounts.fromGateway = c.lostCounts.fromClient.Plus(c.read.fromClient),
				c.lostCounts.fromGateway.Plus(c.read.fromGateway)
			c.read.fromClient, c.read.fromGateway = nftables.Counted{}, nftables.Counted{}
			if err := d.rules.Commit(&b); err != nil {
				errs = append(errs, fmt.Errorf("restoring the rules of %s: %w", c.addr, err))
			}
			d.keepUnit(c)
		}
		c.mu.Unlock()
	}
	return errors.Join(append(errs, d.noteRules())...)
}
