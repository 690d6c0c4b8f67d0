// Tests of how sessions and leases end, and for which cause. memory_test.go has the helpers: newMemory is a data path
// in memory; key(mac, host) is MAC 02:00:00:00:00:mac at 10.1.0.host; lease gives a client a lease, admit logs it in.
// inTime and pass (timers_test.go) run a test with a fake clock and let time go by.

package session_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/logtest"
)

// TestLastEndingIsKept: a client's entry tells how its last session ended, until the next one begins.
func TestLastEndingIsKept(t *testing.T) {
	for name, tt := range map[string]struct {
		limits session.Limits
		end    func(*session.Table, *memory, session.Key)
		want   session.Ending
	}{
		"time": {session.Limits{SessionTimeout: time.Minute}, nil, session.Ending{Cause: session.SessionTimeout}},
		"idle": {session.Limits{IdleTimeout: time.Minute}, nil, session.Ending{Cause: session.IdleTimeout}},
		"up quota": {session.Limits{UpBytes: 500, DownBytes: 1e6, TotalBytes: 1e6}, nil, session.Ending{
			Cause: session.Quota, Quota: session.UpQuota}},
		"down quota": {
			session.Limits{UpBytes: 1e6, DownBytes: 500}, nil, session.Ending{Cause: session.Quota, Quota: session.DownQuota}},
		"total quota": {
			session.Limits{UpBytes: 1e6, TotalBytes: 500}, nil, session.Ending{Cause: session.Quota, Quota: session.TotalQuota}},
		"operator": {session.Limits{}, func(table *session.Table, _ *memory, k session.Key) {
			table.End(k.Addr, session.AdminReset)
		}, session.Ending{Cause: session.AdminReset}},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, table *session.Table, dp *memory, k session.Key) {
				admit(t, table, k, tt.limits)
				dp.send(k, 10, 100)
				if tt.end != nil {
					tt.end(table, dp, k)
				}
				pass(2 * time.Minute)
				if s := get(t, table, k); s.State != session.PreAuth || s.LastEnding != tt.want {
					t.Errorf("%s, ended by %+v, want %+v", s.State, s.LastEnding, tt.want)
				}
				if err := table.Lease(k, "tablet", time.Now().Add(time.Hour)); err != nil ||
					get(t, table, k).LastEnding != tt.want {
					t.Errorf("after a renewal it ended by %+v: %v", get(t, table, k).LastEnding, err)
				}
				if s := admit(t, table, k, session.Limits{}); s.LastEnding != (session.Ending{}) {
					t.Errorf("in the next session: %+v", s.LastEnding)
				}
			})
		})
	}
}

// TestEndsAreLogged: the table logs each session's end once it is on the disk.
func TestEndsAreLogged(t *testing.T) {
	var logs logtest.Log
	table, err := session.Open(filepath.Join(t.TempDir(), "s.db"), newMemory(), logs.Logger())
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	k := key(1, 5)
	lease(t, table, k)
	admit(t, table, k, session.Limits{})
	if _, err := table.End(k.Addr, session.AdminReset); err != nil {
		t.Fatal(err)
	}
	if log := logs.String(); strings.Count(log, "session ended") != 1 || !strings.Contains(log, "user=ada") ||
		!strings.Contains(log, "cause="+string(session.AdminReset)) {
		t.Errorf("the log is %s", log)
	}
}

// TestCausesAreDocumented: the table of causes in the docs has a row for each cause.
func TestCausesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/gateway-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, cause := range session.CauseNames()[1:] {
		if !strings.Contains(string(text), "\n| `"+cause+"` | ") {
			t.Errorf("the manual lacks %s", cause)
		}
	}
}

// TestEndsOfLeases: the cause of a session that ends with its lease tells a released lease from an expired one, whether
// a timer or Forget ends it.
func TestEndsOfLeases(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration // until Forget
		want  session.Cause
	}{
		"released": {time.Minute, session.LeaseReleased},
		"ran out":  {time.Hour, session.LeaseEnded},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, table *session.Table, _ *memory, k session.Key) {
				if err := table.Lease(k, "phone", time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
				admit(t, table, k, session.Limits{})
				time.Sleep(tt.after)
				if err := table.Forget(k); err != nil {
					t.Fatal(err)
				}
				pass(time.Minute)
				if e := lastEvent(t, table, k); e.Cause != tt.want {
					t.Errorf("ended by %s, want %s", e.Cause, tt.want)
				}
			})
		})
	}
}
