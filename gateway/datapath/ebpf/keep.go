// How the running daemon keeps programs, pins and guard in place when others remove them.

package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

// lookEvery is how often the daemon looks at its programs, because the kernel does not report a link that is
// detached, and renews the redirect. Waking up costs more than looking, so one ticker paces everything: at
// every fourth look come pins, guard and conntrack's setting, which need no haste.
const (
	lookEvery = 500 * time.Millisecond
	restLooks = 4
)

// lookup is the program at the namespace's socket lookup.
const lookup = "portal_lookup"

// Repairs count what other programs removed while the daemon runs, and whether it could be put back.
type Repairs struct {
	Removed, Attached uint64 // programs found removed or replaced, and attached again
	Pinned            uint64 // pins found removed, and made again
	Guarded           uint64 // times that the guard was found removed or changed, and put back
	Errors            uint64 // attempts that failed
}

// pinnedProgram is an attached program, with its hook and its link.
type pinnedProgram struct {
	hook // without an interface: the socket lookup's
	id   ebpf.ProgramID
	link link.Link // also keeps the program attached while it has no pin; nil: a filter of clsact

	lastSeen []link.AttachedProgram // all programs at the hook's tcx, as last seen
}

func (p *pinnedProgram) String() string {
	if p.dev == nil {
		return p.name
	}
	return p.name + " of " + p.dev.Name
}

// attachPinned attaches a program and holds its link. A program that cannot be pinned is an error, and
// attached all the same.
func (d *Datapath) attachPinned(p *pinnedProgram) error {
	info, err := p.prog.Info()
	if err != nil {
		return fmt.Errorf("reading the id of %s: %w", p, err)
	}
	p.id, _ = info.ID()
	var l link.Link
	if p.dev == nil {
		l, err = d.attachLookup()
	} else {
		l, err = d.attach(p.hook)
	}
	if l != nil && p.link != nil {
		err = errors.Join(err, p.link.Close())
	}
	if l != nil {
		p.link = l
	}
	return err
}

// attached reports whether the program is attached at its hook, and remembers the other programs there.
func (p *pinnedProgram) attached() (bool, error) {
	switch {
	case p.link == nil:
		return p.filtered()
	case p.dev == nil:
		info, err := p.link.Info()
		if err != nil {
			return false, fmt.Errorf("looking at %s: %w", p, err)
		}
		return info.NetNs() != nil && info.NetNs().NetnsInode != 0 && info.Program == p.id, nil
	}
	attachedNow, err := link.QueryPrograms(link.QueryOptions{Target: p.dev.Index, Attach: p.attachType()})
	if errors.Is(err, syscall.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("listing the programs of %s: %w", p.dev.Name, err)
	}
	p.lastSeen = attachedNow.Programs
	return slices.ContainsFunc(p.lastSeen, func(a link.AttachedProgram) bool { return a.ID == p.id }), nil
}

// filtered reports whether the program is the filter of its clsact, on kernels before 6.6.
func (p *pinnedProgram) filtered() (bool, error) {
	all, err := stack.ConsistentList(func() ([]netlink.Filter, error) {
		return netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: p.dev.Index}}, p.filter().Parent)
	})
	if err != nil && !isGone(err) {
		return false, fmt.Errorf("listing the filters of %s: %w", p.dev.Name, err)
	}
	return slices.ContainsFunc(all, filterNote{id: p.id}.matches), nil
}

// keepAll keeps programs and pins in place until end is closed.
func (d *Datapath) keepAll(end <-chan struct{}) {
	tick := ticker.Every(lookEvery)
	defer tick.Stop()
	for looks := 1; ; {
		select {
		case <-end:
			return
		case <-d.lookNow:
			d.reattach()
			continue
		case <-tick.C:
			d.reattach()
		}
		d.renew()
		d.report("queues", d.keepShaping())
		if looks%restLooks == 0 {
			d.keepLiberal()
			d.repairing.Lock()
			if !d.isRefused() || !d.retire() {
				d.report("pins", d.keepPins())
			}
			d.repairing.Unlock()
			d.keepGuard()
		}
		looks++
	}
}

