// The gate: an element of the fast mode's rules (fast.go) without which the kernel passes nothing by itself. The daemon
// renews it.

package nfqueue

import (
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// The daemon keeps the gate open, for gateLife at a time: when the daemon dies or hangs, the gate expires, and packets
// go to queues without a reader. Each renewal costs some 0.3 ms of CPU.
const (
	gateLife  = 2 * time.Second
	gateEvery = gateLife / 2
	lookEvery = 5 * time.Second
)

// keepOpen keeps the gate open until stopped, and then closes it. Meanwhile it reads clients' counters.
func (d *Datapath) keepOpen() error {
	if err := d.openGate(); err != nil {
		return err
	}
	d.fast.open = true
	stop := make(chan struct{})
	var running sync.WaitGroup
	d.fast.stop = sync.OnceFunc(func() { close(stop); running.Wait(); d.shutGate() })
	running.Go(func() {
		tick := time.NewTicker(gateEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			d.mu.Lock()
			err := d.openGate()
			d.mu.Unlock()
			if err != nil {
				d.cfg.Log.Error("passing packets in the kernel; they are judged one by one", "err", err)
			}
		}
	})
	running.Go(func() { d.lookOut(stop) })
	return nil
}

// lookOut reads all clients' counters every lookEvery, or less often where that would take more than a hundredth of a
// CPU.
func (d *Datapath) lookOut(stop <-chan struct{}) {
	pause := lookEvery
	for {
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
		began := time.Now()
		if _, _, err := d.allPassed(); err != nil {
			d.cfg.Log.Warn("reading the clients' counters", "err", err)
		}
		pause = max(lookEvery, 100*time.Since(began))
	}
}

// shutGate ends passing by the kernel and later timer calls.
func (d *Datapath) shutGate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.fast.passed {
		if p.expiry != nil {
			p.expiry.Stop()
		}
	}
	clear(d.fast.passed)
	d.fast.course, d.fast.open = course{}, false
	var b nftables.Batch
	for _, t := range d.passTables() {
		b.ClearSet(t, setGate)
	}
	if err := d.rules.Commit(&b); err != nil && !errors.Is(err, unix.ENOENT) {
		d.cfg.Log.Error("shutting the gate; it falls shut by itself", "within", gateLife, "err", err)
	}
}

// gateElements returns the gate's elements: the pairs of incoming and outgoing interface. Packets from the LAN into the
// LAN have no gate.
func (d *Datapath) gateElements() []nftables.Element {
	return []nftables.Element{
		{Key: slices.Concat(indexKey(d.lan), indexKey(d.wan)), Jump: "up", Timeout: gateLife},
		{Key: slices.Concat(indexKey(d.wan), indexKey(d.lan)), Jump: "down", Timeout: gateLife},
	}
}

// passTables are the tables that contain passed clients: that of fast.go, and that at the devices.
func (d *Datapath) passTables() []nftables.Table {
	t := tablesOf(d.net.Interface)
	if d.speaks.dev {
		return []nftables.Table{t.ip, t.dev}
	}
	return []nftables.Table{t.ip}
}

// openGate opens the gate for another gateLife.
func (d *Datapath) openGate() error {
	var b nftables.Batch
	d.opening(&b)
	return d.rules.Commit(&b)
}

// opening replaces the gate's elements.
func (d *Datapath) opening(b *nftables.Batch) {
	t := tablesOf(d.net.Interface)
	b.ClearSet(t.ip, setGate)
	b.AddElements(t.ip, setGate, d.gateElements()...)
	if d.speaks.dev {
		b.ClearSet(t.dev, setGate)
		b.AddElements(t.dev, setGate, d.deviceGate()...)
	}
}
