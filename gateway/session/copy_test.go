// Tests of the table of a standby, which has the clients of another gateway. recordOf is what that one's store has.

package session_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// saved is how long after Save counts are surely in the store, by the fake clock.
const saved = 2 * time.Second

// recordOf returns the record of a client with its counts.
func recordOf(t testing.TB, table *session.Table, k session.Key) (record []byte) {
	t.Helper()
	must(t, table.Save(t.Context()))
	pass(saved)
	must(t, table.Records(func(r session.Record) error {
		if r.ID == datapath.IDOf(k.Addr) {
			record = r.Data
		}
		return nil
	}))
	if record == nil {
		t.Fatalf("no record of %s", k)
	}
	return record
}

// standby runs a test with a fake clock, with a client's session of an hour and 20,000 bytes, of which 6,000 are used,
// and with the table of a standby that has a copy. Its clock is ahead of the other one's by shift.
func standby(t *testing.T, shift time.Duration, test func(t *testing.T, table *session.Table, dp *memory,
	k session.Key, began session.Session)) {
	synctest.Test(t, func(t *testing.T) {
		dir, dp, k := t.TempDir(), newMemory(), key(1, 5)
		former := openTable(t, filepath.Join(dir, "former.db"), dp)
		lease(t, former, k)
		admit(t, former, k, session.Limits{SessionTimeout: time.Hour, TotalBytes: 20_000})
		dp.send(k, 3, 1000)
		began := get(t, former, k)
		own := newMemory()
		table := openTable(t, filepath.Join(dir, "own.db"), own)
		must(t, table.Copy(datapath.IDOf(k.Addr), recordOf(t, former, k), shift))
		test(t, table, own, k, began)
	})
}

// TestCopy: a standby's client passes with the other gateway's counts, and nothing of it ends or is reported until the
// timers run. Then it ends in its time, by this gateway's clock.
func TestCopy(t *testing.T) {
	for _, shift := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(fmt.Sprint(shift), func(t *testing.T) {
			standby(t, shift, func(t *testing.T, table *session.Table, dp *memory, k session.Key, began session.Session) {
				s := get(t, table, k)
				if s.ID != began.ID || s.User != "ada" || s.Counts != began.Counts || !s.Began.Equal(began.Began.Add(shift)) {
					t.Errorf("copied %+v %v of %+v %v", s.Counts, s.Began, began.Counts, began.Began)
				}
				if up, down := dp.send(k, 2, 1000); up != 2 || down != 2 {
					t.Errorf("of 2 packets %d and %d passed", up, down)
				}
				pass(time.Hour + shift - saved - time.Second)
				if s := get(t, table, k); s.State != session.Authenticated || s.UpBytes != 5000 || table.Pending() > 0 {
					t.Errorf("%+v with %d events", s, table.Pending())
				}
				table.TakeOver(time.Minute, time.Second)
				run(t, table)
				pass(2 * time.Second)
				if e := lastEvent(t, table, k); e.Cause != session.SessionTimeout || e.UpBytes != 5000 {
					t.Errorf("ended as %+v", e)
				}
			})
		})
	}
}

// TestCopyEndsLater: a standby's session whose time has passed or whose bytes are used ends when it takes over.
func TestCopyEndsLater(t *testing.T) {
	for cause, use := range map[session.Cause]func(*memory, session.Key){
		session.SessionTimeout: func(*memory, session.Key) { pass(2 * time.Hour) },
		session.Quota:          func(dp *memory, k session.Key) { dp.send(k, 8, 1000) },
	} {
		t.Run(string(cause), func(t *testing.T) {
			standby(t, 0, func(t *testing.T, table *session.Table, dp *memory, k session.Key, _ session.Session) {
				use(dp, k)
				synctest.Wait()
				if s := get(t, table, k); s.State != session.Authenticated || table.Pending() > 0 {
					t.Fatalf("before the takeover %+v with %d events", s, table.Pending())
				}
				table.TakeOver(time.Minute, time.Second)
				run(t, table)
				pass(time.Minute)
				if e := lastEvent(t, table, k); e.Cause != cause {
					t.Errorf("ended as %+v", e)
				}
			})
		})
	}
}

// TestDrop: a client that the other gateway no longer has is gone, without an event.
func TestDrop(t *testing.T) {
	standby(t, 0, func(t *testing.T, table *session.Table, dp *memory, k session.Key, _ session.Session) {
		for range 2 { // a missing one is no error
			must(t, table.Drop(datapath.IDOf(k.Addr)))
		}
		_, found := table.Get(k.Addr)
		if _, inPath := dp.client(k.Addr); found || inPath || table.Pending() > 0 {
			t.Errorf("in the table: %v, in the data path: %v, %d events", found, inPath, table.Pending())
		}
	})
}

// TestRenew: a session ends and another begins with the rest of its limits, once for each takeover.
func TestRenew(t *testing.T) {
	standby(t, 0, func(t *testing.T, table *session.Table, dp *memory, k session.Key, began session.Session) {
		pass(20*time.Minute - saved)
		before := time.Now()
		for range 2 {
			must(t, table.Renew(before, session.NASReboot))
		}
		s := get(t, table, k)
		if s.ID == began.ID || s.Counts != (session.Counts{}) || s.Limits.SessionTimeout != 40*time.Minute ||
			s.Limits.TotalBytes != 14_000 || !dp.admits(k) {
			t.Errorf("%+v, %+v in place of %+v", s.Counts, s.Limits, began.Counts)
		}
		events := drain(t, table)
		if len(events) != 2 || events[0].Kind != session.Ended || events[0].ID != began.ID ||
			events[0].Cause != session.NASReboot || events[0].UpBytes != 3000 || events[1].Kind != session.Started ||
			events[1].ID != s.ID {
			t.Errorf("%+v", events)
		}
	})
}

// BenchmarkTakeOver is of 100,000 sessions.
func BenchmarkTakeOver(b *testing.B) {
	table := openTable(b, filepath.Join(b.TempDir(), "s.db"), &countingPath{})
	for i := range crowd {
		lease(b, table, keyOf(i))
		admit(b, table, keyOf(i), session.Limits{Interim: time.Minute})
	}
	for b.Loop() {
		table.TakeOver(10*time.Second, 10*time.Second)
	}
}
