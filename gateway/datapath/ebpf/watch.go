package ebpf

import (
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/guard"
	"github.com/gateweigh/gateweigh/gateway/datapath/stack"
)

// watch follows the kernel's routing, the LAN's link, netfilter's rules and the data path's
// own programs until Close.
// Without a daemon, cached next hops expire within a second.
func (d *Datapath) watch() error {
	follower, err := stack.Follow()
	if err != nil {
		return err
	}
	var watching sync.WaitGroup
	end := make(chan struct{})
	d.stop = sync.OnceFunc(func() { follower.Close(); close(end); watching.Wait() })
	d.choose()
	if err := follower.Run(stack.Changes{LAN: d.lan.Index, Routing: d.reroute, Rules: d.obey}); err != nil {
		return err
	}
	watching.Go(func() { d.keepAll(end) })
	return d.greet()
}

// reroute invalidates all cached next hops and then reads the links again. A change of tc's
// may have removed programs, one of links or addresses the clients' neighbour entries.
func (d *Datapath) reroute() {
	d.neighbours.Check()
	select {
	case d.wake <- struct{}{}:
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
	for _, dev := range []*net.Interface{d.lan, d.wan} {
		if _, err := net.InterfaceByIndex(dev.Index); err != nil {
			select {
			case d.lost <- dev.Name:
			default: // reported already
			}
		}
	}
}

// obey reads netfilter's rules again.
func (d *Datapath) obey() {
	d.keepGuard()
	d.choose()
}

// choose selects redirecting, or the stack where netfilter's rules affect forwarding.
func (d *Datapath) choose() {
	redirect, why := d.cfg.Forward == ForwardRedirect, "as configured"
	if d.cfg.Forward == ForwardAuto {
		rules, err := stack.Rules(guarding)
		switch {
		case err != nil:
			why = "netfilter's rules cannot be read: " + err.Error()
		case len(rules) > 0:
			why = "netfilter has rules in " + rules[0]
		default:
			redirect, why = true, "netfilter has no rules for what is forwarded"
		}
	}
	if err := d.forward(redirect); err != nil {
		d.cfg.Log.Error("choosing who forwards", "redirect", redirect, "why", why, "err", err)
		return
	}
	d.cfg.Log.Debug("forwarding", "redirect", redirect, "why", why)
}

// guarding reports whether a table is a guard's, which redirected packets may skip.
func guarding(family uint8, table string) bool {
	return family == unix.NFPROTO_INET && guard.Is(table)
}

// forward has packets redirected or left to the stack. Packets to clients are counted at
// every moment of the change: lan_out counts what wan_in leaves to the stack.
func (d *Datapath) forward(redirect bool) error {
	d.mu.Lock()
	same := d.chosen && (d.settings.Redirect == 1) == redirect
	d.mu.Unlock()
	if same {
		return nil
	}
	var to uint32
	if redirect {
		to = 1
	}
	return d.change(func(s *gatewaySettings) { s.Redirect, d.chosen = to, true })
}
