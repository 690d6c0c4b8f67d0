// Tests of timeouts, quotas and interim updates with a fake clock. memory_test.go has the helpers: newMemory is a data
// path in memory, whose send simulates packets; key(mac, host) is MAC 02:00:00:00:00:mac at 10.1.0.host; lease gives a
// client a lease, admit logs it in with limits, get reads its session, drain takes all pending events.

package session_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// run has the table's timers run until the test ends.
func run(t *testing.T, table *session.Table) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- table.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// pass advances time and waits until everything due is done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inTime runs a test with a fake clock, with a table whose timers run and a client that has a lease.
func inTime(t *testing.T, test func(t *testing.T, table *session.Table, dp *memory, k session.Key)) {
	synctest.Test(t, func(t *testing.T) {
		dp := newMemory()
		table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
		run(t, table)
		lease(t, table, key(1, 5))
		test(t, table, dp, key(1, 5))
	})
}

// lastEvent checks that the session has ended, and returns its end.
func lastEvent(t *testing.T, table *session.Table, k session.Key) session.Event {
	t.Helper()
	if s, found := table.Get(k.Addr); found && s.State != session.PreAuth {
		t.Errorf("the client is %s", s.State)
	}
	events := drain(t, table)
	if len(events) == 0 || events[len(events)-1].Kind != session.Ended {
		t.Fatalf("the last of %v is no end", kinds(events))
	}
	return events[len(events)-1]
}

func TestSessionTimeout(t *testing.T) {
	inTime(t, func(t *testing.T, table *session.Table, dp *memory, k session.Key) {
		s := admit(t, table, k, session.Limits{SessionTimeout: 90 * time.Minute})
		end := s.Began.Add(90 * time.Minute)
		if c, _ := dp.client(k.Addr); !c.Until.Equal(end) {
			t.Errorf("the data path admits until %s, want %s", c.Until, end)
		}
		pass(90*time.Minute - time.Second)
		if s := get(t, table, k); s.State != session.Authenticated {
			t.Fatalf("%s a second too early", s.State)
		}
		pass(1100 * time.Millisecond)
		if e := lastEvent(t, table, k); e.Cause != session.SessionTimeout || !e.At.Equal(end) {
			t.Errorf("ended by %s at %s, want session-timeout at %s", e.Cause, e.At, end)
		}
	})
}

func TestIdleTimeout(t *testing.T) {
	inTime(t, func(t *testing.T, table *session.Table, dp *memory, k session.Key) {
		admit(t, table, k, session.Limits{IdleTimeout: 10 * time.Minute})
		pass(9 * time.Minute)
		dp.send(k, 1, 100)
		pass(9 * time.Minute)
		s := get(t, table, k)
		if s.State != session.Authenticated || time.Since(s.Seen) != 9*time.Minute {
			t.Fatalf("%s, last seen %s ago", s.State, time.Since(s.Seen))
		}
		pass(2 * time.Minute)
		if e := lastEvent(t, table, k); e.Cause != session.IdleTimeout ||
			e.At.Sub(e.Seen).Round(time.Second) != 10*time.Minute {
			t.Errorf("ended by %s %s after the last packet", e.Cause, e.At.Sub(e.Seen))
		}
	})
}

func TestQuotas(t *testing.T) {
	for name, limits := range map[string]session.Limits{
		"up": {UpBytes: 1e6}, "down": {DownBytes: 1e6}, "total": {TotalBytes: 2e6},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, table *session.Table, dp *memory, k session.Key) {
				dp.send(k, 10, 1000)
				admit(t, table, k, limits)
				pass(20 * time.Second)
				dp.send(k, 500, 1000)
				pass(20 * time.Second)
				if s := get(t, table, k); s.State != session.Authenticated {
					t.Fatal("ended when half was used up")
				}
				dp.send(k, 600, 1000)
				pass(10 * time.Second)
				e := lastEvent(t, table, k)
				used := map[string]uint64{"up": e.UpBytes, "down": e.DownBytes, "total": (e.UpBytes + e.DownBytes) / 2}[name]
				if e.Cause != session.Quota || used != 1e6 {
					t.Errorf("ended by %s after %d bytes, want 1000000", e.Cause, used)
				}
			})
		})
	}
}

