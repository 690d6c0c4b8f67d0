// Tests of the outbox: the events that wait until accounting has confirmed them. inTime and pass (timers_test.go) run a
// test with a fake clock and let time go by. memory_test.go has the other helpers: newMemory is a data path in memory;
// keyOf(i) is the key of client i; lease gives a client a lease, admit logs it in.

package session_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// accounting takes a table's events as an accounting server that never confirms the events for which deaf returns true.
type accounting struct {
	*testing.T
	table     *session.Table
	deaf      func(session.Event) bool
	confirmed []session.Event // confirmed, in order
	attempts  map[string]int  // failed, by session
	setAside  []string        // sessions, in the order in which they were set aside
}

// serve takes all events whose time has come: first those that were never tried.
func (a *accounting) serve(again bool) {
	a.Helper()
	for {
		ctx, stop := context.WithTimeout(a.Context(), time.Millisecond)
		e, err := a.table.Take(ctx, again)
		stop()
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			a.Fatal(err)
		}
		time.Sleep(time.Millisecond) // the server takes a while
		switch {
		case !a.deaf(e):
			if err := a.table.Done(e); err != nil {
				a.Fatal(err)
			}
			a.confirmed = append(a.confirmed, e)
		default:
			a.attempts[e.ID]++
			if a.table.Later(e) {
				a.setAside = append(a.setAside, e.ID)
			}
		}
	}
}

func (a *accounting) kindsOf(id string) (kinds []session.Kind) {
	for _, e := range a.confirmed {
		if e.ID == id {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

// TestUnconfirmedEventsDelayNoOther: the server never confirms the events of 100 sessions. Events of other sessions are
// handed out at once, each session's in order. The unconfirmed events are set aside: they are counted apart and tried
// again slowly. When the server confirms them at last, also after a restart, they come in order. Long: the steps of one
// run, each of which needs the state that the one before left.
func TestUnconfirmedEventsDelayNoOther(t *testing.T) {
	const stuck, all = 100, 102
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s.db")
		table := openTable(t, path, newMemory())
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- table.Run(ctx) }()
		a := &accounting{T: t, table: table, attempts: map[string]int{}}
		ids, bad := make([]string, all), map[string]bool{}
		for i := range all {
			lease(t, table, keyOf(i))
			ids[i] = admit(t, table, keyOf(i), session.Limits{Interim: time.Hour}).ID
			bad[ids[i]] = i < stuck
		}
		a.deaf = func(e session.Event) bool { return bad[e.ID] }
		end := func(i int) {
			if _, err := table.End(keyOf(i).Addr, session.UserRequest); err != nil {
				t.Fatal(err)
			}
		}
		end(stuck)
		a.serve(false)
		whole := []session.Kind{session.Started, session.Ended}
		if got := a.kindsOf(ids[stuck]); !slices.Equal(got, whole) {
			t.Errorf("the first of the others has events %v, want %v", got, whole)
		}
		if len(a.attempts) != stuck {
			t.Errorf("%d of %d were tried", len(a.attempts), stuck)
		}
		for i := 1; i < 20; i++ { // others come and go meanwhile
			pass(10 * time.Second)
			a.serve(true)
			lease(t, table, keyOf(stuck))
			id := admit(t, table, keyOf(stuck), session.Limits{}).ID
			end(stuck)
			if a.serve(false); !slices.Equal(a.kindsOf(id), whole) {
				t.Errorf("round %d: another's events are %v, want %v", i, a.kindsOf(id), whole)
			}
		}
		if len(a.setAside) != stuck || table.Aside() != stuck || table.Pending() != 0 {
			t.Errorf("%d set aside, %d now, and %d pending; want %d and 0", len(a.setAside), table.Aside(), table.Pending(),
				stuck)
		}
		clear(a.attempts)
		pass(9 * time.Minute)
		a.serve(true)
		if n := a.attempts[ids[0]]; n > 1 {
			t.Errorf("tried %d times in nine minutes although it was set aside", n)
		}
		pass(3 * time.Hour) // updates become due, of which the newest is kept
		a.serve(false)
		end(0)
		a.serve(false)
		if n := table.Aside(); n != 2*stuck {
			t.Errorf("%d events are set aside, want the start and the newest of each of %d", n, stuck)
		}
		stop()
		if err := errors.Join(<-ran, table.Close()); err != nil {
			t.Fatal(err)
		}
		a.table = openTable(t, path, newMemory())
		delete(bad, ids[0])
		a.serve(false)
		if got := a.kindsOf(ids[0]); !slices.Equal(got, whole) {
			t.Errorf("after a restart its events are %v, want %v", got, whole)
		}
	})
}

// TestServerOutageSetsNothingAside: when no event is confirmed, the server is away, and no event is set aside. Within
// half a minute of its return all are tried again.
func TestServerOutageSetsNothingAside(t *testing.T) {
	inTime(t, func(t *testing.T, table *session.Table, _ *memory, k session.Key) {
		away := true
		a := &accounting{T: t, table: table, attempts: map[string]int{}, deaf: func(session.Event) bool { return away }}
		id := admit(t, table, k, session.Limits{}).ID
		if _, err := table.End(k.Addr, session.UserRequest); err != nil {
			t.Fatal(err)
		}
		a.serve(false)
		for range 2 * 60 * 2 {
			pass(30 * time.Second)
			a.serve(true)
		}
		if a.attempts[id] < 100 || table.Aside() != 0 || table.Pending() != 2 {
			t.Errorf("%d attempts in two hours, %d set aside, %d pending", a.attempts[id], table.Aside(), table.Pending())
		}
		away = false
		pass(31 * time.Second)
		a.serve(true)
		a.serve(false)
		if got := a.kindsOf(id); !slices.Equal(got, []session.Kind{session.Started, session.Ended}) {
			t.Errorf("events %v", got)
		}
	})
}
