// Tests of when devices are asked about, by a clock of the tests' own.

package device

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// clients is a Table in memory.
type clients struct {
	mu  sync.Mutex
	all map[netip.Addr]session.Session // guarded by mu
	err error                          // of Admit

	admits func(netip.Addr) // called by Admit, unless nil
}

func (c *clients) ClientsOf(mac datapath.MAC) (list []session.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.all {
		if s.MAC == mac {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b session.Session) int { return a.Addr.Compare(b.Addr) })
	return list
}

func (c *clients) Admit(addr netip.Addr, login session.Login) (session.Session, error) {
	if c.admits != nil {
		c.admits(addr)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.all[addr]
	if c.err != nil {
		return s, c.err
	}
	if !known || login.For != s.Key {
		return s, session.ErrMoved
	}
	s.State, s.Login, s.ID, s.Seen = session.Authenticated, login, login.SessionID, time.Now()
	c.all[addr] = s
	return s, nil
}

func (c *clients) Kick(addr netip.Addr, id string, _ session.Cause) error {
	return c.set(addr, session.PreAuth)
}

func (c *clients) set(addr netip.Addr, state session.State) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.all[addr]
	s.State, s.Login = state, session.Login{}
	c.all[addr] = s
	return nil
}

// oracle is a Source that answers as it is told.
type oracle struct {
	limits session.Limits
	mu     sync.Mutex
	err    error // guarded by mu
	asked  int   // guarded by mu
}

func (o *oracle) Ask(_ context.Context, c session.Credentials) (session.Login, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	return session.Login{User: "tv", Way: session.ByMAC, Limits: o.limits}, o.err
}

func (o *oracle) says(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

// count returns how often it was asked since the last time.
func (o *oracle) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.asked
	o.asked = 0
	return n
}

// scene is a desk with one device, which has an IPv4 address.
type scene struct {
	t *testing.T
	*Desk
	table  *clients
	source *oracle
	addr   netip.Addr
}

// play runs a test with a desk whose answers hold for an hour.
func play(t *testing.T, test func(scene)) {
	synctest.Test(t, func(t *testing.T) {
		addr := netip.MustParseAddr("10.1.0.5")
		table := &clients{all: map[netip.Addr]session.Session{
			addr: {Key: session.Key{MAC: some, Addr: addr}, State: session.Leased}}}
		source := &oracle{}
		d := New(Config{Servers: source, Table: table, Keep: time.Hour, Log: slog.New(slog.DiscardHandler)})
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		test(scene{t, d, table, source, addr})
		end()
		running.Wait()
		d.Close()
	})
}

// expect checks the device's state and how often the source was asked since the last time.
func (s scene) expect(what string, state session.State, asked int) {
	s.t.Helper()
	synctest.Wait()
	if got := s.table.ClientsOf(some)[0].State; got != state {
		s.t.Errorf("%s: the device is %s, want %s", what, got, state)
	}
	if n := s.source.count(); n != asked {
		s.t.Errorf("%s: asked %d times, want %d", what, n, asked)
	}
}

// ends ends the device's session with a cause, as the table does.
func (s scene) ends(cause session.Cause) {
	s.Ended(s.table.ClientsOf(some)[0], cause)
	s.table.set(s.addr, session.PreAuth)
}

// TestYesIsKept: a device that comes back is let in without another question while the answer holds, with another
// address too, and is asked about later. A device inside is asked about again, and loses its session with a no.
func TestYesIsKept(t *testing.T) {
	play(t, func(s scene) {
		s.Seen(some)
		s.expect("first", session.Authenticated, 1)
		time.Sleep(time.Minute)
		s.ends(session.IdleTimeout)
		time.Sleep(time.Minute)
		s.expect("silent", session.PreAuth, 0)
		s.Seen(some)
		s.expect("back", session.Authenticated, 0)
		time.Sleep(time.Hour)
		s.expect("asked again", session.Authenticated, 1)
		s.ends(session.LeaseEnded)
		time.Sleep(2 * time.Hour)
		s.expect("gone for long", session.PreAuth, 0)
		s.Seen(some)
		s.expect("back later", session.Authenticated, 1)
		s.source.says(session.ErrRejected)
		time.Sleep(time.Hour + time.Second)
		s.expect("no longer known", session.PreAuth, 1)
		if got := s.Stats(); got != (Stats{Asked: 4, Admitted: 3, Refused: 1, Ended: 1}) {
			t.Errorf("counted: %+v", got)
		}
	})
}

// TestNoIsKept: a refused device is not asked about again before the answer no longer holds, then it is, also without
// being seen.
func TestNoIsKept(t *testing.T) {
	play(t, func(s scene) {
		s.source.says(session.ErrRejected)
		s.Seen(some)
		s.expect("first", session.Leased, 1)
		time.Sleep(59 * time.Minute)
		s.Seen(some)
		s.expect("again", session.Leased, 0)
		s.source.says(nil)
		time.Sleep(2 * time.Minute)
		s.expect("later", session.Authenticated, 1)
	})
}