func TestInterimUpdates(t *testing.T) {
	inTime(t, func(t *testing.T, table *session.Table, dp *memory, k session.Key) {
		begun := admit(t, table, k, session.Limits{Interim: 5 * time.Minute})
		for range 3 {
			dp.send(k, 7, 100)
			pass(5 * time.Minute)
		}
		pass(time.Minute)
		if _, err := table.End(k.Addr, session.AdminReset); err != nil {
			t.Fatal(err)
		}
		events := drain(t, table)
		want := []session.Kind{session.Started, session.Updated, session.Updated, session.Updated, session.Ended}
		if !slices.Equal(kinds(events), want) {
			t.Fatalf("events %v, want %v", kinds(events), want)
		}
		for i, e := range events[:4] {
			after := e.At.Sub(begun.Began).Round(time.Second)
			if after != time.Duration(i)*5*time.Minute || e.UpBytes != uint64(i)*700 {
				t.Errorf("update %d: %s after the beginning, %d bytes", i, after, e.UpBytes)
			}
		}
	})
}

func TestLeaseRunsOut(t *testing.T) {
	inTime(t, func(t *testing.T, table *session.Table, dp *memory, k session.Key) {
		extend := func(d time.Duration) {
			if err := table.Lease(k, "phone", time.Now().Add(d)); err != nil {
				t.Fatal(err)
			}
		}
		extend(time.Hour)
		admit(t, table, k, session.Limits{})
		pass(59 * time.Minute)
		extend(time.Hour)
		pass(59 * time.Minute)
		get(t, table, k)
		pass(2 * time.Minute)
		if e := lastEvent(t, table, k); e.Cause != session.LeaseEnded {
			t.Errorf("ended by %s", e.Cause)
		}
		if _, found := table.Get(k.Addr); found {
			t.Error("the client is still there")
		}
		if _, found := dp.client(k.Addr); found {
			t.Error("the data path still has the client")
		}
	})
}

// TestCountsAreKeptEveryMinute: when the machine dies, a minute of counts is lost at most.
func TestCountsAreKeptEveryMinute(t *testing.T) {
	inTime(t, func(t *testing.T, table *session.Table, dp *memory, k session.Key) {
		admit(t, table, k, session.Limits{})
		dp.send(k, 4, 100)
		pass(62 * time.Second)
		kept, err := table.OnDisk()
		if err != nil || len(kept) != 1 || kept[0].UpBytes != 400 {
			t.Errorf("on the disk: %+v, %v", kept, err)
		}
		before, err := table.Transactions()
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		if after, err := table.Transactions(); err != nil || after != before {
			t.Errorf("%d transactions for an hour without packets (%v)", after-before, err)
		}
	})
}

func TestTimersTryAgain(t *testing.T) {
	inTime(t, func(t *testing.T, table *session.Table, dp *memory, k session.Key) {
		admit(t, table, k, session.Limits{SessionTimeout: time.Minute})
		dp.refuseWith(syscall.EIO)
		pass(2 * time.Minute)
		if s := get(t, table, k); s.State != session.Authenticated || dp.admits(k) {
			t.Errorf("%s, admitted %v, while the data path cannot be told", s.State, dp.admits(k))
		}
		dp.refuseWith(nil)
		pass(6 * time.Second)
		if e := lastEvent(t, table, k); e.Cause != session.SessionTimeout ||
			e.At.Sub(e.Began).Round(time.Second) != time.Minute {
			t.Errorf("ended by %s after %s", e.Cause, e.At.Sub(e.Began))
		}
	})
}

// TestCountersBeginAnew: when the data path's counters restart, a session keeps its counts and its quota.
func TestCountersBeginAnew(t *testing.T) {
	inTime(t, func(t *testing.T, table *session.Table, dp *memory, k session.Key) {
		admit(t, table, k, session.Limits{UpBytes: 5000})
		dp.send(k, 3, 1000)
		pass(15 * time.Second)
		dp.restart()
		pass(15 * time.Second) // the table notices, and sets the client again
		dp.send(k, 10, 1000)
		if s := get(t, table, k); s.UpBytes != 5000 {
			t.Errorf("%d bytes passed, want 5000", s.UpBytes)
		}
		pass(10 * time.Second)
		if e := lastEvent(t, table, k); e.Cause != session.Quota || e.UpBytes != 5000 {
			t.Errorf("ended by %s after %d bytes", e.Cause, e.UpBytes)
		}
	})
}

