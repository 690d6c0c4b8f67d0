// Tests that an address has no next owner before the connections of its former one have ended. newMemory is a data path
// in memory, key and keyOf make keys of clients; lease gives a client a lease, admit logs it in (memory_test.go). run
// starts the table's timers, and pass lets a fake clock go on (timers_test.go).

package session_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// slowCutter is a Cutter that ends connections only when the test tells it to.
type slowCutter struct {
	mu      sync.Mutex
	pending []netip.Prefix // guarded by mu, and done too
	done    chan struct{}
}

func (s *slowCutter) Schedule(prefixes ...netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
	}
	s.pending = append(s.pending, prefixes...)
}

func (s *slowCutter) Flush(prefixes ...netip.Prefix) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return slices.ContainsFunc(s.pending, p.Overlaps) }) {
		return nil
	}
	return s.done
}

func (s *slowCutter) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.done)
	s.pending, s.done = nil, nil
}

// withSlowCutter runs a test in a bubble, with a table whose Cutter is slow. The test fails if something waits for
// connections that it should not wait for, because that lasts for ever.
func withSlowCutter(t *testing.T, test func(t *testing.T, table *session.Table, dp *memory, path *slowCutter)) {
	synctest.Test(t, func(t *testing.T) {
		dp, path := newMemory(), &slowCutter{}
		table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
		table.Cut(path)
		test(t, table, dp, path)
	})
}

