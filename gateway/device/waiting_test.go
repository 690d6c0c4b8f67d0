// Tests of devices that wait, and of what happens meanwhile.

package device

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestCountedIsAskedAgain: a server that limits a session's time or bytes is asked for each session, so that nobody
// has the limit twice from one answer.
func TestCountedIsAskedAgain(t *testing.T) {
	for _, limits := range []session.Limits{{SessionTimeout: time.Hour}, {TotalBytes: 1000}} {
		play(t, func(s scene) {
			s.source.limits = limits
			s.Seen(some)
			s.expect("first", session.Authenticated, 1)
			s.ends(session.IdleTimeout)
			s.Seen(some)
			s.expect("back", session.Authenticated, 1)
			s.source.says(session.ErrRejected)
			s.ends(session.LeaseReleased)
			s.Seen(some)
			s.expect("used up", session.PreAuth, 1)
		})
	}
}

// TestMoved: a device with another address keeps its session where the table ends the former one for it. The former
// address does not take the session back.
func TestMoved(t *testing.T) {
	play(t, func(s scene) {
		s.Seen(some)
		s.expect("first", session.Authenticated, 1)
		next := netip.MustParseAddr("10.1.0.6")
		s.table.mu.Lock()
		s.table.all[next] = session.Session{Key: session.Key{MAC: some, Addr: next}, State: session.Leased}
		s.table.mu.Unlock()
		s.table.admits = func(netip.Addr) { s.ends(session.UserRequest) } // by Table.replaces
		s.Seen(some)
		state := func(what string, want session.State) {
			t.Helper()
			synctest.Wait()
			if got := s.table.ClientsOf(some)[1].State; got != want {
				t.Errorf("%s: the new address is %s, want %s", what, got, want)
			}
		}
		state("moved", session.Authenticated)
		s.expect("moved", session.PreAuth, 0)
		s.table.set(next, session.PreAuth)
		s.Seen(some)
		state("back", session.Authenticated)
		s.expect("back", session.PreAuth, 0)
		time.Sleep(time.Hour + sweepEvery)
		state("asked again", session.Authenticated)
		s.expect("asked again", session.PreAuth, 1)
	})
}

// gated is a Source that answers once it is open.
type gated struct {
	oracle
	open chan struct{}
}

func (g *gated) Ask(ctx context.Context, c session.Credentials) (session.Login, error) {
	<-g.open
	return g.oracle.Ask(ctx, c)
}

// TestResumedWhileAsked: a device whose session is taken up and ended while a server is asked about it.
func TestResumedWhileAsked(t *testing.T) {
	play(t, func(s scene) {
		server := &gated{open: make(chan struct{})}
		s.afar.sources = []Source{server}
		s.Seen(some)
		synctest.Wait()
		before := session.Session{Key: session.Key{MAC: some, Addr: s.addr}, Login: session.Login{Way: session.ByMAC}}
		s.Resume(before)
		s.Ended(before, session.AdminReset)
		close(server.open)
		s.expect("answered", session.Authenticated, 0)
	})
}

// TestChangedWhileAsked: a device that becomes known while a server is asked about it comes in although the server
// refuses it.
func TestChangedWhileAsked(t *testing.T) {
	play(t, func(s scene) {
		server := &gated{open: make(chan struct{})}
		s.afar.sources = []Source{server}
		server.says(session.ErrRejected)
		s.source.says(session.ErrRejected)
		s.here.sources = []Source{s.source}
		s.Seen(some)
		s.expect("asked", session.Leased, 1)
		s.source.says(nil)
		s.Recheck(func(datapath.MAC, session.Way) bool { return true })
		close(server.open)
		s.expect("changed", session.Authenticated, 1)
	})
}

// away is a server that answers nothing.
type away struct{ oracle }

func (a *away) Ask(ctx context.Context, c session.Credentials) (session.Login, error) {
	a.oracle.Ask(ctx, c)
	time.Sleep(8 * time.Second)
	return session.Login{}, errors.New("no server")
}

// TestServersAway: while no server answers, devices that this machine knows come in at once, and a device that is
// inside is asked about at ever longer times.
func TestServersAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const strangers = 10 * atOnce
		listed, inside := datapath.MAC{2, 1}, datapath.MAC{2, 2}
		table := &clients{all: map[netip.Addr]session.Session{}}
		var all []datapath.MAC
		for i := range strangers {
			all = append(all, datapath.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)})
		}
		for i, mac := range append(all, listed) {
			addr := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
			table.all[addr] = session.Session{Key: session.Key{MAC: mac, Addr: addr}, State: session.Leased}
		}
		server := &away{}
		d := New(Config{Sources: []Source{only(listed)}, Servers: server, Table: table, Keep: time.Hour,
			Log: slog.New(slog.DiscardHandler)})
		for _, mac := range append(all, listed) {
			d.Seen(mac)
		}
		synctest.Wait() // no time passes
		if got := table.ClientsOf(listed)[0].State; got != session.Authenticated {
			t.Errorf("the listed device is %s while servers are asked about others", got)
		}
		d.Close()

		addr := netip.MustParseAddr("10.2.0.1")
		s := session.Session{Key: session.Key{MAC: inside, Addr: addr}, State: session.Authenticated,
			Login: session.Login{Way: session.ByMAC}}
		table = &clients{all: map[netip.Addr]session.Session{addr: s}}
		server = &away{}
		d = New(Config{Servers: server, Table: table, Keep: time.Second, Log: slog.New(slog.DiscardHandler)})
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		d.Resume(s)
		time.Sleep(time.Hour)
		if n := server.count(); n < 50 || n > 60 {
			t.Errorf("servers that are away are asked %d times an hour about a device that is inside", n)
		}
		end()
		running.Wait()
		d.Close()
	})
}

// only is a Source that lets one device in.
type only datapath.MAC

func (o only) Ask(_ context.Context, c session.Credentials) (session.Login, error) {
	if c.Key.MAC != datapath.MAC(o) {
		return session.Login{}, session.ErrRejected
	}
	return session.Login{Way: session.ByList}, nil
}
