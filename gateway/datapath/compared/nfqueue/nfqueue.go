// Package nfqueue leaves forwarding to the kernel's stack and decides about the packets in user space: nftables rules
// queue packets, NFQUEUE delivers them, and the daemon returns a verdict for each.
//
//	LAN ──▶ prerouting ─▶ queue ─▶ verdict ─▶ portal (NAT), reject, or the stack ──▶ WAN
//	LAN ◀── verdict ◀─ queue ◀─ forward ◀─────────────────────────── the stack ◀── WAN
//
// As studied, every packet is judged, one by one. In fast mode the kernel itself passes packets of admitted clients
// without limits, see fast.go, and where the way is certain they bypass the stack, see redirect.go.
//
// It fails closed. The rules stay when the daemon ends, with queues that have no reader, and the kernel drops what it
// cannot queue. Restarts are not hitless.
package nfqueue

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/arp"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/nfqueue/queue"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/neighbour"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// config is the configuration of the data path. With Fast, only packets that the kernel cannot decide about are queued.
type config struct {
	datapath.Setup
	unheld bool // for tests: tables have no owner, as on kernels before 6.9, so that any program may flush them
}

// Datapath is the running data path.
type Datapath struct {
	cfg      config
	net      datapath.Network
	lan      *net.Interface
	wan      *net.Interface
	locks    datapath.Locks
	table    *admission.Table
	queues   []*queue.Queue
	rules    *nftables.Conn
	fast     *fast // nil: as studied
	bridge   bool  // the LAN's interface is a bridge
	watcher  *watcher
	follower *stack.Follower
	// neighbours are the kernel's entries of the clients; arp receives from newcomers, nil without Newcomer.
	neighbours *neighbour.Table
	arp        *arp.Responder
	judging    sync.WaitGroup

	choosing sync.Mutex // held while it is decided whether packets bypass the stack (redirect.go); locked before d.mu

	speaks dialect // of nftables: what this kernel understands. Only open writes it

	mu     sync.Mutex // guards the following fields, and the order of changes
	owners map[netip.Addr]datapath.MAC
}

var _ datapath.Datapath = (*Datapath)(nil)

// open opens queues and replaces the rules of a former daemon, which were closed: in between no packet passes. There
// are no clients at first, and counters begin at 0. Long: the parts are opened in the order in which they need each
// other.
func open(cfg config) (_ *Datapath, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &Datapath{cfg: cfg, owners: map[netip.Addr]datapath.MAC{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("opening the NFQUEUE data path: %w", err), d.Close())
		}
	}()
	if d.net, err = datapath.SingleNetwork(cfg.Networks); err != nil {
		return nil, err
	}
	if d.table, err = admission.New(admission.Config{
		Network: d.net, PortalPorts: cfg.PortalPorts, Newcomer: d.newcomers(),
	}); err != nil {
		return nil, err
	}
	if d.locks, err = datapath.Lock(datapath.Sharing(d.net.Interface, cfg.WAN)...); err != nil {
		return nil, err
	}
	if err := d.findInterfaces(); err != nil {
		return nil, err
	}
	if err := Check(d.net.Interface); err != nil {
		return nil, err
	}
	if d.watcher, err = watch(d.lan, d.wan); err != nil {
		return nil, err
	}
	if d.rules, err = nftables.Dial(); err != nil {
		return nil, err
	}
	if cfg.Fast {
		d.fast = newFast()
	}
	if err := d.listen(); err != nil {
		return nil, err
	}
	if d.follower, err = stack.Follow(); err != nil {
		return nil, err
	}
	if err := d.install(); err != nil {
		return nil, err
	}
	if d.neighbours, err = neighbour.Open(d.lan.Index, nil, cfg.Log); err != nil {
		return nil, err
	}
	if err := d.reportNewcomers(); err != nil {
		return nil, err
	}
	return d, d.startJudging()
}

// findInterfaces finds the LAN's and the WAN's interface, and whether the LAN's is a bridge.
func (d *Datapath) findInterfaces() (err error) {
	if d.lan, err = net.InterfaceByName(d.net.Interface); err != nil {
		return fmt.Errorf("interface %s: %w", d.net.Interface, err)
	}
	link, err := netlink.LinkByIndex(d.lan.Index)
	if err != nil {
		return fmt.Errorf("interface %s: %w", d.net.Interface, err)
	}
	d.bridge = link.Type() == "bridge"
	if d.wan, err = net.InterfaceByName(d.cfg.WAN); err != nil {
		return fmt.Errorf("interface %s: %w", d.cfg.WAN, err)
	}
	return nil
}

// newcomers returns cfg.Newcomer, which is not called for hosts that are clients already, because of an earlier packet,
// nor for those whose MAC address the kernel did not report (judge.sender). nil: there is none.
func (d *Datapath) newcomers() func(netip.Addr, datapath.MAC) {
	if d.cfg.Newcomer == nil {
		return nil
	}
	return func(addr netip.Addr, mac datapath.MAC) {
		if mac != (datapath.MAC{}) && !d.neighbours.Has(addr, mac) {
			d.cfg.Newcomer(addr, mac)
		}
	}
}

// Queues as studied: one, of default length, with whole packets one by one. Fast: one for each CPU, many packets at a
// time.
const (
	studiedPackets = 1024
	fastPackets    = 8192
	fastBatch      = 64
	fastCopy       = 16 << 10 // any HTTP request that capture copies to the portal
)

