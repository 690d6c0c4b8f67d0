// Tests that a session goes on in the data path after the gateway restarts. newMemory is a data path in memory,
// key(mac, host) the key of MAC 02:00:00:00:00:mac at 10.1.0.host; openTable opens a table in a file; lease gives a
// client a lease, admit logs it in, get reads its session (memory_test.go).

package session_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestResume: with a data path whose counters end with the daemon, sessions go on with their counts and what is left of
// their quotas.
func TestResume(t *testing.T) {
	path, dp, k := filepath.Join(t.TempDir(), "sessions.db"), newMemory(), key(1, 10)
	table := openTable(t, path, dp)
	lease(t, table, k)
	began := admit(t, table, k, session.Limits{UpBytes: 10_000})
	dp.send(k, 3, 1000)
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}

	dp.restart()
	table, err := session.Resume(path, dp, discardLog)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if got := get(t, table, k); got.State != session.Authenticated || got.ID != began.ID || got.UpBytes != 3000 {
		t.Errorf("after a restart: %+v", got)
	}
	if c, _ := dp.client(k.Addr); !c.Admitted || c.Limits.UpBytes != 7000 {
		t.Errorf("the data path is told %+v, want 7000 bytes more", c)
	}
	dp.send(k, 1, 500)
	if got := get(t, table, k); got.UpBytes != 3500 || time.Since(got.Began) > time.Hour {
		t.Errorf("after more packets: %+v", got)
	}
}

// TestEndsAtStart: a session that must end when the table is opened is never admitted, and its end is accounted with
// its cause and counts. Others go on.
func TestEndsAtStart(t *testing.T) {
	path, dp, keys := filepath.Join(t.TempDir(), "sessions.db"), newMemory(), []session.Key{key(1, 10), key(2, 11)}
	table := openTable(t, path, dp)
	for _, k := range keys {
		lease(t, table, k)
		admit(t, table, k, session.Limits{})
		dp.send(k, 3, 1000)
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}

	dp.restart()
	dp.onSet = func(c datapath.Client) {
		if c.Admitted && c.MAC == keys[0].MAC {
			t.Errorf("the data path admits %v", c)
		}
	}
	table, err := session.OpenWith(path, dp, discardLog, session.Options{Resume: true,
		Ends: func(s session.Session) session.Cause {
			return map[datapath.MAC]session.Cause{keys[0].MAC: session.AdminReset}[s.MAC]
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if got := get(t, table, keys[0]); got.State != session.PreAuth || got.LastEnding.Cause != session.AdminReset {
		t.Errorf("the session that must end is %+v", got)
	}
	if got := get(t, table, keys[1]); got.State != session.Authenticated || got.UpBytes != 3000 {
		t.Errorf("the other session is %+v", got)
	}
	var ends []session.Event
	if err := table.Ends(func(e session.Event) { ends = append(ends, e) }); err != nil || len(ends) != 1 ||
		ends[0].Cause != session.AdminReset || ends[0].UpBytes != 3000 || time.Since(ends[0].At).Abs() > time.Hour {
		t.Errorf("ends %+v, %v", ends, err)
	}
}
