package kernel

import (
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
	d.putBack()
}

// putBack is keepRules with replacing held.
func (d *Datapath) putBack() {
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

// tables returns the tables of nftables that keep the LAN's packets from passing: first those of the clients' rules,
// then the guard's two.
func (d *Datapath) tables() []nftables.Table {
	name := guard.Table(d.net.Interface)
	return append(d.ownTables(), nftables.Table{Family: nftables.NetDev, Name: name},
		nftables.Table{Family: nftables.Inet, Name: name})
}

// digestsOf returns digests of tables as the kernel has them.
func (d *Datapath) digestsOf(tables []nftables.Table) (all [][32]byte, err error) {
	for _, t := range tables {
		one, err := d.rules.Digest(t)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// noteRules stores digests of the present rules, also with the keeper. replacing is held.
func (d *Datapath) noteRules() error {
	current, err := d.digestsOf(d.tables())
	if err != nil {
		return err
	}
	d.digests = current
	d.keepDigest()
	return nil
}

// changed names the parts of the rules that differ from the noted ones; "": none. replacing is held.
func (d *Datapath) changed() (string, error) {
	if now, err := d.digestsOf(d.tables()); err != nil || !slices.Equal(now, d.digests) {
		return "rules", err
	}
	for _, t := range d.ownTables() {
		for set, want := range d.keys(t) {
			var current []string
			err := d.rules.Elements(t, set, func(key, _ []byte) { current = append(current, string(key)) })
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return "", err
			}
			slices.Sort(current)
			slices.Sort(want)
			if err != nil || !slices.Equal(current, want) {
				return "clients", nil
			}
		}
	}
	return "", nil
}

// keys returns the elements that one of ownTables must have, by set. replacing is held.
func (d *Datapath) keys(t nftables.Table) map[string][]string {
	all := map[string][]string{setFrom: nil, setOwn: nil}
	for _, c := range d.all() {
		c.mu.Lock()
		if c.pppoe != nil {
			for _, x := range c.holdings().senders(t) {
				all[setFrom] = append(all[setFrom], x.Name())
			}
			all[setOwn] = append(all[setOwn], string(ownKey(c.pppoe.index)))
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
			d.addClientRules(&b, c.holdings())
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
