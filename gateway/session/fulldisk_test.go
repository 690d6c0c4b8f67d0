// Tests of a table whose disk is full. memoryStore (store_test.go) is a store that refuses to write while its field
// refuses is set. memory_test.go has the helpers: newMemory is a data path in memory; key(mac, host) is MAC
// 02:00:00:00:00:mac at 10.1.0.host; lease gives a client a lease, admit logs it in, get reads its session, drain takes
// all pending events. run starts the table's timers, pass lets a fake clock go on, and done fails the test on an error.

package session_test

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/logtest"
)

var errNoSpace = errors.New("no space left on device")

// onStore opens a table with its timers in a synctest bubble.
func onStore(t *testing.T, store *memoryStore, dir string, dp *memory) *session.Table {
	t.Helper()
	table, err := session.OpenStore(store, dp, slog.New(slog.NewTextHandler(t.Output(), nil)), session.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	run(t, table)
	return table
}

// TestSessionEndsOnFullDisk: a session ends although the disk is full. The client is blocked at once. The end is
// written and accounted once there is space. Long: the steps of one run, each of which needs the state that the one
// before left.
func TestSessionEndsOnFullDisk(t *testing.T) {
	k, line := key(1, 5), session.PPPoESession{Session: 7}
	in := func(limits session.Limits) func(*testing.T, *session.Table) session.Session {
		return func(t *testing.T, table *session.Table) session.Session {
			lease(t, table, k)
			return admit(t, table, k, limits)
		}
	}
	on := func(t *testing.T, table *session.Table) session.Session {
		s, err := table.Connect(session.Login{User: "ada", For: k, PPPoE: line})
		done(t, err)
		return s
	}
	for name, tt := range map[string]struct {
		begin   func(*testing.T, *session.Table) session.Session
		end     func(*session.Table, session.Session) error
		wantErr error
		cause   session.Cause
	}{
		"logout": {in(session.Limits{}), func(table *session.Table, s session.Session) error {
			ended, err := table.End(k.Addr, session.AdminReset)
			if ended.ID != s.ID {
				err = errors.Join(err, errors.New("another session has ended"))
			}
			return err
		}, session.ErrLater, session.AdminReset},
		"disconnect request": {in(session.Limits{}), func(table *session.Table, s session.Session) error {
			return table.Kick(k.Addr, s.ID, session.AdminReset)
		}, session.ErrLater, session.AdminReset},
		"release": {in(session.Limits{}), func(table *session.Table, _ session.Session) error { return table.Forget(k) },
			nil, session.LeaseReleased},
		"line that hung up": {on, func(table *session.Table, _ session.Session) error {
			return table.Disconnect(k, line.Session, session.UserRequest)
		}, nil, session.UserRequest},
		"time that is over": {in(session.Limits{SessionTimeout: time.Minute}), func(*session.Table, session.Session) error {
			pass(2 * time.Minute)
			return nil
		}, nil, session.SessionTimeout},
		"silence": {in(session.Limits{IdleTimeout: time.Minute}), func(*session.Table, session.Session) error {
			pass(2 * time.Minute)
			return nil
		}, nil, session.IdleTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, dp := &memoryStore{clients: map[datapath.ID][]byte{}, events: map[uint64][]byte{}}, newMemory()
				table := onStore(t, store, t.TempDir(), dp)
				s := tt.begin(t, table)
				store.refuse(errNoSpace)
				if err := tt.end(table, s); !errors.Is(err, tt.wantErr) || tt.wantErr != nil && !errors.Is(err, errNoSpace) {
					t.Errorf("it says: %v, want %v", err, tt.wantErr)
				}
				if now, found := table.Get(k.Addr); dp.admits(k) || found && now.State != session.PreAuth {
					t.Errorf("with a disk that is full the client is %q, admitted: %v", now.State, dp.admits(k))
				}
				if _, err := table.Admit(k.Addr, session.Login{User: "ada"}); err == nil || dp.admits(k) {
					t.Errorf("a login that is not on the disk: %v", err)
				}
				pass(time.Minute)
				store.refuse(nil)
				pass(2 * time.Second)
				events := drain(t, table)
				if got := kinds(events); !slices.Equal(got, []session.Kind{session.Started, session.Ended}) {
					t.Fatalf("events %v", got)
				}
				if end := events[1]; end.ID != s.ID || end.Cause != tt.cause {
					t.Errorf("the end of %s by %s, want %s by %s", end.ID, end.Cause, s.ID, tt.cause)
				}
				for addr, record := range store.clients {
					if kept, _, err := session.DecodeClient(record); err != nil || kept.State != session.PreAuth {
						t.Errorf("%s is kept as %q, %v", addr, kept.State, err)
					}
				}
			})
		})
	}
}

// TestReplacementOnFullDisk: when the disk refuses a login, the session that it was to replace goes on.
func TestReplacementOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dp := &memoryStore{clients: map[datapath.ID][]byte{}, events: map[uint64][]byte{}}, newMemory()
		table := onStore(t, store, t.TempDir(), dp)
		first, second := key(1, 5), key(1, 6)
		lease(t, table, first)
		lease(t, table, second)
		one := session.Login{User: "ada", Sessions: 1}
		s, err := table.Admit(first.Addr, one)
		done(t, err)
		store.refuse(errNoSpace)
		for _, k := range []session.Key{first, second} {
			if _, err := table.Admit(k.Addr, one); !errors.Is(err, errNoSpace) {
				t.Errorf("%s: %v", k, err)
			}
		}
		if got := get(t, table, first); got.ID != s.ID || !dp.admits(first) || dp.admits(second) {
			t.Errorf("the session is %+v, admitted: %v, %v", got, dp.admits(first), dp.admits(second))
		}
	})
}

