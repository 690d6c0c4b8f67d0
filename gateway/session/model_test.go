// The model of TestTableMatchesModel (property_test.go): it does what a table must do, in the simplest way.

package session_test

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// model is the simplest correct table: it checks every client every second.
type model struct {
	now     time.Time
	clients map[netip.Addr]*modelClient
	events  map[string][]expected // events not yet accounted, by session id
}

// modelClient is a client of the model.
type modelClient struct {
	session.Session
	shownAt time.Time
	tell    time.Time // when servers are told of changed addresses; zero: not
}

// expected is an event that the table must report. It is optional if a crash may have lost it. Its counts are not
// checked (anyCounts) if they were last stored some time before its end.
type expected struct {
	session.Event
	optional, anyCounts bool
}

func newModel() *model {
	return &model{now: time.Now(), clients: map[netip.Addr]*modelClient{}, events: map[string][]expected{}}
}

func (m *model) expect(c *modelClient, e session.Event) {
	e.Session = c.Session
	m.events[c.ID] = append(m.events[c.ID], expected{Event: e})
}

// endSession ends a client's session, if it has one.
func (m *model) endSession(c *modelClient, cause session.Cause, instant time.Time) {
	if c.State == session.Authenticated {
		m.expect(c, session.Event{Kind: session.Ended, Cause: cause, At: instant})
		c.tell = time.Time{}
		c.Session = session.Session{
			Key: c.Key, FurtherAddrs: c.FurtherAddrs, State: session.PreAuth, Hostname: c.Hostname, LeasedAt: c.LeasedAt,
			LeaseEnd:   c.LeaseEnd,
			LastEnding: session.Ending{Cause: cause},
		}
	}
}

// endKeeping ends a client's session, and the client keeps its address, unless it has the address for the session only.
func (m *model) endKeeping(c *modelClient, cause session.Cause, instant time.Time) {
	if c.State == session.Authenticated && c.LeaseEnd.IsZero() && c.Addr.Is4() {
		delete(m.clients, c.Addr)
	}
	m.endSession(c, cause, instant)
}

func (m *model) lease(k session.Key, hostname string, end time.Time) {
	c := m.clients[k.Addr]
	if c == nil || c.MAC != k.MAC {
		if c != nil {
			m.endSession(c, session.NASRequest, m.now)
		}
		c = &modelClient{Session: session.Session{Key: k, State: session.Leased, LeasedAt: m.now}}
		m.clients[k.Addr] = c
	}
	c.Hostname, c.LeaseEnd = hostname, end
	if former := m.clients[addr6(k.MAC)]; former != nil { // without IPv4 so far
		moved := former.Session
		moved.Key, moved.Hostname, moved.LeasedAt, moved.LeaseEnd = c.Key, c.Hostname, c.LeasedAt, c.LeaseEnd
		moved.FurtherAddrs = []netip.Addr{former.Addr}
		c.Session, c.shownAt = moved, former.shownAt
		if moved.State == session.Authenticated && moved.Limits.Interim > 0 {
			c.tell = m.now.Add(time.Second)
		}
		delete(m.clients, former.Addr)
	}
}

// addr6 is the IPv6 address that a device has.
func addr6(mac datapath.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 15: mac[5]})
}

// at returns the client that has an address.
func (m *model) at(addr netip.Addr) *modelClient {
	for _, c := range m.clients {
		if c.Addr == addr || slices.Contains(c.FurtherAddrs, addr) {
			return c
		}
	}
	return nil
}

// enter reports whether a device without IPv4 becomes a client: it has none yet.
func (m *model) enter(k session.Key) bool {
	for _, c := range m.clients {
		if c.MAC == k.MAC {
			return false
		}
	}
	m.clients[k.Addr] = &modelClient{Session: session.Session{Key: k, State: session.Leased, LeasedAt: m.now}}
	return true
}

func (m *model) forget(k session.Key) {
	if c := m.clients[k.Addr]; c != nil && c.MAC == k.MAC {
		m.endSession(c, map[bool]session.Cause{true: session.LeaseReleased, false: session.LeaseEnded}[c.Addr.Is4()], m.now)
		delete(m.clients, k.Addr)
	}
}

