// Tests of the number of sessions that one user may have. newMemory is a data path in memory, key(mac, host) the key of
// MAC 02:00:00:00:00:mac at 10.1.0.host, and admit logs a client in (memory_test.go).

package session_test

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestSessionsOfOneUser: a user has at most as many sessions at a time as the login allows, even when many devices log
// in at once. An ended session makes room. A client that logs in again replaces its own session. Long: the steps of one
// run, each of which needs the state that the one before left.
func TestSessionsOfOneUser(t *testing.T) {
	path, dp := filepath.Join(t.TempDir(), "sessions.db"), newMemory()
	table, err := session.Open(path, dp, discardLog)
	if err != nil {
		t.Fatal(err)
	}
	const devices, most = 12, 3
	for i := range devices {
		if err := table.Lease(key(byte(i+1), byte(i+10)), "", time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	admit := func(i int, user string, most int) error {
		_, err := table.Admit(key(byte(i+1), byte(i+10)).Addr, session.Login{User: user, Sessions: most})
		return err
	}
	var in atomic.Int64
	var all sync.WaitGroup
	for i := range devices {
		all.Go(func() {
			switch err := admit(i, "ann", most); {
			case err == nil:
				in.Add(1)
			case !errors.Is(err, session.ErrSessions):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := in.Load(); n != most {
		t.Fatalf("%d sessions of one user, want %d", n, most)
	}
	var inside, outside []int
	for i := range devices {
		if s, _ := table.Get(key(byte(i+1), byte(i+10)).Addr); s.State == session.Authenticated {
			inside = append(inside, i)
		} else {
			outside = append(outside, i)
		}
	}
	if len(inside) != most {
		t.Fatalf("%d sessions, want %d", len(inside), most)
	}
	if err := admit(outside[0], "ann", most); !errors.Is(err, session.ErrSessions) {
		t.Errorf("one more: %v, want ErrSessions", err)
	}
	if err := admit(outside[0], "ANN", most); !errors.Is(err, session.ErrSessions) {
		t.Errorf("one more, spelt otherwise: %v, want ErrSessions", err)
	}
	if err := admit(inside[0], "ann", most); err != nil {
		t.Errorf("the same device again: %v", err)
	}
	if err := admit(outside[0], "ben", most); err != nil {
		t.Errorf("another user: %v", err)
	}
	// The same device with another address: its oldest sessions make room.
	same := key(byte(inside[0]+1), 200)
	same.MAC = key(byte(inside[0]+1), byte(inside[0]+10)).MAC
	if err := table.Lease(same, "", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Admit(same.Addr, session.Login{User: "Ann", Sessions: most}); err != nil {
		t.Errorf("the same device with another address: %v", err)
	}
	if s, _ := table.Get(key(byte(inside[0]+1), byte(inside[0]+10)).Addr); s.State != session.PreAuth {
		t.Errorf("its former session is %s", s.State)
	}
	if _, err := table.Admit(same.Addr, session.Login{User: "ann", Sessions: 1}); !errors.Is(err, session.ErrSessions) {
		t.Errorf("the same device where others have more than it may: %v", err)
	}
	if _, err := table.End(same.Addr, session.UserRequest); err != nil {
		t.Fatal(err)
	}
	if err := admit(inside[0], "ann", most); err != nil {
		t.Fatal(err)
	}
	if err := admit(outside[1], "ann", 0); err != nil {
		t.Errorf("a login without a limit: %v", err)
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if table, err = session.Open(path, dp, discardLog); err != nil { // sessions of before the restart count
		t.Fatal(err)
	}
	defer table.Close()
	if err := admit(outside[2], "ann", most); !errors.Is(err, session.ErrSessions) {
		t.Errorf("after a restart: %v, want ErrSessions", err)
	}
	for _, i := range append(inside, outside[1]) {
		if _, err := table.End(key(byte(i+1), byte(i+10)).Addr, session.UserRequest); err != nil {
			t.Fatal(err)
		}
	}
	if err := admit(outside[2], "ann", most); err != nil {
		t.Errorf("after the others ended: %v", err)
	}
}

// TestRelease: of many that ask for a session at the same time one gets it, with its user.
func TestRelease(t *testing.T) {
	dp := newMemory()
	table, err := session.Open(filepath.Join(t.TempDir(), "sessions.db"), dp, discardLog)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	client := key(1, 10)
	if err := table.Lease(client, "", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	s, err := table.Admit(client.Addr, session.Login{User: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	var got atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			ended, err := table.Release(client.Addr, s.ID, session.NASRequest)
			switch {
			case err == nil && ended.User == "ann" && ended.ID == s.ID:
				got.Add(1)
			case !errors.Is(err, session.ErrNoSession):
				t.Errorf("%+v, %v", ended, err)
			}
		})
	}
	if all.Wait(); got.Load() != 1 {
		t.Errorf("%d got the session", got.Load())
	}
}
