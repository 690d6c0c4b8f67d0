// How methods of the Table find a client, lock it (op), and make its next entry visible.

package session

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// clientAt returns the client that has an address, or nil. mu must be held.
func (t *Table) clientAt(addr netip.Addr) *client {
	if addr.Is4() {
		if c := t.clients[datapath.IDOf(addr)]; c != nil && c.key.Addr == addr {
			return c
		}
	}
	if c := t.byFurtherAddr[addr]; c != nil && slices.Contains(c.indexed(), addr) {
		return c // an address that is only reserved finds nobody
	}
	return t.delegated.holder(addr)
}

// lockClient returns the client of an address with its op locked, or nil. The caller must release the client.
func (t *Table) lockClient(addr netip.Addr) *client {
	return t.holdBy(func() *client { return t.clientAt(addr) })
}

// holdID is lockClient for a client by its identity.
func (t *Table) holdID(id datapath.ID) *client {
	return t.holdBy(func() *client { return t.clients[id] })
}

// holdBy is lockClient for the client that find returns. find is called with mu held.
func (t *Table) holdBy(find func() *client) *client {
	for {
		t.mu.Lock()
		c := find()
		t.mu.Unlock()
		if c == nil {
			return nil
		}
		c.op.Lock()
		if !c.removed {
			return c
		}
		c.op.Unlock() // it was removed meanwhile: look again
	}
}

// holdOrAdd is lockClient for the address by which a client is known. Where there is no client yet it adds an empty
// one, which others do not see, and which release removes if it is still empty.
func (t *Table) holdOrAdd(addr netip.Addr) (*client, error) {
	id := datapath.IDOf(addr)
	if id == 0 {
		return nil, fmt.Errorf("%v: %w", addr, ErrFirst)
	}
	return t.holdOrAddID(id, addr)
}

// holdOrAddID is holdOrAdd for a client with an identity, whose first address is addr.
func (t *Table) holdOrAddID(id datapath.ID, addr netip.Addr) (*client, error) {
	for {
		if c := t.holdID(id); c != nil {
			return c, nil
		}
		t.mu.Lock()
		if t.clients[id] != nil {
			t.mu.Unlock() // another goroutine added it first
			continue
		}
		defer t.mu.Unlock()
		if len(t.clients) >= t.bounds.clients {
			return nil, ErrFull
		}
		c := &client{identity: id}
		c.key.Addr = addr
		c.op.Lock()
		t.clients[id] = c
		t.order.add(id)
		if n, numbered := id.Number(); numbered {
			t.numbers.taken(n)
		}
		return c, nil
	}
}

func (t *Table) release(c *client) {
	if c.state == "" && !c.removed {
		t.remove(c)
	}
	c.op.Unlock()
}

// publish makes next the visible entry of a client. op must be held.
func (t *Table) publish(c *client, next entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.index(c, next.indexed())
	t.delegated.replace(c, c.extraOrZero().delegated, next.extraOrZero().delegated)
	t.unreserve(c)
	t.tally(c, &next)
	c.entry = next
	t.schedule(c, c.nextDue())
}

// remove removes a client from the table. op must be held.
func (t *Table) remove(c *client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.index(c, nil)
	t.delegated.replace(c, c.extraOrZero().delegated, nil)
	delete(t.clients, c.identity)
	t.order.remove(c.identity)
	if n, numbered := c.identity.Number(); numbered {
		t.numbers.giveBack(n)
	}
	t.tally(c, &entry{})
	c.removed = true
	t.dues.Remove(c)
}

// indexed returns the addresses by which index has the client found: all but an IPv4 address that is its identity.
func (e *entry) indexed() []netip.Addr {
	if e.only6() {
		return e.addrs()
	}
	return e.extraOrZero().furtherAddrs
}

// index makes clientAt find a client by more, and no longer by other addresses that it had. mu must be held.
func (t *Table) index(c *client, more []netip.Addr) {
	for _, addr := range c.indexed() {
		if t.byFurtherAddr[addr] == c { // otherwise another client has the address by now
			delete(t.byFurtherAddr, addr)
		}
	}
	for _, addr := range more {
		t.byFurtherAddr[addr] = c
	}
}

// tally updates the counts of clients by state, by user and by MAC address, and the list of the MAC address, for a
// client that changes to now. Zero values are not counted. mu must be held.
func (t *Table) tally(c *client, now *entry) {
	recount(t.states, c.state, now.state)
	if c.user != now.user {
		recount(t.users, FoldUser(c.user), FoldUser(now.user))
	}
	t.macs.put(c, now.key.MAC)
}

// recount subtracts one from counts[before] and adds one to counts[now]. The zero value has no count.
func recount[K comparable](counts map[K]int, before, now K) {
	var none K
	if before != none {
		if counts[before]--; counts[before] == 0 {
			delete(counts, before)
		}
	}
	if now != none {
		counts[now]++
	}
}

// reserve counts the session that a login is about to begin, until publish or unreserve, unless the user has as many as
// allowed. The session that it replaces does not count. mac is the client's; c's op must be held.
func (t *Table) reserve(c *client, mac datapath.MAC, login Login) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	user := FoldUser(login.User)
	others := t.users[user] + t.othersOf(mac, login)
	if user != "" && SameUser(c.user, user) {
		others--
	}
	if login.Sessions > 0 && others >= login.Sessions {
		return false
	}
	t.loggingIn[c] = user
	recount(t.users, "", user)
	return true
}

// unreserve ends a client's reservation, if there is one. mu must be held.
func (t *Table) unreserve(c *client) {
	recount(t.users, t.loggingIn[c], "")
	delete(t.loggingIn, c)
}

// FoldUser returns a user's name as names are compared everywhere: servers that ignore case accept a name in
// every spelling.
func FoldUser(user string) string { return strings.ToLower(user) }

// SameUser reports whether two names are one user's.
func SameUser(a, b string) bool { return FoldUser(a) == FoldUser(b) }

// States returns the number of clients in each state that has any.
func (t *Table) States() map[State]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.states)
}

// What begins the users of sessions that a voucher or a guest's room admitted.
const (
	VoucherUsers = "voucher:"
	RoomUsers    = "room:"
)

// Reserved reports whether a user who logs in by name would count as a voucher's or a room's.
func Reserved(user string) bool {
	user = FoldUser(user)
	return strings.HasPrefix(user, VoucherUsers) || strings.HasPrefix(user, RoomUsers)
}
