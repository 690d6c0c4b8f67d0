package stack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// settle is how long changes are collected before they are reported: a routing daemon changes thousands of routes at
// once.
const settle = 5 * time.Millisecond

// pollUnheard is how often everything is looked at again while messages cannot be received.
const pollUnheard = 500 * time.Millisecond

// routing lists the rtnetlink groups that concern next hops, or programs at tc.
var routing = []uint32{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE,
	unix.RTNLGRP_NEXTHOP,
	unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_TC,
	unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV6_NETCONF,
}

const groupNftables = 7 // NFNLGRP_NFTABLES

// Changes are the callbacks of a Follower. Each is called by its own goroutine, at once for the first change, and once
// more some 5 ms later for changes that came with it; also when kernel messages were lost.
type Changes struct {
	LAN int // index of the interface whose neighbours are ignored: clients come and go
	// links, neighbours, addresses, routes, routing rules, tc's qdiscs and filters, or the forwarding switch
	Routing func()
	Rules   func() // nftables, and IPsec policies
	// OwnPort is the netlink port whose own changes of nftables are ignored; 0: none.
	OwnPort uint32
	// Ignored reports tables of nftables whose changes are not reported, where nothing else changes with them; nil: none.
	Ignored func(family uint8, table string) bool
}

// Follower receives the kernel's change messages.
type Follower struct {
	routes, rules, policies *netlink.Conn // rules: nil without nftables; policies: nil without IPsec
	ended                   chan struct{} // closed by Close
	running                 sync.WaitGroup
}

// Follow starts to listen. Changes are reported only once Run is called, so that no change in between is missed.
func Follow() (*Follower, error) {
	routes, err := listen(unix.NETLINK_ROUTE, routing...)
	if err != nil {
		return nil, fmt.Errorf("following the routing: %w", err)
	}
	rules, err := listen(unix.NETLINK_NETFILTER, groupNftables)
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		rules, err = nil, nil // a kernel without nftables has no rules
	}
	if err != nil {
		routes.Close()
		return nil, fmt.Errorf("following netfilter's rules: %w", err)
	}
	f := &Follower{routes: routes, rules: rules, ended: make(chan struct{})}
	f.policies, err = listen(unix.NETLINK_XFRM, xfrmPolicyGroup)
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		f.policies, err = nil, nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("following IPsec policies: %w", err), f.Close())
	}
	return f, nil
}

// Run reports changes until Close. It returns at once. Socket filters drop irrelevant messages in the kernel.
func (f *Follower) Run(c Changes) error {
	if err := f.IgnoreNeighbours(c.LAN); err != nil {
		return err
	}
	f.running.Go(func() { f.receive(f.routes, nil, c.Routing) })
	if f.policies != nil {
		f.running.Go(func() { f.receive(f.policies, nil, c.Rules) })
	}
	if f.rules == nil {
		return nil
	}
	if c.OwnPort != 0 {
		if err := keepFilter(f.rules, changesBy(c.OwnPort)); err != nil {
			return fmt.Errorf("following netfilter's rules: %w", err)
		}
	}
	f.running.Go(func() { f.receive(f.rules, c.Ignored, c.Rules) })
	return nil
}

// IgnoreNeighbours has changes of neighbours at these interfaces, by index, ignored in place of those at Changes.LAN.
func (f *Follower) IgnoreNeighbours(indexes ...int) error {
	if err := keepFilter(f.routes, neighboursAt(indexes...)); err != nil {
		return fmt.Errorf("following the routing: %w", err)
	}
	return nil
}