// TestTimersGoOnAfterRestart: timers that expired while no daemon ran act when the next one starts. Long: the steps of
// one run, each of which needs the state that the one before left.
func TestTimersGoOnAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dp, path := newMemory(), filepath.Join(t.TempDir(), "s.db")
		table := openTable(t, path, dp)
		short, long, gone := key(1, 5), key(2, 6), key(3, 7)
		for _, k := range []session.Key{short, long} {
			lease(t, table, k)
		}
		if err := table.Lease(gone, "", time.Now().Add(30*time.Minute)); err != nil {
			t.Fatal(err)
		}
		began := admit(t, table, short, session.Limits{SessionTimeout: time.Hour}).Began
		admit(t, table, long, session.Limits{SessionTimeout: 3 * time.Hour, Interim: 40 * time.Minute})
		admit(t, table, gone, session.Limits{})
		if err := table.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		table = openTable(t, path, dp)
		if dp.admits(short) || dp.admits(gone) || !dp.admits(long) {
			t.Errorf("after the restart admitted: %v, %v and %v, want only the last", dp.admits(short), dp.admits(gone),
				dp.admits(long))
		}
		run(t, table)
		pass(time.Second)
		if _, found := table.Get(gone.Addr); found {
			t.Error("a client is there whose lease ran out meanwhile")
		}
		var ends []session.Event
		for _, e := range drain(t, table) {
			if e.Kind == session.Ended {
				ends = append(ends, e)
			}
		}
		slices.SortFunc(ends, func(a, b session.Event) int { return a.Addr.Compare(b.Addr) })
		if len(ends) != 2 || ends[0].Cause != session.SessionTimeout || ends[1].Cause != session.LeaseEnded {
			t.Fatalf("ends %+v", ends)
		}
		if offset := ends[0].At.Sub(began).Round(time.Millisecond); offset != time.Hour {
			t.Errorf("the short session lasted %s", offset)
		}
		pass(40 * time.Minute)
		if got := drain(t, table); len(got) != 1 || got[0].Kind != session.Updated {
			t.Errorf("events %v, want the update 160 minutes after the beginning", kinds(got))
		}
		pass(20 * time.Minute)
		if e := lastEvent(t, table, long); e.Cause != session.SessionTimeout {
			t.Errorf("the long session ended by %s", e.Cause)
		}
	})
}

// TestNextWaits: Next waits for events and its context, and skips accounted events.
func TestNextWaits(t *testing.T) {
	inTime(t, func(t *testing.T, table *session.Table, _ *memory, k session.Key) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if e, err := table.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Next = %+v, %v", e, err)
		}
		got := make(chan session.Event)
		go func() {
			e, _ := table.Next(t.Context())
			got <- e
		}()
		synctest.Wait()
		id := admit(t, table, k, session.Limits{}).ID
		if e := <-got; e.Kind != session.Started || e.ID != id {
			t.Errorf("Next = %+v", e)
		}
		again, err := table.Next(t.Context())
		if err != nil || again.ID != id {
			t.Errorf("what is not done: %+v, %v", again, err)
		}
		if err := errors.Join(table.Done(again), table.Done(again)); err != nil {
			t.Error(err)
		}
		pass(2 * time.Second)
		if err := table.Done(again); err != nil || table.Pending() != 0 {
			t.Errorf("%d events are pending (%v)", table.Pending(), err)
		}
		if err := table.Done(session.Event{}); err == nil {
			t.Error("an event from nowhere was done")
		}
	})
}

// TestBounds: when nobody takes events, the table's size stays bounded.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
		table.Bound(2, 3, 5)
		run(t, table)
		a, b := key(1, 5), key(2, 6)
		lease(t, table, a)
		lease(t, table, b)
		if err := table.Lease(key(3, 7), "", time.Time{}); !errors.Is(err, session.ErrFull) {
			t.Errorf("a third client: %v", err)
		}
		admit(t, table, a, session.Limits{Interim: time.Minute})
		pass(time.Hour)
		if n := table.Pending(); n != 3 {
			t.Errorf("%d events after an hour without accounting, want 3", n)
		}
		admit(t, table, a, session.Limits{}) // the 4th and the 5th
		if _, err := table.Admit(b.Addr, session.Login{}); !errors.Is(err, session.ErrBehind) {
			t.Errorf("admitted 5 events behind: %v", err)
		}
		if _, err := table.End(a.Addr, session.AdminReset); err != nil {
			t.Errorf("an end was refused: %v", err)
		}
		want := []session.Kind{
			session.Started, session.Updated, session.Updated, session.Ended, session.Started, session.Ended}
		if got := kinds(drain(t, table)); !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		admit(t, table, b, session.Limits{})
	})
}