// reattach attaches programs again that others removed, unless it was Remove. While a program is missing the
// guard lets nothing pass; it is shut while the program is being attached, which is faster.
func (d *Datapath) reattach() {
	d.repairing.Lock()
	defer d.repairing.Unlock()
	missing, err := d.missing() // before the word that they were removed on purpose is looked for
	if (len(missing) > 0 || d.closed()) && d.retire() {
		return
	}
	if len(missing) > 0 {
		err = errors.Join(err, d.putBack(missing))
	} else {
		d.loggedDetached = nil
	}
	if err == nil && d.closed() {
		err = d.reopen()
	}
	d.report("programs", err)
	d.observe()
}

// missing lists the programs that are not where they belong, except those of an interface that is gone.
func (d *Datapath) missing() (all []*pinnedProgram, err error) {
	for _, p := range d.places {
		found, e := p.attached()
		err = errors.Join(err, e)
		if found || e != nil {
			continue
		}
		if p.dev == nil || stack.IsThere(p.dev.Index) {
			all = append(all, p)
		}
	}
	return all, err
}

// putBack attaches programs again.
func (d *Datapath) putBack(missing []*pinnedProgram) error {
	for _, p := range missing {
		if !slices.Contains(d.loggedDetached, p.name) {
			d.loggedDetached = append(d.loggedDetached, p.name)
			d.count(func(r *Repairs) { r.Removed++ })
			d.cfg.Log.Error(
				"a program was taken off: attaching it again; since it went, packets have passed without its judgement", "program",
				p.String())
		}
	}
	closing := make(chan error, 1)
	if d.closed() {
		closing <- nil
	} else {
		go func() { closing <- d.setGuard(letsNothing) }()
	}
	err := os.MkdirAll(d.cfg.PinDir, 0o700)
	for _, p := range missing {
		e := d.attachPinned(p)
		if found, _ := p.attached(); found {
			d.count(func(r *Repairs) { r.Attached++ })
			d.cfg.Log.Warn("attached again", "program", p.String())
			d.loggedDetached = slices.DeleteFunc(d.loggedDetached, func(name string) bool { return name == p.name })
		}
		err = errors.Join(err, e)
	}
	shut := <-closing
	if shut == nil {
		d.setShut(true) // otherwise the next look shuts the guard again
	}
	return errors.Join(err, shut)
}

// reopen opens the guard after all programs are back.
func (d *Datapath) reopen() error {
	if err := d.setGuard(d.letThrough); err != nil {
		return err
	}
	d.setShut(false)
	d.cfg.Log.Warn("all programs are in place: the guard lets packets pass again", "lan", d.net.Interface)
	return nil
}

// report counts an error, and logs it once while it stays the same.
func (d *Datapath) report(subject string, err error) {
	if err == nil {
		d.noteError(subject, nil)
		return
	}
	d.count(func(r *Repairs) { r.Errors++ })
	if d.noteError(subject, err) {
		d.cfg.Log.Error(
			"putting back "+subject+" that others removed or changed; trying again", "closed", d.closed(), "err", err)
	}
}

// noteError remembers the result of an attempt, and reports whether it is an error other than the last one, which the
// caller then logs.
func (d *Datapath) noteError(subject string, err error) bool {
	if err == nil {
		delete(d.loggedErrors, subject)
		return false
	}
	same := d.loggedErrors[subject] == err.Error()
	d.loggedErrors[subject] = err.Error()
	return !same
}

// listPins lists the pins that the folder of pins must hold.
func (d *Datapath) listPins() error {
	all, err := os.ReadDir(d.cfg.PinDir)
	d.pins = map[string]bool{}
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), notePrefix) { // which keepShaping keeps
			d.pins[e.Name()] = e.IsDir()
		}
	}
	return err
}

