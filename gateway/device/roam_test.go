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

// elsewhere is a Roaming that has a device's session, or not.
type elsewhere struct {
	oracle
	there bool // guarded by mu
}

func (e *elsewhere) Elsewhere(datapath.MAC) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.there
}

func (e *elsewhere) Ask(ctx context.Context, c session.Credentials) (session.Login, error) {
	login, err := e.oracle.Ask(ctx, c)
	login.User, login.Way = "roamer", ""
	return login, err
}

func (e *elsewhere) set(there bool, err error) {
	e.says(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.there = there
}

// TestRoam: a device that is seen takes its session over, although a source said no before, or somebody had logged it
// out: it has logged in elsewhere since. Asking about it again by the clock takes nothing: the device may not be here.
// Where the other gateway does not answer it is asked again a moment later. Long: the steps of one run.
func TestRoam(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr := netip.MustParseAddr("10.1.0.5")
		table := &clients{all: map[netip.Addr]session.Session{
			addr: {Key: session.Key{MAC: some, Addr: addr}, State: session.Leased}}}
		source, roaming := &oracle{err: session.ErrRejected}, &elsewhere{}
		d := New(Config{Sources: []Source{source}, Roaming: roaming, Table: table, Keep: time.Hour,
			Log: slog.New(slog.DiscardHandler)})
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		defer func() { end(); running.Wait(); d.Close() }()
		expect := func(what string, state session.State, asked int) {
			t.Helper()
			synctest.Wait()
			if s := table.ClientsOf(some)[0]; s.State != state {
				t.Errorf("%s: the device is %s, want %s", what, s.State, state)
			}
			if n := roaming.count(); n != asked {
				t.Errorf("%s: asked %d times, want %d", what, n, asked)
			}
		}
		d.Seen(some)
		expect("no session elsewhere", session.Leased, 0)
		roaming.set(true, nil)
		time.Sleep(3 * time.Hour)
		expect("it is asked about by the clock", session.Leased, 0)
		roaming.set(true, errors.New("no answer"))
		d.Seen(some)
		expect("the other gateway does not answer", session.Leased, 1)
		d.Seen(some)
		expect("at once again", session.Leased, 0)
		time.Sleep(2 * time.Second)
		roaming.set(true, nil)
		d.Seen(some)
		expect("it answers", session.Authenticated, 1)
		d.Hold(some)
		table.set(addr, session.PreAuth)
		roaming.set(false, nil)
		d.Seen(some)
		expect("logged out", session.PreAuth, 0)
		roaming.set(true, nil)
		d.Seen(some)
		expect("it has logged in elsewhere", session.Authenticated, 1)
	})
}
