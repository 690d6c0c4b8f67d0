// Package kernel leaves PPPoE to the kernel, as pppd, rp-pppoe's kernel mode and accel-ppp do (study 3): a socket, a
// channel and a PPP unit for each subscriber, with an interface of its own, between which the kernel's stack forwards.
//
//	client ──▶ LAN ──▶ PPPoE ──▶ unit gw…p… ──▶ rules ──▶ stack ──▶ WAN
//	             ╳ all other frames are dropped ahead of the stack
//	client ◀── LAN ◀── PPPoE ◀── unit gw…p… ◀── rules ◀── stack ◀── WAN
//
// An admitted client is one whose unit exists: nobody else has a way through. Rules of nftables compare senders'
// addresses and count. Units are open files: they go on after Close, and when the process is killed, while a keeper has
// them too, until another process takes them up (keep.go).
package kernel

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/keeper"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// Datapath is the running data path. Its counters' epoch ends with it, except for clients that a successor adopts.
type Datapath struct {
	cfg     datapath.Setup
	net     datapath.Network
	locks   datapath.Locks
	lan     *net.Interface
	group   uint32
	rules   *nftables.Conn
	table   nftables.Table
	epoch   uint64
	watcher *watcher
	carrier *carrier
	keeper  *keeper.Keeper // nil: none
	ended   chan struct{}  // closed by Close
	running sync.WaitGroup

	fastestBps float64 // what the LAN can carry one way

	// replacing is held for writing while rules are replaced, for reading while units change. It is taken first.
	replacing         sync.RWMutex
	digests           [][32]byte     // of tables, as this process made them; guarded by replacing
	prefixes6, pools6 []netip.Prefix // the LAN's; guarded by replacing

	mu      sync.Mutex // guards what follows and the carrier's sessions; taken after a client's own
	clients map[netip.Addr]*client
	bounded map[*client]bool // clients that have quotas
	due     time.Time        // when a quota may be used up at the earliest; zero: there is none
	closed  bool
}

var (
	_ datapath.Datapath = (*Datapath)(nil)
	_ datapath.IPv6     = (*Datapath)(nil)
)

// Open blocks the LAN from the kernel's stack and admits sessions until Close. It fails with
// datapath.ErrBusy if another gateway has an interface.
func Open(cfg datapath.Setup) (_ *Datapath, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	network, err := datapath.SingleNetwork(cfg.Networks)
	if err != nil {
		return nil, err
	}
	d := &Datapath{cfg: cfg, net: network, table: tableOf(network.Interface), clients: map[netip.Addr]*client{},
		bounded: map[*client]bool{}, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("opening the kernel's PPPoE: %w", err), d.close(false))
		}
	}()
	for d.epoch == 0 {
		var b [8]byte
		rand.Read(b[:])
		d.epoch = binary.NativeEndian.Uint64(b[:])
	}
	if err := network.Check(); err != nil {
		return nil, err
	}
	if err := Check(cfg); err != nil {
		return nil, err
	}
	if d.locks, err = datapath.Lock(datapath.Sharing(network.Interface, cfg.WAN)...); err != nil {
		return nil, err
	}
	if d.lan, err = ethernet(network.Interface); err != nil {
		return nil, err
	}
	d.group, d.fastestBps = groupOf(d.lan.Index), fastest(network.Interface)
	if d.carrier, err = newCarrier(network.Interface); err != nil {
		return nil, err
	}
	if d.rules, err = nftables.Dial(); err != nil {
		return nil, err
	}
	if err := d.takeUp(); err != nil {
		return nil, err
	}
	if d.watcher, err = d.watch(); err != nil {
		return nil, err
	}
	d.running.Go(d.followQuotas)
	return d, nil
}

// takeUp blocks the LAN, and adopts the clients' units of a former process.
func (d *Datapath) takeUp() error {
	items := d.openKeeper()
	intact := d.adoptAll(items, d.rulesIntact(items))
	d.replacing.Lock()
	err := d.closeLAN(d.cfg.RemoveFormer, !intact)
	if err == nil {
		err = d.noteRules()
	}
	d.replacing.Unlock()
	if err != nil {
		return err
	}
	adopted := d.adoptedUnits()
	if !d.has6() {
		err = setUnreachable(d.net.Interface, nil) // a former daemon's
	}
	return errors.Join(err, removeUnits(d.group, adopted...), awaitFormer(d.net.Interface, len(adopted)))
}

// closeLAN has the kernel drop the LAN's frames except PPPoE's and, should its interface be created again, forward
// nothing for the new one. If former is not nil, it is called between these two steps; otherwise both are one. With
// install closeLAN also replaces the clients' rules.
func (d *Datapath) closeLAN(former func() error, install bool) error {
	if former != nil {
		if err := guard.ShutFrames(d.net.Interface, d.net.Gateway()); err != nil {
			return err
		}
		if err := former(); err != nil {
			return err
		}
	}
	g := guard.Guard{LAN: d.net.Interface}
	if err := g.RenewWithFrames(d.net.Gateway()); err != nil || !install {
		return err
	}
	return d.install()
}

