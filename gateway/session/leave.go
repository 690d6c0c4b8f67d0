// The end of connections whose client has left an address.

package session

import (
	"net/netip"
	"slices"
)

// Cutter ends the connections of clients that have left: conntrack.Ender. Its methods do not call the table and do not
// wait.
type Cutter interface {
	// Schedule ends connections from and to these addresses and networks within seconds.
	Schedule(networks ...netip.Prefix)
	// Flush returns nil if no connections of addresses in these networks are left that were given to Schedule.
	// Otherwise it ends them at once, and returns a channel that is closed once they have ended.
	Flush(networks ...netip.Prefix) <-chan struct{}
}

// Cut sets the Cutter of the table. Connections of an address end when its client changes or its session ends, and so
// do those of the networks behind it. They end after the data path has closed the address. Only a login at such an
// address or network waits until they have ended; other operations do not. A client that logs in again as the same user
// keeps its connections. Cut must be called before the table is used.
func (t *Table) Cut(by Cutter) { t.cutter = by }

// noCutter is the Cutter of a table for which Cut was not called.
type noCutter struct{}

func (noCutter) Schedule(...netip.Prefix)              {}
func (noCutter) Flush(...netip.Prefix) <-chan struct{} { return nil }

// addrs returns all addresses of the client, the first one first.
func (e *entry) addrs() []netip.Addr {
	return append([]netip.Addr{e.key.Addr}, e.extraOrZero().furtherAddrs...)
}

// networks returns the addresses and networks that an entry's client may send from.
func (e *entry) networks() (all []netip.Prefix) {
	for _, addr := range e.addrs() {
		all = append(all, netip.PrefixFrom(addr, addr.BitLen()))
	}
	extra := e.extraOrZero()
	return append(append(all, extra.delegated...), extra.pppoe.Routes...)
}

// droppedPrefixes returns the addresses and networks of an entry that next does not have. A nil next has none.
func (e *entry) droppedPrefixes(next *entry) []netip.Prefix {
	if e.state == "" {
		return nil
	}
	over := e.state == Authenticated && next != nil && (next.state != Authenticated || next.user != e.user)
	if next == nil || next.key.MAC != e.key.MAC || over {
		return e.networks()
	}
	stay := next.networks()
	return slices.DeleteFunc(e.networks(), func(p netip.Prefix) bool { return slices.Contains(stay, p) })
}

// vacate returns nil if no connections may be left of the addresses and networks of a client's next session. Otherwise
// it returns a channel that is closed once they have ended: the caller then releases the client, waits, and begins
// again. A session that does not leave its connections to the next one ends first, with UserRequest. op must be held.
func (t *Table) vacate(c *client, next *entry) (<-chan struct{}, error) {
	networks := next.networks()
	left := func(p netip.Prefix) bool { return slices.ContainsFunc(networks, p.Overlaps) }
	if c.state != Authenticated || !slices.ContainsFunc(c.droppedPrefixes(next), left) {
		return t.cutter.Flush(networks...), nil
	}
	without := c.withoutSession()
	lapsed := &without
	if c.extraOrZero().pppoe.Session != 0 {
		lapsed = nil // Connect adds the client anew
	}
	if _, err := t.replaceEnded(c, lapsed, UserRequest, t.clock.now(), false); err != nil {
		return nil, err
	}
	if ending := t.cutter.Flush(networks...); ending != nil {
		return ending, nil
	}
	return closedChan, nil
}

// closedChan is a closed channel.
var closedChan = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// retryWhenFree calls try again until it no longer returns a channel to wait for. No lock is held while it waits.
func retryWhenFree(try func() (Session, <-chan struct{}, error)) (Session, error) {
	for {
		s, ending, err := try()
		if ending == nil {
			return s, err
		}
		<-ending
	}
}
