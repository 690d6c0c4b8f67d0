package tun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
)

// watcher follows the LAN's interface, the TUN device and netfilter's rules. The device's MTU follows the LAN's, so
// that the kernel fragments for it. Without one of the interfaces no packet passes, and without the rules the kernel
// forwards for everybody.
type watcher struct {
	lan    *net.Interface
	device int // index
	mtu    int // of both, as last read
	name   string

	follower *stack.Follower
	failed   *failure
}

// failure is the first reason why a data path cannot continue.
type failure struct {
	once sync.Once
	done chan struct{} // closed when err is set
	err  error
}

func (f *failure) set(err error) { f.once.Do(func() { f.err = err; close(f.done) }) }

// watch starts to watch.
func (d *Datapath) watch() (*watcher, error) {
	follower, err := stack.Follow()
	if err != nil {
		return nil, err
	}
	dev, err := net.InterfaceByName(d.cfg.Device)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("interface %s: %w", d.cfg.Device, err), follower.Close())
	}
	w := &watcher{lan: d.lan, device: dev.Index, mtu: dev.MTU, name: d.cfg.Device, follower: follower, failed: d.failed}
	d.reroute(w)
	if err := follower.Run(
		stack.Changes{LAN: d.lan.Index, Routing: func() { d.reroute(w) }, Rules: d.keepRules}); err != nil {
		return nil, errors.Join(err, follower.Close())
	}
	return w, nil
}

// check checks both interfaces.
func (w *watcher) check() {
	if err := w.copyMTU(); err != nil {
		w.failed.set(err)
	}
}

// reroute follows a change of links, addresses or routes.
func (d *Datapath) reroute(w *watcher) {
	if ownAddrs, err := stack.OwnAddresses(); err == nil {
		d.SetOwn(ownAddrs)
	} else {
		d.cfg.Log.Error("following this machine's addresses", "err", err)
	}
	if err := d.routes.Check(); err != nil {
		d.cfg.Log.Error("keeping the routes to the networks behind clients", "err", err)
	}
	w.check()
}

// copyMTU copies the LAN's MTU to the device. It fails when one of them is gone.
func (w *watcher) copyMTU() error {
	lan, err := net.InterfaceByIndex(w.lan.Index)
	if err != nil {
		return fmt.Errorf("the LAN's interface %s is gone: %w", w.lan.Name, err)
	}
	if _, err := net.InterfaceByIndex(w.device); err != nil {
		return fmt.Errorf("the TUN device %s is gone: %w", w.name, err)
	}
	if lan.MTU == w.mtu {
		return nil
	}
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: w.device}}
	if err := netlink.LinkSetMTU(link, lan.MTU); err != nil {
		return fmt.Errorf("giving %s the MTU of %s: %w", w.name, lan.Name, err)
	}
	w.mtu = lan.MTU
	return nil
}

func (w *watcher) close() { w.follower.Close() }

// keepRules restores the rules that keep frames of the LAN from the kernel's stack after nftables was flushed: until
// then the machine forwards what the LAN sends. If the device is gone too, it is being removed, which begins with the
// device.
func (d *Datapath) keepRules() {
	shut, err := guard.IsComplete(d.net.Interface)
	var gone netlink.LinkNotFoundError
	if _, notFound := netlink.LinkByName(d.cfg.Device); errors.As(notFound, &gone) {
		return
	}
	if err == nil && !shut {
		if err = d.closeLAN(nil); err == nil {
			d.cfg.Log.Warn("the rules were taken out of nftables, and are back; in between the machine forwarded what the "+
				"LAN sends", "lan", d.net.Interface)
		}
	}
	if err != nil {
		d.cfg.Log.Error("keeping the kernel's stack off the LAN", "lan", d.net.Interface, "err", err)
	}
}

// Wait returns when ctx ends, or with an error when the data path cannot continue because one of its interfaces is
// gone.
func (d *Datapath) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.failed.done:
		return fmt.Errorf("the TUN data path: %w", d.failed.err)
	}
}
