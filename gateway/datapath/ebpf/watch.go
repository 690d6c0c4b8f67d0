package ebpf

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// settle is how long changes are gathered before the programs are told: a
// routing daemon changes thousands of routes at once.
const settle = 5 * time.Millisecond

// routing is what a next hop is made of, as groups of rtnetlink.
var routing = []uint32{unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_NEXTHOP}

const groupNftables = 7 // NFNLGRP_NFTABLES

// watch follows the kernel's routing, the LAN's link and netfilter's rules until
// Close. Should the daemon die, cached hops end by themselves within a second.
func (d *Datapath) watch() error {
	routes, err := listen(unix.NETLINK_ROUTE, routing...)
	if err != nil {
		return fmt.Errorf("following the routing: %w", err)
	}
	rules, err := listen(unix.NETLINK_NETFILTER, groupNftables)
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		rules, err = nil, nil // a kernel without nftables has no rules of it
	}
	if err != nil {
		routes.Close()
		return fmt.Errorf("following netfilter's rules: %w", err)
	}
	var running sync.WaitGroup
	d.stop = sync.OnceFunc(func() {
		routes.Close()
		if rules != nil {
			rules.Close()
		}
		running.Wait()
	})
	d.choose()
	running.Go(func() { d.follow(routes, func(m netlink.Message) bool { return !ofClient(m, d.lan.Index) }, d.reroute) })
	if rules != nil {
		running.Go(func() { d.follow(rules, func(netlink.Message) bool { return true }, d.obey) })
	}
	return d.greet(&running)
}

func listen(family int, groups ...uint32) (*netlink.Conn, error) {
	c, err := netlink.Dial(family, nil)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		if err := c.JoinGroup(g); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// follow calls changed some time after messages that matter, until c is closed.
// Where messages were lost something has changed, too.
func (d *Datapath) follow(c *netlink.Conn, matters func(netlink.Message) bool, changed func()) {
	for {
		messages, err := c.Receive()
		if err != nil && !errors.Is(err, syscall.ENOBUFS) {
			return // closed
		}
		due := err != nil
		for _, m := range messages {
			due = due || matters(m)
		}
		if due {
			// At once, for the one change that is alone; and again when those that
			// came with it are through.
			changed()
			time.Sleep(settle)
		}
	}
}

// ofClient says whether a message is of a neighbour in the LAN: clients come and
// go, and no cached hop is one of them.
func ofClient(m netlink.Message, lanIndex int) bool {
	if m.Header.Type != unix.RTM_NEWNEIGH && m.Header.Type != unix.RTM_DELNEIGH || len(m.Data) < int(unsafe.Sizeof(unix.NdMsg{})) {
		return false
	}
	return int((*unix.NdMsg)(unsafe.Pointer(&m.Data[0])).Ifindex) == lanIndex
}

// reroute voids all cached hops, and then looks at the links again.
func (d *Datapath) reroute() {
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
			default: // it was said
			}
		}
	}
}

// obey looks at netfilter's rules again.
func (d *Datapath) obey() {
	d.keepGuard()
	d.choose()
}

// choose sets who forwards: the programs, or the stack where netfilter has a say.
func (d *Datapath) choose() {
	redirect, why := d.cfg.Forward == ForwardRedirect, "as configured"
	if d.cfg.Forward == ForwardAuto {
		rules, err := forwardingRules()
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

// forward has packets redirected or left to the stack. There is no moment at which
// those to the clients pass uncounted: lan_out counts what wan_in has left to it.
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
