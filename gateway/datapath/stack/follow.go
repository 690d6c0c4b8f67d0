package stack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
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

// Run tells of changes until Close. It returns at once. What is no news wakes nobody:
// the kernel is told to keep it.
func (f *Follower) Run(c Changes) error {
	if err := keep(f.routes, neighboursAt(c.LAN)); err != nil {
		return fmt.Errorf("following the routing: %w", err)
	}
	f.running.Go(func() { follow(f.routes, c.Routing) })
	if f.rules == nil {
		return nil
	}
	if c.Own != 0 {
		if err := keep(f.rules, changesBy(c.Own)); err != nil {
			return fmt.Errorf("following netfilter's rules: %w", err)
		}
	}
	f.running.Go(func() { follow(f.rules, c.Rules) })
	return nil
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

// follow calls changed after messages, until c is closed. Where messages were lost
// something has changed, too.
func follow(c *netlink.Conn, changed func()) {
	for {
		if _, err := c.Receive(); err != nil && !errors.Is(err, syscall.ENOBUFS) {
			return // closed
		}
		// At once, for the one change that is alone; and again when those that came with
		// it are through.
		changed()
		time.Sleep(settle)
	}
}

// Places in a message, bytes: struct nlmsghdr, and struct ndmsg behind it.
const (
	messageType = 4
	messagePort = 12
	ndIndex     = 20
)

// keep has the kernel keep what a filter says, by leaving it with 0.
func keep(c *netlink.Conn, filter []bpf.Instruction) error {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return err
	}
	return c.SetBPF(raw)
}

// neighboursAt keeps messages of neighbours at an interface. Each comes alone.
func neighboursAt(index int) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: messageType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded16(unix.RTM_NEWNEIGH), SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: loaded16(unix.RTM_DELNEIGH), SkipTrue: 3},
		bpf.LoadAbsolute{Off: ndIndex, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: loaded32(uint32(index)), SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: math.MaxUint32},
	}
}

// changesBy keeps what came of a port's own transactions. Messages that come together
// are all of one.
func changesBy(port uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: messagePort, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: loaded32(port), SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: math.MaxUint32},
	}
}

// loaded16 and loaded32 are what a filter loads of a number of this machine: filters
// read the bytes as a network's.
func loaded16(n uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, n)))
}

func loaded32(n uint32) uint32 {
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, n))
}