// TestNobodyAnswers: a device stays outside while a source cannot decide, and is asked about again soon. A device
// inside keeps its session.
func TestNobodyAnswers(t *testing.T) {
	play(t, func(s scene) {
		s.source.says(errors.New("no server"))
		s.Seen(some)
		s.Seen(some)
		s.expect("away", session.Leased, 1)
		time.Sleep(retryAfter + sweepEvery)
		s.expect("still away", session.Leased, 1)
		s.source.says(nil)
		time.Sleep(retryAfter + sweepEvery)
		s.expect("back", session.Authenticated, 1)
		s.source.says(errors.New("no server"))
		time.Sleep(time.Hour + sweepEvery)
		s.expect("away again", session.Authenticated, 1)
	})
}

// usedUp is the error of a day that is used up.
type usedUp struct {
	error
	again time.Time
}

func (u usedUp) Again() time.Time { return u.again }
func (u usedUp) Unwrap() error    { return u.error }

// overFor stands for usedUp with a time in a test's own clock.
type overFor time.Duration

func (overFor) Error() string { return "a day that is used up" }

// TestCannotBeAdmitted: a device that the sources let in and the table does not stays outside: for as long as an answer
// holds where its user has too many sessions, and shortly where the disk is full. Where a day is used up, it is until
// the next one begins.
func TestCannotBeAdmitted(t *testing.T) {
	for err, wait := range map[error]time.Duration{session.ErrSessions: time.Hour, errors.New("disk full"): retryAfter,
		session.Reject(""): time.Hour, overFor(17 * time.Hour): 17 * time.Hour} {
		play(t, func(s scene) {
			s.table.err = err
			if over, is := err.(overFor); is {
				s.table.err = usedUp{session.Reject(""), time.Now().Add(time.Duration(over))}
			}
			s.Seen(some)
			s.expect("first", session.Leased, 1)
			s.Seen(some)
			s.expect("seen again", session.Leased, 0)
			time.Sleep(wait - sweepEvery)
			s.Seen(some)
			s.expect("shortly before", session.Leased, 0)
			s.table.err = nil
			time.Sleep(2 * sweepEvery)
			s.Seen(some)
			s.expect("later", session.Authenticated, 1)
		})
	}
}

// TestAfterTheEnd: what becomes of a device depends on how its session ended.
func TestAfterTheEnd(t *testing.T) {
	for _, c := range []struct {
		name  string
		end   func(scene)
		soon  session.State // when it is seen again
		asked int
	}{
		{"time is over", func(s scene) { s.ends(session.SessionTimeout) }, session.Authenticated, 1},
		{"a server ended it", func(s scene) { s.ends(session.AdminReset) }, session.Authenticated, 1},
		{"bytes used up", func(s scene) { s.ends(session.Quota) }, session.PreAuth, 0},
		{"a person logged it out", func(s scene) { s.Hold(some); s.ends(session.UserRequest) }, session.PreAuth, 0},
		{"an operator logged it out", func(s scene) { s.Hold(some); s.ends(session.AdminReset) }, session.PreAuth, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, func(s scene) {
				s.Seen(some)
				s.expect("first", session.Authenticated, 1)
				c.end(s)
				time.Sleep(2 * sweepEvery)
				s.Seen(some)
				s.expect("soon", c.soon, c.asked)
				time.Sleep(time.Hour + sweepEvery)
				s.expect("when no answer holds", session.Authenticated, 1)
			})
		})
	}
}

// TestResumeAndRecheck: the session of a former daemon goes on without a question, until what a source says has
// changed.
func TestResumeAndRecheck(t *testing.T) {
	play(t, func(s scene) {
		s.table.Admit(s.addr, session.Login{For: session.Key{MAC: some, Addr: s.addr}, Way: session.ByMAC})
		s.Resume(s.table.ClientsOf(some)[0])
		time.Sleep(time.Minute)
		s.expect("resumed", session.Authenticated, 0)
		s.source.says(session.ErrRejected)
		s.Recheck(func(_ datapath.MAC, way session.Way) bool { return way == session.ByList })
		s.expect("another way", session.Authenticated, 0)
		s.Recheck(func(_ datapath.MAC, way session.Way) bool { return way == session.ByMAC })
		s.expect("changed", session.PreAuth, 1)
	})
}

// TestStrangersDoNotFillMemory: a flood of devices has a bounded number of answers kept and of questions waiting.
func TestStrangersDoNotFillMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := flood{}
		d := New(Config{Table: table, Keep: time.Hour, Log: slog.New(slog.DiscardHandler)})
		for i := range maxAnswers + 1000 {
			d.Seen(datapath.MAC{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)})
		}
		synctest.Wait()
		if n := len(d.answers); n > maxAnswers || len(d.here.queue) > 0 {
			t.Errorf("%d answers are kept, %d wait", n, len(d.here.queue))
		}
		d.Close()
	})
}

// flood is a Table of which every device is outside.
type flood struct{ Table }

func (flood) ClientsOf(mac datapath.MAC) []session.Session {
	return []session.Session{{Key: session.Key{MAC: mac}, State: session.Leased}}
}