// ethernet returns the LAN's interface.
func ethernet(name string) (*net.Interface, error) {
	lan, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	if len(lan.HardwareAddr) != 6 {
		return nil, fmt.Errorf("%w: %s is no Ethernet interface", datapath.ErrNotSupported, name)
	}
	return lan, nil
}

// Check reports why Open would fail on this machine. It loads the kernel's modules.
func Check(cfg datapath.Setup) error {
	network, err := datapath.SingleNetwork(cfg.Networks)
	if err == nil {
		_, err = ethernet(network.Interface)
	}
	return errors.Join(err, hasPPPoE())
}

// Forwarding names the present way of forwarding.
func (d *Datapath) Forwarding() (word, reason string) { return "stack", "" }

// Wait returns when ctx ends, or with an error when the LAN's interface is gone.
func (d *Datapath) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.watcher.lanGone:
		return fmt.Errorf("the kernel's PPPoE: the LAN's interface %s is gone", d.net.Interface)
	}
}

// Close leaves the units to the keeper, which ends them unless another process adopts them. Without a keeper they end,
// and no packet passes from then on. The rules that block the LAN stay.
func (d *Datapath) Close() error { return d.close(true) }

// close is Close if leave is true. Otherwise it ends units and keeper.
func (d *Datapath) close(leave bool) error {
	d.mu.Lock()
	again := d.closed
	d.closed = true
	d.mu.Unlock()
	if again {
		return nil
	}
	close(d.ended)
	d.running.Wait()
	var errs []error
	if d.watcher != nil {
		errs = append(errs, d.watcher.close())
	}
	left := leave && d.keeper != nil && d.keeper.Leave()
	for _, c := range d.all() {
		c.mu.Lock()
		if left && c.pppoe != nil {
			c.pppoe.kept = false // closing the files here ends nothing: the keeper has them
		}
		d.drop(c)
		c.mu.Unlock()
	}
	d.mu.Lock()
	if d.carrier != nil {
		for _, l := range d.carrier.sessions {
			l.carried = false
			d.closeUnused(l)
		}
		errs = append(errs, d.carrier.epoll.Close())
	}
	d.mu.Unlock()
	if d.keeper != nil && !left {
		errs = append(errs, d.keeper.Close())
	}
	if d.rules != nil {
		errs = append(errs, d.rules.Close())
	}
	return errors.Join(append(errs, d.locks.Close())...)
}

// Clear removes everything that a data path left for a LAN, except the guard and the rule on frames, which a data path
// of another kind may need. The LAN's interface must be locked, because Clear does not check whether a data path runs.
func Clear(lan string) (err error) {
	ended := keeper.End(lan)
	if dev, e := net.InterfaceByName(lan); e == nil {
		err = removeUnits(groupOf(dev.Index))
	}
	err = errors.Join(ended, err)
	err = errors.Join(err, setUnreachable(lan, nil))
	var b nftables.Batch
	for _, t := range []nftables.Table{tableOf(lan), table6Of(lan)} {
		found, e := nftables.TableExists(t)
		if e != nil {
			return errors.Join(err, e)
		}
		if found {
			b.DeleteTable(t)
		}
	}
	if b.Empty() {
		return err
	}
	rules, e := nftables.Dial()
	if e != nil {
		return errors.Join(err, e)
	}
	return errors.Join(err, rules.Commit(&b), rules.Close())
}

// sessionsFile lists the kernel's PPPoE sessions with their interfaces.
const sessionsFile = "/proc/thread-self/net/pppoe"

// formerTime bounds how long the kernel takes to close the files of a killed process: some 10 ms for each of its units.
const formerTime = time.Minute

// awaitFormer waits until the sessions of a former process have ended, except as many as were adopted. The kernel
// releases the process's locks earlier.
func awaitFormer(lan string, adopted int) error {
	for deadline := time.Now().Add(formerTime); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(sessionsFile)
		if err != nil {
			return fmt.Errorf("reading which PPPoE sessions there are: %w", err)
		}
		left := 0
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 3 && f[2] == lan {
				left++
			}
		}
		if left <= adopted {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf(
				"%d PPPoE sessions on %s (%s) are another program's: stop it; or those of a keeper that does not answer: end its "+
					"process (ss -xlp | grep gatewayd/keeper), or wait %s", left-adopted, lan, sessionsFile, keeper.AloneFor)
		}
	}
}

// removeUnits removes the interfaces of a group, except those in but.
func removeUnits(group uint32, but ...int) error {
	left, err := units(group)
	for _, l := range left {
		if slices.Contains(but, l.Attrs().Index) {
			continue
		}
		if e := netlink.LinkDel(l); !errors.Is(e, unix.ENODEV) {
			err = errors.Join(err, e)
		}
	}
	return err
}
