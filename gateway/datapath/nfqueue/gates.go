package nfqueue

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue/nftables"
)

// The daemon keeps the gates open, for gateLife at a time: when it dies, or hangs,
// they fall shut, and packets are queued for nobody.
const (
	gateLife  = time.Second
	gateEvery = gateLife / 2
	lookEvery = 5 * time.Second
)

// keepOpen keeps the gates open until stopped, and then shuts them. Meanwhile it looks
// at who is heard of.
func (d *Datapath) keepOpen() error {
	if err := d.openGates(false); err != nil {
		return err
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	d.fast.stop = sync.OnceFunc(func() { close(stop); running.Wait(); d.shutGates() })
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
			err := d.openGates(true)
			d.mu.Unlock()
			if err != nil {
				d.cfg.Log.Error("passing packets in the kernel; they are judged one by one", "err", err)
			}
		}
	})
	running.Go(func() { d.lookOut(stop) })
	return nil
}

// lookOut looks at all clients every lookEvery, or less often where that would take
// more than a hundredth of a CPU.
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
			d.cfg.Log.Warn("looking at who is heard of", "err", err)
		}
		pause = max(lookEvery, 100*time.Since(began))
	}
}

// shutGates has nothing pass the kernel by itself any more, and no timer call later.
func (d *Datapath) shutGates() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.fast.passed {
		if p.end != nil {
			p.end.Stop()
		}
	}
	clear(d.fast.passed)
	t := tablesOf(d.cfg.LAN).ip
	for _, gate := range []string{gateIn, gateOut} {
		var b nftables.Batch
		b.DeleteElements(t, gate, nftables.Element{Key: indexKey(d.lan)})
		if err := d.rules.Commit(&b); err != nil && !errors.Is(err, unix.ENOENT) {
			d.cfg.Log.Error("shutting a gate; it falls shut by itself", "gate", gate, "within", gateLife, "err", err)
		}
	}
}

// openGates opens the gates for another while.
func (d *Datapath) openGates(again bool) error {
	t := tablesOf(d.cfg.LAN).ip
	for range 2 {
		var b nftables.Batch
		for gate, chain := range map[string]string{gateIn: "up", gateOut: "down"} {
			e := nftables.Element{Key: indexKey(d.lan), Jump: chain, Timeout: gateLife}
			if again {
				b.DeleteElements(t, gate, e)
			}
			b.AddElements(t, gate, e)
		}
		err := d.rules.Commit(&b)
		if !again || !errors.Is(err, unix.ENOENT) {
			return err
		}
		again = false // they had fallen shut
	}
	return nil
}
