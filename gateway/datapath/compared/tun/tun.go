// Package tun moves the clients' packets through user space, as CoovaChilli does (study 1, 3.1): the LAN's interface
// has no address, a packet socket receives all frames from it, and a TUN device passes the packets of admitted clients
// to the kernel and delivers those for clients.
//
//	client ──▶ LAN ──▶ packet socket ──▶ admission ──▶ TUN ──▶ kernel ──▶ WAN
//	              ╳ dropped before the stack      │
//	client ◀── LAN ◀── packet socket ◀── admission ◀── TUN ◀── kernel ◀── WAN
//
// The data path also answers ARP for the gateway's address, redirects HTTP to the portal, and answers rejected packets.
// As studied, one thread handles one packet per system call. In fast mode each CPU has a thread, packets arrive in
// rings shared with the kernel, and consecutive packets of a TCP connection are passed on together.
//
// Without a daemon no packet passes: a rule that stays (package guard) drops frames from the LAN, and the TUN device
// stays without a reader.
package tun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/routes"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
)

// Datapath is the running data path. Package admission has the table of clients; counters and epoch end with the table.
type Datapath struct {
	*admission.Table
	cfg      datapath.Setup
	net      datapath.Network
	locks    datapath.Locks
	lan      *net.Interface
	stop     *waker
	workers  []thread
	networks datapath.ClientNetworks[netip.Addr]
	routes   *routes.Table // to the networks behind clients
	watcher  *watcher
	failed   *failure
	running  sync.WaitGroup
}

// thread is one of the threads that read packets, judge them and send them.
type thread interface {
	run()   // until the waker wakes
	close() // its descriptors and memory, afterwards
}

var _ datapath.Datapath = (*Datapath)(nil)

// Open blocks the LAN from the kernel's stack, creates the device, and moves packets until Close. It fails with
// datapath.ErrBusy if another gateway has an interface.
func Open(cfg datapath.Setup) (_ *Datapath, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &Datapath{cfg: cfg, failed: &failure{done: make(chan struct{})}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("opening the TUN data path: %w", err), d.Close())
		}
	}()
	if d.net, err = datapath.SingleNetwork(cfg.Networks); err != nil {
		return nil, err
	}
	d.Table, err = admission.New(admission.Config{Network: d.net, PortalPorts: cfg.PortalPorts, PPPoE: cfg.PPPoE,
		Behind: &d.networks, Newcomer: cfg.Newcomer})
	if err != nil {
		return nil, err
	}
	if d.locks, err = datapath.Lock(datapath.Sharing(d.net.Interface, cfg.WAN)...); err != nil {
		return nil, err
	}
	if d.lan, err = ethernet(d.net); err != nil {
		return nil, err
	}
	if err := d.closeLAN(cfg.RemoveFormer); err != nil {
		return nil, err
	}
	if d.stop, err = newWaker(); err != nil {
		return nil, err
	}
	if err := d.start(); err != nil {
		return nil, err
	}
	if err := d.guard(); err != nil { // the guard now knows the device
		return nil, err
	}
	dev, err := net.InterfaceByName(cfg.Device)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", cfg.Device, err)
	}
	if d.routes, err = routes.Open(dev.Index, false, &d.networks); err != nil {
		return nil, err
	}
	d.watcher, err = d.watch()
	return d, err
}

// closeLAN has the kernel drop frames of the LAN and, should its interface be created again, forward nothing for the
// new one; it calls between after the first step. Calling it again has no effect.
func (d *Datapath) closeLAN(between func() error) error {
	if err := guard.ShutFrames(d.net.Interface, d.net.Gateway()); err != nil {
		return err
	}
	if between != nil {
		if err := between(); err != nil {
			return err
		}
	}
	return d.guard()
}

// guard has the kernel forward nothing for an interface of the LAN's name. Packets between the WAN and the device, if
// these exist, need no comparison of names.
func (d *Datapath) guard() error {
	g := guard.Guard{LAN: d.net.Interface}
	if err := g.Shut(); err != nil {
		return err
	}
	var ways []int
	for _, name := range []string{d.cfg.WAN, d.cfg.Device} {
		if dev, err := net.InterfaceByName(name); err == nil {
			ways = append(ways, dev.Index)
		}
	}
	return g.Know(ways...)
}

// start opens sockets and device queues, and starts the threads.
func (d *Datapath) start() error {
	gateway := addrNumber(d.net.Gateway())
	s := &shared{
		net: d.net, cfg: d.cfg, lan: d.lan, mac: [6]byte(d.lan.HardwareAddr), gateway: gateway,
		redirects: newRedirects(gateway, d.cfg.PortalPorts), errors: new(budget.Clock), stop: d.stop, failed: d.failed,
	}
	if d.cfg.Fast {
		all, err := openFast(s, d.Table.Judge)
		for _, f := range all {
			d.run(f)
		}
		return err
	}
	m, err := openStudied(s, d.Table.Judge())
	if err != nil {
		return err
	}
	d.run(m)
	return nil
}

// run starts a thread.
func (d *Datapath) run(w thread) {
	addProcessors(1)
	d.workers = append(d.workers, w)
	d.running.Go(w.run)
}

func addrNumber(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// ethernet returns the LAN's interface and checks that it is suitable.
func ethernet(network datapath.Network) (*net.Interface, error) {
	name := network.Interface
	lan, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	if len(lan.HardwareAddr) != 6 {
		return nil, fmt.Errorf("%w: %s is no Ethernet interface", datapath.ErrNotSupported, name)
	}
	addrs, err := lan.Addrs()
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of %s: %w", name, err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Overlaps(network.Address) {
			return nil, fmt.Errorf("%s has the address %s of the clients' network, which the TUN device is to have: ip addr "+
				"del %s dev %s", name, p, p, name)
		}
	}
	return lan, nil
}

// Set replaces a client's entry, and the routes to the networks behind it.
func (d *Datapath) Set(c datapath.Client) error {
	addr, err := c.Addr()
	if err != nil {
		return err
	}
	fresh, err := d.routes.Take(addr, c.Routes)
	if err != nil {
		return fmt.Errorf("setting the client %s: %w", addr, err)
	}
	if err := d.Table.Set(c); err != nil {
		return errors.Join(err, d.routes.Drop(addr, fresh))
	}
	_, err = d.routes.Leave(addr, c.Routes)
	return err
}

// Remove removes a client's entry, and the routes to the networks behind it.
func (d *Datapath) Remove(id datapath.ID) error {
	if err := d.Table.Remove(id); err != nil {
		return err
	}
	_, err := d.routes.Leave(id.Addr(), nil)
	return err
}

// Forwarding names the present way of forwarding.
func (d *Datapath) Forwarding() (word, reason string) {
	if d.cfg.Fast {
		return "fast", ""
	}
	return "packet by packet", ""
}

// Close ends forwarding: no packet passes from then on. The rule that blocks the LAN and the device stay until
// RemoveDevice.
func (d *Datapath) Close() error {
	var errs []error
	if d.watcher != nil {
		d.watcher.close()
	}
	if d.stop != nil {
		d.stop.wake()
		d.running.Wait()
	}
	for _, w := range d.workers {
		w.close()
		addProcessors(-1)
	}
	d.workers = nil
	if d.stop != nil {
		d.stop.close()
		d.stop = nil
	}
	if d.Table != nil {
		errs = append(errs, d.Table.Close())
	}
	errs = append(errs, d.locks.Close())
	d.locks = nil
	return errors.Join(errs...)
}