// done fails the test on an error.
func done(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNextOwnerWaitsForConnections: when a session has ended, the next client with its address or its network is
// admitted only when the former connections have ended. The end of a session and other operations on the address do not
// wait. Long: the steps of one run, each of which needs the state that the one before left.
func TestNextOwnerWaitsForConnections(t *testing.T) {
	const behind, within = "198.18.0.0/24", "198.18.0.128/25"
	first, next := key(1, 5), key(2, 5)
	online := func(k session.Key, user string, pppoe uint16, behind ...string) session.Login {
		l := session.Login{User: user, For: k, PPPoE: session.PPPoESession{Session: pppoe}}
		for _, p := range behind {
			l.PPPoE.Routes = append(l.PPPoE.Routes, netip.MustParsePrefix(p))
		}
		return l
	}
	in := func(t *testing.T, table *session.Table) session.Session {
		lease(t, table, first)
		return admit(t, table, first, session.Limits{})
	}
	on := func(t *testing.T, table *session.Table) {
		_, err := table.Connect(online(first, "ada", 7, behind))
		done(t, err)
	}
	for name, tt := range map[string]struct {
		leave func(*testing.T, *session.Table)
		enter func(*session.Table) (session.Session, error)
	}{
		"logout": {func(t *testing.T, table *session.Table) {
			in(t, table)
			_, err := table.End(first.Addr, session.UserRequest)
			done(t, err)
		}, func(table *session.Table) (session.Session, error) {
			return table.Admit(first.Addr, session.Login{User: "ada"})
		}},
		"disconnect request": {func(t *testing.T, table *session.Table) {
			done(t, table.Kick(first.Addr, in(t, table).ID, session.AdminReset))
		}, func(table *session.Table) (session.Session, error) {
			return table.Admit(first.Addr, session.Login{User: "bob"})
		}},
		"release": {func(t *testing.T, table *session.Table) {
			in(t, table)
			done(t, table.Forget(first))
			lease(t, table, next)
		}, func(table *session.Table) (session.Session, error) {
			return table.Admit(next.Addr, session.Login{User: "bob", For: next})
		}},
		"another lease": {func(t *testing.T, table *session.Table) {
			in(t, table)
			lease(t, table, next)
		}, func(table *session.Table) (session.Session, error) {
			return table.Admit(next.Addr, session.Login{User: "bob"})
		}},
		"another user": {func(t *testing.T, table *session.Table) { in(t, table) },
			func(table *session.Table) (session.Session, error) {
				return table.Admit(first.Addr, session.Login{User: "bob"})
			}},
		"another user, by an operator": {func(t *testing.T, table *session.Table) {
			done(t, table.Lease(first, "", time.Time{}))
			admit(t, table, first, session.Limits{})
		}, func(table *session.Table) (session.Session, error) {
			return table.Admit(first.Addr, session.Login{User: "bob"})
		}},
		"another subscriber": {
			on, func(table *session.Table) (session.Session, error) { return table.Connect(online(first, "bob", 8)) }},
		"hung up": {func(t *testing.T, table *session.Table) {
			on(t, table)
			done(t, table.Disconnect(first, 7, session.UserRequest))
		}, func(table *session.Table) (session.Session, error) { return table.Connect(online(next, "bob", 8)) }},
		"the network behind it elsewhere": {func(t *testing.T, table *session.Table) {
			on(t, table)
			done(t, table.Disconnect(first, 7, session.UserRequest))
		}, func(table *session.Table) (session.Session, error) {
			return table.Connect(online(key(3, 6), "bob", 8, within))
		}},
		"a part of the network behind it": {on, func(table *session.Table) (session.Session, error) {
			return table.Connect(online(first, "ada", 8, within))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withSlowCutter(t, func(t *testing.T, table *session.Table, dp *memory, path *slowCutter) {
				tt.leave(t, table)
				var began session.Session
				var err error
				entered := make(chan struct{})
				go func() { began, err = tt.enter(table); close(entered) }()
				synctest.Wait()
				select {
				case <-entered:
					t.Fatalf("admitted %+v, %v while connections of the former session go on", began, err)
				default:
				}
				table.Each(func(s session.Session) bool {
					if s.State == session.Authenticated || dp.admits(s.Key) {
						t.Errorf("admitted meanwhile: %+v", s)
					}
					return true
				})
				if s, found := table.Get(first.Addr); found && s.PPPoE.Session == 0 { // all that others do with it
					if !s.LeaseEnd.IsZero() {
						done(t, table.Lease(s.Key, "renewed", time.Now().Add(3*time.Hour)))
					}
					if _, err := table.End(first.Addr, session.UserRequest); !errors.Is(err, session.ErrNoSession) {
						t.Errorf("ending the session that has ended: %v", err)
					}
				}
				done(t, table.Save(t.Context()))
				path.end()
				<-entered
				if err != nil || !dp.admits(began.Key) {
					t.Errorf("when they have ended: %+v, %v", began, err)
				}
			})
		})
	}
}

// TestAddressLostWhileWaiting: a client may lose its address while its login waits for connections of the former
// client. The login then fails.
func TestAddressLostWhileWaiting(t *testing.T) {
	withSlowCutter(t, func(t *testing.T, table *session.Table, dp *memory, path *slowCutter) {
		first, next, third := key(1, 5), key(2, 5), key(3, 5)
		lease(t, table, first)
		admit(t, table, first, session.Limits{})
		lease(t, table, next)
		entered := make(chan error)
		go func() {
			_, err := table.Admit(next.Addr, session.Login{User: "bob", For: next})
			entered <- err
		}()
		synctest.Wait()
		lease(t, table, third)
		path.end()
		if err := <-entered; !errors.Is(err, session.ErrMoved) || dp.admits(next) || dp.admits(third) {
			t.Errorf("%v; admitted: %v and %v", err, dp.admits(next), dp.admits(third))
		}
	})
}

// TestTimersDoNotWait: timers end many sessions and leases in the same second without waiting for their connections.
// Clients at other addresses are not delayed.
func TestTimersDoNotWait(t *testing.T) {
	withSlowCutter(t, func(t *testing.T, table *session.Table, dp *memory, path *slowCutter) {
		const n = 200
		for i := range n {
			k := keyOf(i)
			done(t, table.Lease(k, "", time.Now().Add(time.Duration(1+i%2)*time.Hour)))
			_, err := table.Admit(k.Addr, session.Login{User: fmt.Sprint(i), Limits: session.Limits{SessionTimeout: time.Hour}})
			done(t, err)
		}
		run(t, table)
		pass(time.Hour + time.Second)
		for i := range n {
			s, found := table.Get(keyOf(i).Addr)
			if dp.admits(keyOf(i)) || found != (i%2 == 1) || s.State == session.Authenticated {
				t.Fatalf("client %d: %v, %+v", i, found, s)
			}
		}
		lease(t, table, keyOf(n))
		if admit(t, table, keyOf(n), session.Limits{}); !dp.admits(keyOf(n)) {
			t.Error("a client that is none of theirs is not admitted")
		}
		path.end()
		if admit(t, table, keyOf(1), session.Limits{}); !dp.admits(keyOf(1)) {
			t.Error("a client is not admitted after its former connections have ended")
		}
	})
}