// keepPins makes removed pins again, which a successor needs to find programs and tables. A pin is also gone where
// something of another kind has its name.
func (d *Datapath) keepPins() error {
	if note := d.liberalNote.Load(); note != nil {
		d.pins[*note] = true
	}
	var folder unix.Stat_t
	if err := unix.Stat(d.cfg.PinDir, &folder); err == nil && folder.Ctim == d.pinned {
		return nil
	}
	d.pinned = unix.Timespec{}
	var removed []string
	for name, note := range d.pins {
		if current, err := os.Lstat(filepath.Join(d.cfg.PinDir, name)); err != nil || current.IsDir() != note {
			removed = append(removed, name)
		}
	}
	if len(removed) == 0 {
		if time.Since(time.Unix(folder.Ctim.Unix())) > time.Second { // a later change has another stamp
			d.pinned = folder.Ctim
		}
		return nil
	}
	if d.isDetached() { // as it may be by now
		return nil
	}
	slices.Sort(removed)
	err := os.MkdirAll(d.cfg.PinDir, 0o700)
	made := 0
	for ; err == nil && made < len(removed); made++ {
		if err = d.pin(removed[made]); err != nil {
			err = fmt.Errorf("pinning %s in %s: %w", removed[made], d.cfg.PinDir, err)
			break
		}
	}
	d.count(func(r *Repairs) { r.Pinned += uint64(made) })
	if made > 0 {
		d.cfg.Log.Error("pins were removed, and are pinned again: without them programs and tables end with the daemon",
			"folder", d.cfg.PinDir, "pins", strings.Join(removed[:made], " "))
	}
	return err
}

// pinnable is a link or a map, which can be pinned.
type pinnable interface {
	Pin(string) error
	Unpin() error
}

// pin makes a pin again.
func (d *Datapath) pin(name string) error {
	path := filepath.Join(d.cfg.PinDir, name)
	o := &d.objs
	object := map[string]pinnable{
		"clients": o.Clients, "client_counters": o.ClientCounters, "client_limits": o.ClientLimits,
		"client_meters": o.ClientMeters, "hops": o.Hops,
		"gateway_settings": o.GatewaySettings, "stats": o.Stats, "garden": o.Garden, "garden_ports": o.GardenPorts,
		"networks": o.Networks, "newcomers": o.Newcomers, "called": o.Called, "portal": o.Portal,
		"clients6": o.Clients6, "garden6": o.Garden6, "garden6_ports": o.Garden6Ports, "called6": o.Called6,
		"asked6": o.Asked6, "networks6": o.Networks6,
		"flow_tallies": o.FlowTallies, "flow_tallied": o.FlowTallied,
	}[name]
	for _, p := range d.places {
		if name == "link_"+p.name && p.link != nil {
			object = p.link
		}
	}
	if object == nil { // a note about a qdisc or a setting
		os.Remove(path)
		return os.Mkdir(path, 0o700)
	}
	return errors.Join(object.Unpin(), object.Pin(path))
}

// freezeDaemon has a daemon that runs on these pins put nothing back: it freezes the settings, which are then like that
// for every process that has them.
func freezeDaemon(dir string) error {
	pin := filepath.Join(dir, "gateway_settings")
	m, err := ebpf.LoadPinnedMap(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer m.Close()
		err = m.Freeze()
	}
	if err != nil && (m == nil || !frozen(m)) {
		return fmt.Errorf("freezing the map %s, which has a running daemon put nothing back: %w", pin, err)
	}
	return nil
}

// retire reports whether the data path was detached while it runs, also where that failed halfway, and logs that
// nothing is put back from then on.
func (d *Datapath) retire() bool {
	if !d.isDetached() {
		return false
	}
	d.mu.Lock()
	again := d.retired
	d.retired = true
	d.mu.Unlock()
	if !again {
		d.cfg.Log.Error("gatewayd detach was run under this daemon, which puts nothing back any more: what detach left is "+
			"as it said; start gatewayd again to have clients judged", "lan", d.net.Interface)
	}
	return true
}

// isDetached reports whether the data path was detached while it runs.
func (d *Datapath) isDetached() bool { return frozen(d.objs.GatewaySettings) }

func frozen(m *ebpf.Map) bool {
	info, err := m.Info()
	return err == nil && info.Frozen()
}

// Repairs counts programs, pins and rules that were put back.
func (d *Datapath) Repairs() Repairs {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.repairs
}

func (d *Datapath) count(edit func(*Repairs)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	edit(&d.repairs)
}

// isRefused reports whether the kernel did not take the settings, as after detach.
func (d *Datapath) isRefused() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused
}

// closed reports whether the guard lets nothing pass, because programs are missing.
func (d *Datapath) closed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.guardClosed
}

func (d *Datapath) setShut(shut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guardClosed = shut
}