// span returns the queues of this LAN. Each LAN has its own, and a successor has the same ones as its predecessor, so
// that rules without a daemon drop.
func (d *Datapath) span() nftables.Queues {
	const first, width, spans = 20_000, 64, 640
	q := nftables.Queues{First: uint16(first + d.lan.Index%spans*width), Count: 1}
	if d.cfg.Fast {
		q.Count, q.PerCPU = uint16(min(runtime.NumCPU(), width)), true
	}
	return q
}

// listen opens the queues.
func (d *Datapath) listen() error {
	span := d.span()
	for i := range span.Count {
		cfg := queue.Config{Number: span.First + i, Packets: studiedPackets}
		if d.cfg.Fast {
			cfg.Packets, cfg.Batch, cfg.CopyBytes, cfg.GSO = fastPackets, fastBatch, fastCopy, true
		}
		// Without GSO the kernel splits an aggregated packet. On a bridge whose frames netfilter sees, it then queues all
		// packets but the first once more, in front of the stack, and they would be counted twice.
		cfg.GSO = cfg.GSO || d.bridge
		q, err := queue.Open(cfg)
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) {
			err = fmt.Errorf("%w: %w (NFQUEUE is missing)", datapath.ErrNotSupported, err)
		}
		if err != nil {
			return err
		}
		d.queues = append(d.queues, q)
	}
	return nil
}

// startJudging starts judging.
func (d *Datapath) startJudging() error {
	for _, q := range d.queues {
		j := &judge{Judge: d.table.Judge(), table: d.table, queue: q, lan: uint32(d.lan.Index),
			mtu: min(d.lan.MTU, d.wan.MTU)}
		var after func()
		if d.fast != nil {
			c, err := newCapture(netip.AddrPortFrom(d.net.Gateway(), d.portalPort()))
			if err != nil {
				return err
			}
			d.fast.captures = append(d.fast.captures, c)
			j.capture, after = c, c.send
		}
		d.judging.Go(func() {
			if err := q.Run(j.decide, after); err != nil {
				d.cfg.Log.Error("judging packets; they are dropped from now on", "err", err)
			}
		})
	}
	if d.fast != nil {
		if err := d.keepOpen(); err != nil {
			return err
		}
	}
	ownPort, err := d.rules.Port()
	if err != nil {
		return err
	}
	d.reroute()
	return d.follower.Run(
		stack.Changes{LAN: d.lan.Index, OwnPort: ownPort, Routing: d.reroute, Rules: func() { d.keepRules(); d.choose() }})
}

// reportNewcomers reports newcomers that ask for the gateway by ARP, and answers those that have become clients: the
// rules drop their requests, because the stack would enter every sender into its neighbour table.
func (d *Datapath) reportNewcomers() (err error) {
	if d.cfg.Newcomer == nil {
		return nil
	}
	if d.arp, err = arp.Respond(d.lan, d.net.Gateway(), true); err != nil {
		return err
	}
	d.judging.Go(func() {
		for {
			addr, mac, err := d.arp.Next()
			if err != nil {
				return // closed, or the interface is gone
			}
			if d.net.Client(addr) != nil || d.isClientAddr(addr) {
				continue
			}
			d.table.ReportNewcomer(addr, mac, func() {
				if !d.neighbours.Has(addr, mac) {
					return
				}
				if err := d.arp.Answer(addr, mac); err != nil {
					d.cfg.Log.Debug("welcoming a newcomer", "err", err)
				}
			})
		}
	})
	return nil
}

// isClientAddr reports whether an address is a client's.
func (d *Datapath) isClientAddr(addr netip.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, owned := d.owners[addr]
	return owned
}

// reroute follows a change of links, addresses or routes.
func (d *Datapath) reroute() {
	d.neighbours.Check()
	if ownAddrs, err := stack.OwnAddresses(); err == nil {
		d.table.SetOwn(ownAddrs)
	} else {
		d.cfg.Log.Error("following this machine's addresses", "err", err)
	}
	d.followDefault()
	d.choose()
}

// portalPort is the port that unauthenticated clients' HTTP is redirected to; 0: none.
func (d *Datapath) portalPort() uint16 {
	if len(d.cfg.PortalPorts) == 0 {
		return 0
	}
	return d.cfg.PortalPorts[0]
}

// Close ends judging. The rules stay: no packet of the LAN passes from then on, not even of admitted clients, until a
// successor opens, or Clear.
func (d *Datapath) Close() error {
	var errs []error
	if d.follower != nil {
		errs = append(errs, d.follower.Close())
	}
	if d.fast != nil {
		d.fast.stop()
	}
	for _, q := range d.queues {
		errs = append(errs, q.Close())
	}
	errs = append(errs, d.arp.Close())
	d.judging.Wait()
	if d.fast != nil {
		for _, c := range d.fast.captures {
			errs = append(errs, c.close())
		}
		d.fast.captures = nil
	}
	if d.watcher != nil {
		errs = append(errs, d.watcher.close())
	}
	if d.rules != nil {
		errs = append(errs, d.rules.Close())
	}
	if d.table != nil {
		errs = append(errs, d.table.Close())
	}
	if d.neighbours != nil {
		errs = append(errs, d.neighbours.Close())
	}
	errs = append(errs, d.locks.Close())
	d.queues, d.arp, d.watcher, d.follower, d.rules, d.locks = nil, nil, nil, nil, nil, nil
	return errors.Join(errs...)
}
