// The cache of flows: how the daemon loads its programs, and begins, voids and ends the cache. flow.h has the entries,
// and cache.h and learn.bpf.c use and make them.

package ebpf

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// FlowCache says when flows are cached although netfilter's rules keep packets from being redirected.
type FlowCache string

const (
	// FlowCacheNever has the stack forward every packet.
	FlowCacheNever FlowCache = "never"
	// FlowCacheAuto caches flows while the rules decide by what is the same for all packets of a flow.
	FlowCacheAuto FlowCache = "auto"
	// FlowCacheAlways caches flows whatever the rules look at.
	FlowCacheAlways FlowCache = "always"
)

// flows is the cache of flows: lan_in and wan_in forward the packets of flows about which the stack has
// decided. Its programs are attached while the daemon runs and the cache is in use, and end with the
// daemon. Guarded by choosing, but for what mu guards.
//
// A flow's first packets take the kernel's whole path: connection tracking, NAT, every rule, routing. Where they
// leave, learn.bpf.c notes what the kernel made of them: addresses and ports from the connection, next hop, mark
// and priority from the packet, so that routing by marks or by source and several uplink hops hold too. A flow is
// cached once it is established in both directions, UDP's after two seconds. UDP that nobody answers is cached for
// a second at a time, and the first answer has its packets decided about anew. Where a rule decides by a ct mark
// that another sets, a direction is cached from the second packet on that leaves the connection with the mark that
// the one before left (TestCacheWithConnectionMarks).
//
// Of each direction one packet takes the kernel's path every 12 to 16 s, or four to five times in the time for
// which connection tracking remembers the connection. The kernel then gets the rest of the driver's poll too,
// because Linux hands a poll's packets from layer to layer together.
type flows struct {
	objs      learnObjects
	loaded    atomic.Bool // what Open or beginFlows loads
	links     []link.Link
	deletions *netlink.Conn // hears of connections that are gone; its filter does the work
}

// unusedEntries is how many entries a cache has that is never used.
const unusedEntries = 1

// flowsAtOnce reports whether the cache's programs are loaded before they are needed: where packets are tallied, and
// where the daemon could not load them later. One with several networks can, and saves half of the time that opening a
// network takes.
func (d *Datapath) flowsAtOnce() bool {
	return d.cfg.FlowCache != FlowCacheNever && (d.split == nil || d.cfg.tallying())
}

// openFlows loads the programs of the cache. A kernel that cannot run them forwards as without.
func (d *Datapath) openFlows() {
	if err := d.loadFlows(); err != nil {
		d.unloaded = "this kernel cannot run the cache's programs: " + firstLine(err)
		d.cfg.Log.Warn("no flows are cached: where netfilter has rules, the stack forwards", "err", err)
		return
	}
	d.flows.loaded.Store(true)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// findTracking has the kernel load its module for connections, whose functions the programs call, by asking it
// something: the answer is not read. A kernel without it is found out when they are loaded.
func findTracking() {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return
	}
	defer c.Close()
	const stats = 1<<8 | 5 // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET_STATS
	c.Send(netlink.Message{
		Header: netlink.Header{Type: stats, Flags: netlink.Request}, Data: []byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0}})
}

func (d *Datapath) loadFlows() error {
	findTracking()
	spec, err := loadLearn()
	if err != nil {
		return fmt.Errorf("reading the programs: %w", err)
	}
	fresh, err := d.openTallies()
	if err != nil {
		return err
	}
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return fmt.Errorf("reading the length of the kernel's tick: %w", err)
	}
	for name, value := range map[string]any{
		"tick_ns": uint64(tick.Nano()), "lan": constantsOf(d.net, d.lan, d.splitNumber), "wan_ifindex": uint32(d.wan.Index),
		"tallying": map[bool]uint8{true: 1}[d.cfg.tallying()], "fresh_tallies": uint64(fresh),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	spec.Maps["flow_counts"].MaxEntries = d.slots()
	here := map[string]*ebpf.Map{
		"flow_paths": d.objs.FlowPaths, "flow_settings": d.objs.FlowSettings, "flow_tallies": d.objs.FlowTallies,
		"flow_tallied": d.objs.FlowTallied, "flow6_paths": d.objs.Flow6Paths, "clients6": d.objs.Clients6,
		"networks6": d.objs.Networks6, "flow6_stamps": d.objs.Flow6Stamps,
	}
	for name, m := range here {
		spec.Maps[name].MaxEntries, spec.Maps[name].Flags = m.MaxEntries(), m.Flags()
	}
	if !d.cfg.tallying() {
		spec.Maps["free_tallies"].MaxEntries = unusedEntries
	}
	if err := spec.LoadAndAssign(&d.flows.objs, &ebpf.CollectionOptions{MapReplacements: here}); err != nil {
		return err
	}
	return d.freeTallies(fresh)
}

