// Tests of vouchers with a table of sessions and clocks that are set by hand.

package voucher

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance/allowancetest"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// scene is a book, its clocks, and the table of its only network.
type scene struct {
	t    *testing.T
	path string
	*Book
	wall, line time.Time // of the clocks
	table      allowancetest.Table
}

func newScene(t *testing.T) *scene {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &scene{t: t, path: filepath.Join(t.TempDir(), FileName), wall: start, line: start}
	s.table.Ended = func(one session.Session) { s.SessionEnded(one) }
	s.open()
	return s
}

// open opens the book, as a daemon does when it starts.
func (s *scene) open() {
	s.t.Helper()
	store, err := OpenFile(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Book, err = OpenStore(store, slog.New(slog.DiscardHandler), clock{func() time.Time { return s.wall },
		func() time.Time { return s.line }, func() error { return nil }})
	if err == nil {
		err = s.Serve("", &s.table)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.store.Close() })
}

// restart opens the book again without closing it in order.
func (s *scene) restart() {
	s.t.Helper()
	s.store.Close()
	s.open()
}

// pass lets time pass.
func (s *scene) pass(d time.Duration) {
	s.wall, s.line = s.wall.Add(d), s.line.Add(d)
	s.table.Age(d)
}

// make makes a batch "lobby" and returns its vouchers.
func (s *scene) make(count int, terms Terms) []Voucher {
	s.t.Helper()
	terms.Devices = max(terms.Devices, 1)
	all, err := s.Create("lobby", count, terms)
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func device(n int) session.Key {
	return session.Key{MAC: [6]byte{2, 0, 0, 0, byte(n >> 8), byte(n)},
		Addr: netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})}
}

// of is a device's session; the zero value: it has none.
func (s *scene) of(n int) session.Session {
	one, _ := s.table.Get(device(n).Addr)
	return one
}

// logIn logs a device in, as a gateway does, and returns its session.
func (s *scene) logIn(code Code, n int) (session.Session, error) {
	login, err := s.Login(string(code))
	if err != nil {
		return session.Session{}, err
	}
	login.SessionID, login.For = session.NewID(), device(n)
	if err := s.Begin(&login, login.For, ""); err != nil {
		return session.Session{}, err
	}
	s.table.Begin(login.For, login)
	err = s.Began(login)
	return s.of(n), err
}

// mustLogIn is logIn for a login that must succeed.
func (s *scene) mustLogIn(code Code, n int) session.Session {
	s.t.Helper()
	one, err := s.logIn(code, n)
	if err != nil {
		s.t.Fatalf("device %d: %v", n, err)
	}
	return one
}

// logOut ends a device's session.
func (s *scene) logOut(n int) {
	s.t.Helper()
	one, found := s.table.End(device(n).Addr, session.UserRequest)
	if !found {
		s.t.Fatalf("device %d has no session", n)
	}
	s.SessionEnded(one)
	if err := s.settle(); err != nil {
		s.t.Fatal(err)
	}
}

// use has a device's session move bytes.
func (s *scene) use(n int, bytes uint64) { s.table.Use(device(n).Addr, bytes) }

// one is a voucher now.
func (s *scene) one(name string) (v Voucher) {
	s.t.Helper()
	if err := s.each(name, func(found Voucher) { v = found }); err != nil {
		s.t.Fatal(err)
	}
	return v
}

// each visits all vouchers that a name names.
func (s *scene) each(name string, visit func(Voucher)) error {
	return s.Each(name, func(v Voucher) bool { visit(v); return true })
}

// refusal is the reason with which a login is refused.
func (s *scene) refusal(code Code) session.Reason {
	_, err := s.logIn(code, 99)
	var no *session.Rejection
	if !errors.As(err, &no) {
		return session.Reason(fmt.Sprint(err))
	}
	return no.Reason
}

// near reports whether two durations are the same but for the time that a test takes.
func near(a, b time.Duration) bool { return (a - b).Abs() < time.Minute }

// TestLastPlace: of several devices that want the last place of a voucher at the same moment exactly one gets it, and
// one more when it has gone.
func TestLastPlace(t *testing.T) {
	s := newScene(t)
	made := s.make(50, Terms{Devices: 2, ForSeconds: 3600})
	for i, v := range made {
		s.mustLogIn(v.Code, 100*i)
		var all sync.WaitGroup
		errs := make([]error, 4)
		for n := range errs {
			all.Go(func() { _, errs[n] = s.logIn(v.Code, 100*i+1+n) })
		}
		all.Wait()
		in := 0
		for n, err := range errs {
			switch {
			case err == nil:
				in++
			case !errors.Is(err, session.ErrSessions):
				t.Errorf("voucher %d, device %d: %v", i, n, err)
			}
		}
		if found := s.one(v.Name); in != 1 || found.Sessions != 2 {
			t.Fatalf("%d devices got the last place of %s, which has %d sessions", in, v.Name, found.Sessions)
		}
	}
	s.logOut(0)
	s.mustLogIn(made[0].Code, 9000)
}

// TestSameDevice: a device that comes with another address takes its own place, where no other is free.
func TestSameDevice(t *testing.T) {
	s := newScene(t)
	code := s.make(1, Terms{ForSeconds: 3600})[0].Code
	first := s.mustLogIn(code, 1)
	if _, err := s.logIn(code, 2); !errors.Is(err, session.ErrSessions) {
		t.Errorf("another device: %v", err)
	}
	login, err := s.Login(string(code))
	if err != nil {
		t.Fatal(err)
	}
	moved := device(1)
	moved.Addr = netip.MustParseAddr("10.1.7.7")
	login.SessionID = "moved"
	if err := s.Begin(&login, moved, ""); err != nil || s.table.Causes()[first.ID] != session.UserRequest {
		t.Errorf("the same device with another address: %v; its former session ended by %q", err, s.table.Causes()[first.ID])
	}
	if v := s.one("lobby-1"); v.Sessions != 1 {
		t.Errorf("%d sessions", v.Sessions)
	}
}

// TestUndo: a login that fails after it has taken a place gives it back, and the voucher's time has not begun.
func TestUndo(t *testing.T) {
	s := newScene(t)
	code := s.make(1, Terms{ForSeconds: 3600})[0].Code
	login, err := s.Login(string(code))
	login.SessionID = "failed"
	if err = errors.Join(err, s.Begin(&login, device(1), ""), s.Undo(login)); err != nil {
		t.Fatal(err)
	}
	if v := s.one("lobby-1"); v.State != New || v.Sessions != 0 {
		t.Errorf("the voucher is %+v", v)
	}
	s.mustLogIn(code, 2)
}