// TestCrashOnFullDisk: a session ends while the disk is full, and the gateway is killed before there is space. The
// session comes back, as docs/gateway-reference.md says. Nothing is lost or accounted twice.
func TestCrashOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{clients: map[datapath.ID][]byte{}, events: map[uint64][]byte{}}
		dp, k, dir := newMemory(), key(1, 5), t.TempDir()
		table := onStore(t, store, dir, dp)
		lease(t, table, k)
		s := admit(t, table, k, session.Limits{})
		store.refuse(errNoSpace)
		if _, err := table.End(k.Addr, session.AdminReset); !errors.Is(err, session.ErrLater) {
			t.Fatal(err)
		}
		crashed := &memoryStore{clients: store.clients, events: store.events, last: store.last}
		again := onStore(t, crashed, dir, dp)
		if got := get(t, again, k); got.ID != s.ID || got.State != session.Authenticated || !dp.admits(k) {
			t.Errorf("after the crash: %+v", got)
		}
		_, err := again.End(k.Addr, session.AdminReset)
		done(t, err)
		if got := kinds(drain(t, again)); !slices.Equal(got, []session.Kind{session.Started, session.Ended}) {
			t.Errorf("events %v", got)
		}
	})
}

// smallStore refuses batches with more than a number of bytes of records. With 0 it refuses none.
type smallStore struct {
	*memoryStore
	maxBytes atomic.Int64
}

func (l *smallStore) Write(b session.Batch) (int, error) {
	size := 0
	for _, c := range b.Clients {
		size += len(c.Data)
	}
	for _, e := range b.Events {
		size += len(e)
	}
	if most := l.maxBytes.Load(); most > 0 && int64(size) > most {
		return 0, errNoSpace
	}
	return l.memoryStore.Write(b)
}

// TestStoreRecoveryIsLogged: after the disk refused a change, the log says once that sessions are stored again: when
// the change, or one as large, was written. A smaller change is no sign of that.
func TestStoreRecoveryIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		store := &smallStore{memoryStore: &memoryStore{clients: map[datapath.ID][]byte{}, events: map[uint64][]byte{}}}
		table, err := session.OpenStore(store, newMemory(), log.Logger(), session.Options{Dir: t.TempDir()})
		done(t, err)
		t.Cleanup(func() { table.Close() })
		said := func(phase string, failing bool, not, again int) {
			t.Helper()
			synctest.Wait() // callers are told before the log
			n, m := log.Count("sessions are not kept"), log.Count("sessions are kept again")
			if err := table.Unkept(); n != not || m != again || errors.Is(err, errNoSpace) != failing {
				t.Errorf("%s: %v; said %d times that they are not kept, and %d times that they are again:\n%s",
					phase, err, n, m, log.String())
			}
		}
		ada, bob := key(1, 1), key(2, 2)
		large := session.Login{User: "bob", Class: [][]byte{make([]byte, 2000)}}
		lease(t, table, ada)
		lease(t, table, bob)
		s := admit(t, table, ada, session.Limits{})
		store.maxBytes.Store(1000)
		for n := range byte(3) {
			if _, err := table.Admit(bob.Addr, large); !errors.Is(err, errNoSpace) {
				t.Fatalf("a login that does not fit: %v", err)
			}
			lease(t, table, key(3, 100+n))
			said("a lease fits", true, 1, 0)
		}
		if !strings.Contains(log.String(), "free space at state_dir") {
			t.Errorf("the log does not say what to do:\n%s", log.String())
		}
		store.maxBytes.Store(0)
		_, err = table.Admit(bob.Addr, large)
		done(t, err)
		said("the login fits", false, 1, 1)
		store.maxBytes.Store(1)
		if err := table.Kick(ada.Addr, s.ID, session.AdminReset); !errors.Is(err, session.ErrLater) {
			t.Fatal(err)
		}
		said("an end does not fit", true, 2, 1)
		store.maxBytes.Store(0)
		pass(2 * time.Second)
		said("the end is written", false, 2, 2)
	})
}

// TestCountsOnFullDisk: counts that a full disk refused are written once there is space, even if the client sends
// nothing any more.
func TestCountsOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dp := &memoryStore{clients: map[datapath.ID][]byte{}, events: map[uint64][]byte{}}, newMemory()
		ada := key(1, 1)
		table := onStore(t, store, t.TempDir(), dp)
		lease(t, table, ada)
		admit(t, table, ada, session.Limits{})
		up, _ := dp.send(ada, 5, 100)
		store.refuse(errNoSpace)
		done(t, table.Save(t.Context()))
		time.Sleep(10 * time.Second)
		store.refuse(nil)
		time.Sleep(10 * time.Second)
		store.mu.Lock()
		s, _, err := session.DecodeClient(store.clients[datapath.IDOf(ada.Addr)])
		store.mu.Unlock()
		if err != nil || s.UpPackets != up {
			t.Errorf("the disk has %d packets, %v, want %d", s.UpPackets, err, up)
		}
	})
}
