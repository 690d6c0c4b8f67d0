// Tests of what becomes of vouchers' sessions when their network goes and comes back.

package voucher

import (
	"errors"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance/allowancetest"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// leave has the network leave the configuration. Where forgotten, its sessions' places are given away.
func (s *scene) leave(forgotten bool) {
	s.t.Helper()
	s.Leave("")
	if err := s.Retain(func(string) bool { return !forgotten }); err != nil {
		s.t.Fatal(err)
	}
}

// comeBack has the network serve its sessions again.
func (s *scene) comeBack() {
	s.t.Helper()
	if err := errors.Join(s.Serve("", &s.table), s.settle()); err != nil {
		s.t.Fatal(err)
	}
}

// TestNetworkComesBack: the sessions of a network that was away are those of their vouchers as before, also where their
// record was lost meanwhile. They take their places, count, and end with their voucher.
func TestNetworkComesBack(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		s := newScene(t)
		made := s.make(1, Terms{ForSeconds: 3600, Bytes: gigabyte})
		one := s.mustLogIn(made[0].Code, 1)
		s.use(1, gigabyte/4)
		s.leave(forgotten)
		if !forgotten {
			if _, err := s.logIn(made[0].Code, 2); !errors.Is(err, session.ErrSessions) {
				t.Errorf("while the network is away another device is answered by %v", err)
			}
		}
		s.comeBack()
		if v := s.one("lobby-1"); v.Sessions != 1 || v.UsedBytes != gigabyte/4 || v.FirstUse.IsZero() {
			t.Errorf("forgotten %v: the voucher is %+v", forgotten, v)
		}
		if _, err := s.logIn(made[0].Code, 2); !errors.Is(err, session.ErrSessions) {
			t.Errorf("forgotten %v: another device is answered by %v", forgotten, err)
		}
		if done, err := s.Revoke(t.Context(), "lobby"); done.Sessions != 1 || err != nil ||
			s.table.Causes()[one.ID] != session.AdminReset {
			t.Errorf("forgotten %v: revoked %+v, %v; ends %v", forgotten, done, err, s.table.Causes())
		}
		if v := s.one("lobby-1"); v.Sessions != 0 || v.UsedBytes != gigabyte/4 {
			t.Errorf("forgotten %v: afterwards the voucher is %+v", forgotten, v)
		}
	}
}

// TestEndsWhenItComesBack: sessions of vouchers that admit nobody any more end when their network comes back, and count
// once.
func TestEndsWhenItComesBack(t *testing.T) {
	for name, c := range map[string]struct {
		away  func(s *scene, code Code)
		cause session.Cause
		bytes uint64
	}{
		"revoked": {func(s *scene, _ Code) {
			if _, err := s.Revoke(t.Context(), "lobby"); err != nil {
				t.Error(err)
			}
		}, session.AdminReset, 1000},
		"expired": {func(s *scene, _ Code) { s.pass(2 * time.Hour) }, session.SessionTimeout, 1000},
		"used up": {func(s *scene, _ Code) { s.use(1, gigabyte) }, session.Quota, gigabyte + 1000},
		"unknown": {func(s *scene, _ Code) {
			one := s.of(1)
			one.User = "voucher:other-1"
			s.table.Set(one)
		}, session.AdminReset, 0},
		"another device has the place": {func(s *scene, code Code) {
			key := device(1).Addr
			one, _ := s.table.Get(key)
			s.table.Lose(key)
			s.comeBack()
			s.mustLogIn(code, 2)
			s.Leave("")
			s.table.Set(one)
		}, session.AdminReset, 1000},
	} {
		for _, forgotten := range []bool{true, false} {
			s := newScene(t)
			code := s.make(1, Terms{ForSeconds: 3600, Bytes: gigabyte})[0].Code
			one := s.mustLogIn(code, 1)
			s.use(1, 1000)
			s.leave(forgotten)
			c.away(s, code)
			if cause := s.TakeUp("", s.of(1)); cause != c.cause {
				t.Errorf("%s, forgotten %v: the session is to end by %q", name, forgotten, cause)
			}
			s.comeBack()
			s.restart()
			if got := s.table.Causes()[one.ID]; got != c.cause {
				t.Errorf("%s, forgotten %v: the session ended by %q, want %q", name, forgotten, got, c.cause)
			}
			if v := s.one("lobby-1"); v.UsedBytes != c.bytes && (forgotten || name != "unknown") {
				t.Errorf("%s, forgotten %v: the voucher is %+v", name, forgotten, v)
			}
		}
	}
}

// TestMovesFromAwayNetwork: a device takes its own place in another network while the former is away. The former
// session ends when its network comes back.
func TestMovesFromAwayNetwork(t *testing.T) {
	s := newScene(t)
	code := s.make(1, Terms{ForSeconds: 3600})[0].Code
	former := s.mustLogIn(code, 1)
	s.use(1, 1000)
	s.leave(false)
	other := &allowancetest.Table{}
	if err := s.Serve("other", other); err != nil {
		t.Fatal(err)
	}
	login, err := s.Login(string(code))
	if err != nil {
		t.Fatal(err)
	}
	login.SessionID = "moved"
	if err := s.Begin(&login, device(1), "other"); err != nil {
		t.Fatalf("a device whose network is away is refused its own place: %v", err)
	}
	other.Begin(device(1), login)
	s.comeBack()
	here, there := s.table.Causes(), other.Causes()
	if v := s.one("lobby-1"); here[former.ID] != session.AdminReset || len(there) > 0 || v.Sessions != 1 ||
		v.UsedBytes != 1000 {
		t.Errorf("the former network's sessions ended by %v, the other's by %v: %+v", here, there, v)
	}
}