// uncached returns why flows of a family are not cached while the stack forwards; "": they are.
func (d *Datapath) uncached(r reasons, ruled bool, v stack.Variance) string {
	switch {
	case d.cfg.FlowCache == FlowCacheNever:
		return "as configured (datapath.flow_cache)"
	case d.unloaded != "":
		return d.unloaded
	case !ruled:
		return "there are no rules, and so no connections"
	}
	for _, reason := range []string{r.policies, r.programs} {
		if reason != "" {
			return reason
		}
	}
	if d.cfg.FlowCache == FlowCacheAuto {
		return v.Established
	}
	return ""
}

// cache begins to cache flows of IPv4 and of IPv6, or ends it for reasons.
func (d *Datapath) cache(reason, reason6 string) {
	if wanted := reason == "" || reason6 == ""; wanted && len(d.flows.links) == 0 {
		if err := d.beginFlows(); err != nil {
			reason, reason6 = cmp.Or(reason, err.Error()), cmp.Or(reason6, err.Error())
			d.endFlows()
			d.cfg.Log.Error("caching flows", "err", err)
		}
	} else if !wanted {
		d.endFlows()
	}
	d.mu.Lock()
	same, same6 := d.uncachedWhy == reason, d.uncachedWhy6 == reason6 || !d.has6()
	d.uncachedWhy, d.uncachedWhy6 = reason, reason6
	for s, v := range map[*gatewayFlowSettings]stack.Variance{
		&d.flowSettings: d.reasons.variance, &d.flowSettings6: d.reasons.variance6} {
		s.Unanswered, s.Marks = toggle(v.Unanswered == ""), toggle(v.Marks)
	}
	d.mu.Unlock()
	if err := d.setFlows(); err != nil {
		d.cfg.Log.Error("caching flows", "err", err)
	}
	if !same && d.cfg.FlowCache != FlowCacheNever {
		d.cfg.Log.Info("caching flows", "cache", reason == "", "why", reason)
	}
	if !same6 && d.cfg.FlowCache != FlowCacheNever {
		d.cfg.Log.Info("caching IPv6 flows", "cache", reason6 == "", "why", reason6)
	}
}

// toggle is a switch as the programs read it.
func toggle(enabled bool) uint32 {
	if enabled {
		return 1
	}
	return 0
}

// beginFlows attaches the programs that learn, which do so once the settings allow it.
func (d *Datapath) beginFlows() error {
	if !d.flows.loaded.Load() {
		if d.openFlows(); d.unloaded != "" {
			return errors.New(d.unloaded)
		}
	}
	if d.flows.deletions == nil {
		var err error
		if d.flows.deletions, err = d.hearOfEnds(); err != nil {
			return err
		}
	}
	for _, h := range []hook{
		{"learn_up", d.wan, d.flows.objs.LearnUp, true}, {"learn_down", d.lan, d.flows.objs.LearnDown, true}} {
		if d.split != nil && h.dev == d.wan {
			if err := d.split.learnUp(d.splitNumber, h.prog); err != nil {
				return fmt.Errorf("learning flows at %s: %w", h.dev.Name, err)
			}
			continue
		}
		l, err := link.AttachTCX(
			link.TCXOptions{Program: h.prog, Interface: h.dev.Index, Attach: h.attachType(), Anchor: link.Tail()})
		if d.cfg.clsact && err == nil {
			err = errors.Join(ebpf.ErrNotSupported, l.Close())
		}
		if errors.Is(err, ebpf.ErrNotSupported) {
			return fmt.Errorf("%w: attaching programs behind others needs Linux 6.6", datapath.ErrNotSupported)
		}
		if err != nil {
			return fmt.Errorf("attaching %s to %s: %w", h.name, h.dev.Name, err)
		}
		d.flows.links = append(d.flows.links, l)
	}
	_, err := d.makeLiberal()
	d.strict.Store(err != nil)
	return err
}

