package stack

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// settle is how long changes are gathered before they are told: a routing daemon
// changes thousands of routes at once.
const settle = 5 * time.Millisecond

// routing is what a next hop is made of, as groups of rtnetlink.
var routing = []uint32{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_NEXTHOP,
	unix.RTNLGRP_IPV4_NETCONF,
}

const groupNftables = 7 // NFNLGRP_NFTABLES

// Changes are told to whoever follows the stack. Each is called by one goroutine of its
// own, at once for a change that is alone, and once more, some 5 ms later, for those
// that came with it; also where messages of the kernel were lost.
type Changes struct {
	LAN     int    // index of the interface whose neighbours do not matter: clients come and go
	Routing func() // links, neighbours, addresses, routes, rules of routing or whether it forwards
	Rules   func() // nftables
	// Own is the netlink port whose changes of nftables are no news; 0: none.
	Own uint32
}

// Follower is who follows.
type Follower struct {
	routes, rules *netlink.Conn // rules: nil without nftables
	running       sync.WaitGroup
}

// Follow listens from now on, and tells of changes only once Run is called: what is
// looked at in between is not missed.
func Follow() (*Follower, error) {
	routes, err := listen(unix.NETLINK_ROUTE, routing...)
	if err != nil {
		return nil, fmt.Errorf("following the routing: %w", err)
	}
	rules, err := listen(unix.NETLINK_NETFILTER, groupNftables)
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		rules, err = nil, nil // a kernel without nftables has no rules of it
	}
	if err != nil {
		routes.Close()
		return nil, fmt.Errorf("following netfilter's rules: %w", err)
	}
	return &Follower{routes: routes, rules: rules}, nil
}

// Run tells of changes until Close. It returns at once.
func (f *Follower) Run(c Changes) {
	f.running.Go(func() { follow(f.routes, func(m netlink.Message) bool { return !ofNeighbour(m, c.LAN) }, c.Routing) })
	if f.rules != nil {
		f.running.Go(func() {
			follow(f.rules, func(m netlink.Message) bool { return c.Own == 0 || m.Header.PID != c.Own }, c.Rules)
		})
	}
}

// Close ends following, and waits until nobody is being told of anything.
func (f *Follower) Close() error {
	err := f.routes.Close()
	if f.rules != nil {
		err = errors.Join(err, f.rules.Close())
	}
	f.running.Wait()
	return err
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
func follow(c *netlink.Conn, matters func(netlink.Message) bool, changed func()) {
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

// ofNeighbour says whether a message is of a neighbour at an interface.
func ofNeighbour(m netlink.Message, index int) bool {
	if m.Header.Type != unix.RTM_NEWNEIGH && m.Header.Type != unix.RTM_DELNEIGH || len(m.Data) < int(unsafe.Sizeof(unix.NdMsg{})) {
		return false
	}
	return int((*unix.NdMsg)(unsafe.Pointer(&m.Data[0])).Ifindex) == index
}