func (m *model) shown(addr netip.Addr) {
	if c := m.at(addr); c != nil && c.State == session.Leased {
		c.State, c.shownAt = session.PreAuth, m.now
	}
}

func (m *model) admit(addr netip.Addr, login session.Login, id string) {
	c := m.at(addr)
	m.endSession(c, session.UserRequest, m.now)
	c.LastEnding = session.Ending{}
	c.State, c.Login, c.ID, c.Began, c.Seen = session.Authenticated, login, id, m.now, m.now
	m.expect(c, session.Event{Kind: session.Started, At: m.now})
}

// send simulates packets, and returns how many should pass.
func (m *model) send(k session.Key, packets, size uint64) uint64 {
	c := m.at(k.Addr)
	if c == nil || c.MAC != k.MAC || c.State != session.Authenticated {
		return 0
	}
	c.Seen = m.now
	c.UpBytes, c.UpPackets = c.UpBytes+packets*size, c.UpPackets+packets
	c.DownBytes, c.DownPackets = c.DownBytes+packets*size, c.DownPackets+packets
	return packets
}

// advance advances the model by whole seconds.
func (m *model) advance(d time.Duration) {
	for end := m.now.Add(d); m.now.Before(end); {
		m.now = m.now.Add(time.Second)
		for addr, c := range m.clients {
			if !c.LeaseEnd.IsZero() && !m.now.Before(c.LeaseEnd) {
				m.endSession(c, session.LeaseEnded, m.now)
				delete(m.clients, addr)
			} else if c.State == session.Authenticated {
				m.second(c)
			}
		}
	}
}

func (m *model) second(c *modelClient) {
	l := c.Limits
	switch age := m.now.Sub(c.Began); {
	case l.SessionTimeout > 0 && age >= l.SessionTimeout:
		m.endKeeping(c, session.SessionTimeout, c.Began.Add(l.SessionTimeout))
	case l.IdleTimeout > 0 && m.now.Sub(c.Seen) >= l.IdleTimeout:
		m.endKeeping(c, session.IdleTimeout, m.now)
	case l.Interim > 0 && age%l.Interim == 0 || m.now.Equal(c.tell):
		c.tell = time.Time{}
		m.expect(c, session.Event{Kind: session.Updated, At: m.now})
	}
}

// restart removes what a restart of the daemon does not keep.
func (m *model) restart() {
	for _, c := range m.clients {
		c.LastEnding, c.tell = session.Ending{}, time.Time{}
	}
}

// crash marks the events and counts of the last second that a crash may lose.
func (m *model) crash(reboot bool) {
	for _, events := range m.events {
		for i, e := range events {
			events[i].optional = e.optional || e.Kind == session.Updated && e.At.Equal(m.now)
		}
	}
	defer m.restart()
	if !reboot {
		return
	}
	for _, c := range m.clients {
		if id := c.ID; c.State == session.Authenticated {
			m.endKeeping(c, session.NASReboot, c.Seen)
			m.events[id][len(m.events[id])-1].anyCounts = true
		}
	}
}

// take removes an event from the expected ones of its session; expected ones before it must be optional.
func (m *model) take(e session.Event) (want expected, found bool) {
	for events := m.events[e.ID]; len(events) > 0; {
		want, events = events[0], events[1:]
		m.events[e.ID] = events
		if want.Kind == e.Kind && (want.At.Equal(e.At) || want.anyCounts) || !want.optional {
			return want, true
		}
	}
	return want, false
}

// left returns the number of events that must still be reported.
func (m *model) left() (n int) {
	for _, events := range m.events {
		for _, e := range events {
			if !e.optional {
				n++
			}
		}
	}
	return n
}

// noGreater reports whether no count is greater than in b.
func noGreater(a, b session.Counts) bool {
	return max(cmp.Compare(a.UpBytes, b.UpBytes), cmp.Compare(a.UpPackets, b.UpPackets),
		cmp.Compare(a.DownBytes, b.DownBytes), cmp.Compare(a.DownPackets, b.DownPackets)) <= 0
}