// hearOfEnds has a program hear which connections the kernel deletes.
func (d *Datapath) hearOfEnds() (*netlink.Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("hearing of deleted connections: %w", err)
	}
	raw, err := c.SyscallConn()
	if err == nil {
		e := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_BPF, d.flows.objs.Forget.FD())
		})
		err = errors.Join(err, e)
	}
	const destroyed = 3 // NFNLGRP_CONNTRACK_DESTROY
	if err == nil {
		err = c.JoinGroup(destroyed)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hearing of deleted connections: %w", err), c.Close())
	}
	return c, nil
}

// endFlows detaches the programs that learn flows. The program that hears of deleted connections stays: the kernel
// reports only connections that began while somebody listened.
func (d *Datapath) endFlows() {
	for _, l := range d.flows.links {
		l.Close()
	}
	if d.split != nil && d.flows.links != nil {
		d.split.learnUp(d.splitNumber, nil)
	}
	d.flows.links = nil
}

// setFlows writes the cache's settings with another generation, which voids all entries.
func (d *Datapath) setFlows() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flowSettings.Generation++
	d.flowSettings6.Generation++
	return d.putFlows()
}

// putFlows writes the cache's settings. mu is held.
func (d *Datapath) putFlows() error {
	if !d.flows.loaded.Load() {
		return nil
	}
	d.noteLapse()
	d.flowSettings.Until, d.flowSettings6.Until = 0, 0
	if d.caching() && d.paused == 0 {
		d.flowSettings.Until = stamp("")
	}
	if d.caching6() && d.paused == 0 {
		d.flowSettings6.Until = stamp("")
	}
	if err := d.writeFlows(); err != nil {
		return fmt.Errorf("changing the settings of the cache of flows: %w", err)
	}
	return nil
}

// writeFlows writes the cache's settings of both families. mu is held.
func (d *Datapath) writeFlows() error {
	const ipv4, ipv6 = uint32(0), uint32(1) // SETTINGS_OF_FLOWS6
	return errors.Join(d.objs.FlowSettings.Put(ipv4, &d.flowSettings), d.objs.FlowSettings.Put(ipv6, &d.flowSettings6))
}

// restFlows has the stack forward until another process takes over: nobody hears of changes.
func (d *Datapath) restFlows() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.flows.loaded.Load() {
		return nil
	}
	d.flowSettings.Until, d.flowSettings6.Until = 0, 0
	return d.writeFlows()
}

// caching reports whether flows of IPv4 are cached. mu is held.
func (d *Datapath) caching() bool { return d.stackReason != "" && d.uncachedWhy == "" }

// voidFlows makes all cached flows invalid, so that the stack decides about each again. A packet may be on its way
// through the stack by the former rules: the entry that it causes is void too.
func (d *Datapath) voidFlows() {
	d.mu.Lock()
	caching := d.caching() || d.caching6()
	d.mu.Unlock()
	if !caching {
		return
	}
	err := d.setFlows()
	stack.AwaitCPUs()
	if err = errors.Join(err, d.setFlows()); err != nil {
		d.cfg.Log.Error("voiding the cached flows", "err", err)
	}
}

// withoutFlows has the stack forward every packet while f looks for reasons not to cache flows.
func (d *Datapath) withoutFlows(f func()) {
	pause := func(n int) {
		d.mu.Lock()
		caching := d.caching() || d.caching6()
		d.paused += n
		d.mu.Unlock()
		if err := d.setFlows(); err != nil {
			d.cfg.Log.Error("voiding the cached flows", "err", err)
		}
		if caching && n > 0 {
			stack.AwaitCPUs()
		}
	}
	pause(1)
	f()
	pause(-1)
}

const fromLAN, fromWAN = 1, 2 // enum side

// Forget removes the entries for packets of connections that the kernel has deleted: where it does not report that,
// they would last for up to a second.
func (d *Datapath) Forget(ways []datapath.Tracked) error {
	if !d.flows.loaded.Load() {
		return nil
	}
	for _, w := range ways {
		if !w.From.Addr().Is4() {
			if err := d.forget6(w); err != nil {
				return err
			}
			continue
		}
		for _, side := range []uint16{fromLAN, fromWAN} {
			k := gatewayFlowKey{
				Saddr: networkOrder(w.From.Addr()), Daddr: networkOrder(w.To.Addr()), Sport: networkPort(w.From.Port()),
				Dport:    networkPort(w.To.Port()),
				Protocol: uint16(w.Protocol), Side: side,
			}
			if err := d.objs.FlowPaths.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("forgetting a flow from %s to %s: %w", w.From, w.To, err)
			}
		}
	}
	return nil
}