// Close ends reporting and waits for running callbacks.
func (f *Follower) Close() error {
	close(f.ended)
	var err error
	for _, c := range []*netlink.Conn{f.routes, f.rules, f.policies} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
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

// receive calls changed after messages, until Close, unless all are of nftables' tables that are ignored. Lost messages
// count as a change, and while messages cannot be received at all, everything counts as changed from time to time.
func (f *Follower) receive(c *netlink.Conn, ignored func(uint8, string) bool, changed func()) {
	for {
		first, err := c.Receive()
		pause, matters := time.Duration(0), true
		if err != nil && !errors.Is(err, syscall.ENOBUFS) {
			pause = pollUnheard
		} else {
			matters = err != nil || ignored == nil || slices.ContainsFunc(first, matterOf(ignored))
			matters = discard(c, ignored, matters)
		}
		select {
		case <-f.ended:
			return
		case <-time.After(pause):
		}
		if !matters {
			continue
		}
		// At once, because most changes come alone; and again when changes that came with it have settled.
		changed()
		time.Sleep(settle)
	}
}

// matterOf returns a function that reports whether a message of nftables is about a table that is not ignored. Each
// transaction also has a message with its number alone, after those about what it changes.
func matterOf(ignored func(uint8, string) bool) func(netlink.Message) bool {
	return func(m netlink.Message) bool {
		if m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
			return false
		}
		attrs, family, ok := decoder(m.Data)
		for ok && attrs.Next() {
			if attrs.Type() == unix.NFTA_TABLE_NAME { // other messages have their table by the same number
				return !ignored(family, attrs.String())
			}
		}
		return true
	}
}

// mostDiscarded is how many messages are dropped at once: while they keep arriving, changes are reported all the same.
const mostDiscarded = 10_000

// discard drops the messages that have arrived, and reports whether one of them matters; with matters it does not look.
// A transaction of nftables causes one for every few kilobytes, and one look at the present state suffices for all.
func discard(c *netlink.Conn, ignored func(uint8, string) bool, matters bool) bool {
	rc, err := c.SyscallConn()
	if err != nil {
		return true
	}
	var buf []byte
	if !matters {
		buf = make([]byte, longestChange)
	}
	rc.Control(func(fd uintptr) {
		for range mostDiscarded {
			n, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
			switch {
			case errors.Is(err, unix.ENOBUFS):
				matters = true
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return
			case !matters:
				all, err := syscall.ParseNetlinkMessage(buf[:min(n, len(buf))])
				matters = err != nil || n > len(buf) || slices.ContainsFunc(all, func(m syscall.NetlinkMessage) bool {
					return matterOf(ignored)(netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(m.Header.Type)},
						Data: m.Data})
				})
			}
		}
		matters = true
	})
	return matters
}

// longestChange is how long a datagram about a change is at most, bytes; the kernel joins messages up to a page.
const longestChange = 1 << 16

// Offsets in a message, bytes: struct nlmsghdr, followed by struct ndmsg.
const (
	messageType = 4
	messagePort = 12
	ndIndex     = 20
)

// keepFilter attaches a filter that drops the messages for which it returns 0.
func keepFilter(c *netlink.Conn, filter []bpf.Instruction) error {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return err
	}
	return c.SetBPF(raw)
}

// neighboursAt returns a filter that drops messages about neighbours at some interfaces, at most 100, because there is
// one for each client, and about classes in queues, because each client may have some.
func neighboursAt(indexes ...int) []bpf.Instruction {
	n := uint8(len(indexes))
	filter := []bpf.Instruction{
		bpf.LoadAbsolute{Off: messageType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded16(unix.RTM_NEWTCLASS), SkipTrue: n + 5},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded16(unix.RTM_DELTCLASS), SkipTrue: n + 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded16(unix.RTM_NEWNEIGH), SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: loaded16(unix.RTM_DELNEIGH), SkipTrue: n + 1},
		bpf.LoadAbsolute{Off: ndIndex, Size: 4},
	}
	for i, index := range indexes {
		filter = append(filter, bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded32(uint32(index)), SkipTrue: n - uint8(i)})
	}
	return append(filter, bpf.RetConstant{Val: math.MaxUint32}, bpf.RetConstant{Val: 0})
}

// changesBy returns a filter for the messages of a port's own transactions. Messages in one datagram belong to one
// transaction.
func changesBy(port uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: messagePort, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: loaded32(port), SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: math.MaxUint32},
	}
}

// loaded16 and loaded32 convert a number of this machine to the value that a BPF filter loads: filters read bytes in
// network order.
func loaded16(n uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, n)))
}

func loaded32(n uint32) uint32 {
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, n))
}
