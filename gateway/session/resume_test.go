// Tests that a session goes on in the data path after the gateway restarts. newMemory is a data path in memory,
// key(mac, host) the key of MAC 02:00:00:00:00:mac at 10.1.0.host; openTable opens a table in a file; lease gives a
// client a lease, admit logs it in, get reads its session (memory_test.go).

package session_test

import (
	"path/filepath"
	"testing"
	"time"

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
