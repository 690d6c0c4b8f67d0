// The watcher, which follows changes of the kernel's routing, rules and links and has the ways of forwarding chosen
// again (choose.go).

package ebpf

import (
	"errors"
	"net"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// watch follows the kernel's routing, the LAN's link, netfilter's rules and the data path's own programs until Close.
// Without a daemon, cached next hops expire within a second, and redirecting and the cache of flows end within
// redirectLife.
func (d *Datapath) watch() error {
	follower, err := stack.Follow()
	if err != nil {
		return err
	}
	var watching sync.WaitGroup
	end := make(chan struct{})
	d.stop = sync.OnceFunc(func() {
		d.split.follow(follower, false)
		follower.Close()
		close(end)
		watching.Wait()
	})
	d.choose(d.judgeRules, d.judgeRouting, d.judgePrograms)
	if _, err := d.missing(); err != nil {
		return err
	}
	d.observe()
	if err := follower.Run(stack.Changes{LAN: d.lan.Index, Routing: d.reroute, Rules: d.readRules,
		Ignored: d.isOther}); err != nil {
		return err
	}
	if err := d.split.follow(follower, true); err != nil {
		return err
	}
	watching.Go(func() { d.keepAll(end) })
	return d.reportNewcomers()
}

// reroute invalidates all cached next hops and then reads routing and links again. A change of tc's may have removed
// programs, or added some; one of links or addresses the clients' neighbour entries.
func (d *Datapath) reroute() {
	d.neighbours.Check()
	if err := errors.Join(d.routes.Check(), d.networks6.onLink.Check(), d.networks6.routes.Check()); err != nil {
		d.cfg.Log.Error("keeping the routes to clients and to the networks behind them", "err", err)
	}
	select {
	case d.lookNow <- struct{}{}:
	default: // the watcher is about to look
	}
	mtu := d.lanMTU()
	err := d.change(func(s *gatewaySettings) {
		if mtu > 0 {
			s.LanMtu = mtu
		}
	})
	if err != nil {
		d.cfg.Log.Error("following the routing", "err", err)
	}
	d.voidFlows()
	d.choose(d.judgeRouting, d.judgePrograms)
	for _, dev := range []*net.Interface{d.lan, d.wan, d.cutter.wan} {
		if dev == nil {
			continue
		}
		if !stack.IsThere(dev.Index) {
			select {
			case d.lostInterface <- dev.Name:
			default: // reported already
			}
		}
	}
}

// readRules reads netfilter's rules and IPsec's policies again.
func (d *Datapath) readRules() {
	d.withoutFlows(func() { d.choose(d.judgeRules) })
	d.keepGuard()
}
