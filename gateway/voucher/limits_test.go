// Tests of what a voucher's sessions may use together, and until when.

package voucher

import (
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

const gigabyte = 1_000_000_000

// TestOverSessions: time online and data count over all sessions. Each session is told what is left, and the voucher is
// used up when nothing is.
func TestOverSessions(t *testing.T) {
	s := newScene(t)
	code := s.make(1, Terms{OnlineSeconds: 3600, Bytes: gigabyte, UpBps: 1e6, DownBps: 2e6})[0].Code
	one := s.mustLogIn(code, 1)
	if l := one.Limits; !near(l.SessionTimeout, time.Hour) || l.TotalBytes != gigabyte || l.UpBps != 1e6 ||
		l.DownBps != 2e6 {
		t.Errorf("the first session has %+v", l)
	}
	s.pass(20 * time.Minute)
	s.use(1, gigabyte/4)
	if v := s.one("lobby-1"); v.UsedBytes != gigabyte/4 || v.UsedSeconds/60 != 20 || v.State != InUse || v.Sessions != 1 {
		t.Errorf("meanwhile: %+v", v)
	}
	s.logOut(1)
	s.pass(24 * time.Hour) // offline
	if l := s.mustLogIn(code, 2).Limits; !near(l.SessionTimeout, 40*time.Minute) || l.TotalBytes != gigabyte*3/4 {
		t.Errorf("the second session has %+v", l)
	}
	s.pass(10 * time.Minute)
	s.use(2, gigabyte*3/4)
	s.logOut(2)
	if v := s.one("lobby-1"); v.State != UsedUp || v.UsedBytes != gigabyte || v.UsedSeconds/60 != 30 {
		t.Errorf("afterwards: %+v", v)
	}
	if why := s.refusal(code); why != session.UsedUp {
		t.Errorf("a login is refused by %q", why)
	}
}

// TestDevicesShare: devices at the same time share what is left. One that comes halves the others' time, one that goes
// gives its share back, and all end when the data is used up.
func TestDevicesShare(t *testing.T) {
	s := newScene(t)
	code := s.make(1, Terms{Devices: 3, OnlineSeconds: 3600, Bytes: gigabyte})[0].Code
	s.mustLogIn(code, 1)
	s.pass(20 * time.Minute)
	second := s.mustLogIn(code, 2)
	left := func(n int) time.Duration {
		one := s.of(n)
		return one.Limits.SessionTimeout - time.Since(one.Began)
	}
	if !near(left(1), 20*time.Minute) || !near(left(2), 20*time.Minute) {
		t.Errorf("of 40 minutes two devices have %s and %s", left(1), left(2))
	}
	s.pass(10 * time.Minute)
	s.logOut(1)
	if !near(left(2), 20*time.Minute) {
		t.Errorf("of 20 minutes one device has %s", left(2))
	}
	third := s.mustLogIn(code, 3)
	s.use(2, gigabyte/2)
	s.look(false)
	if one := s.of(3); one.Limits.TotalBytes != gigabyte/2 {
		t.Errorf("of half a gigabyte the third device may use %d bytes", one.Limits.TotalBytes)
	}
	s.use(3, gigabyte/2)
	s.look(false)
	if s.table.Causes()[second.ID] != session.Quota || s.table.Causes()[third.ID] != session.Quota {
		t.Errorf("sessions ended by %v, want two by their quota", s.table.Causes())
	}
	if v := s.one("lobby-1"); v.State != UsedUp || v.Sessions != 0 {
		t.Errorf("afterwards: %+v", v)
	}
}

// TestValidity: a voucher is valid for its time from the first use on, not from its making, and then expires.
func TestValidity(t *testing.T) {
	s := newScene(t)
	code := s.make(1, Terms{ForSeconds: 24 * 3600})[0].Code
	s.pass(30 * 24 * time.Hour)
	if v := s.one("lobby-1"); v.State != New || !v.End.IsZero() {
		t.Errorf("before the first use: %+v", v)
	}
	s.mustLogIn(code, 1)
	s.pass(23 * time.Hour)
	s.logOut(1)
	if l := s.mustLogIn(code, 1).Limits; !near(l.SessionTimeout, time.Hour) {
		t.Errorf("an hour before the end the session has %s", l.SessionTimeout)
	}
	if v := s.one("lobby-1"); !v.End.Equal(v.FirstUse.Add(24*time.Hour)) || !near(v.End.Sub(s.wall), time.Hour) {
		t.Errorf("in use: %+v", v)
	}
	s.pass(time.Hour)
	if why := s.refusal(code); why != session.Expired {
		t.Errorf("a login is refused by %q", why)
	}
}

// TestWallClock: the wall clock is an hour fast. "Until a date" ends an hour early as long as it is, and what runs is
// put right within a second of the clock's correction; "for an hour" does not change.
func TestWallClock(t *testing.T) {
	s := newScene(t)
	date, err := s.Create("date", 2, Terms{Devices: 1, Until: s.wall.Add(3 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	length := s.make(1, Terms{ForSeconds: 2 * 3600})[0].Code
	left := func(n int) time.Duration {
		one := s.of(n)
		return one.Limits.SessionTimeout - time.Since(one.Began)
	}
	s.wall = s.wall.Add(time.Hour) // it is set, and is wrong
	s.mustLogIn(date[0].Code, 1)
	s.mustLogIn(length, 2)
	if !near(left(1), 2*time.Hour) || !near(left(2), 2*time.Hour) {
		t.Errorf("by a clock an hour fast: until a date %s, want 2 h; for 2 hours %s", left(1), left(2))
	}
	s.pass(2 * time.Hour)
	if why := s.refusal(date[1].Code); why != session.Expired {
		t.Errorf("an hour early a login is refused by %q", why)
	}
	if why := s.refusal(length); why != session.Expired {
		t.Errorf("after 2 hours a login is refused by %q", why)
	}
	s.wall = s.wall.Add(-time.Hour) // it is set right
	s.look(true)
	if !near(left(1), time.Hour) {
		t.Errorf("after the correction the session has %s, want an hour", left(1))
	}
	s.mustLogIn(date[1].Code, 3)
	if why := s.refusal(length); why != session.Expired {
		t.Errorf("after the correction a login for 2 hours is refused by %q", why)
	}
	s.wall = s.wall.Add(2 * time.Hour)
	s.look(true)
	if len(s.table.Causes()) < 2 {
		t.Errorf("with the date over, these sessions have ended: %v", s.table.Causes())
	}
}

// TestRevoke: a revoked batch's sessions end at once, also those that are just beginning.
func TestRevoke(t *testing.T) {
	s := newScene(t)
	made := s.make(3000, Terms{Devices: 2, ForSeconds: 3600})
	first, second := s.mustLogIn(made[0].Code, 1), s.mustLogIn(made[2999].Code, 2)
	beginning, err := s.Login(string(made[1].Code))
	if err != nil {
		t.Fatal(err)
	}
	beginning.SessionID = "beginning"
	if err := s.Begin(&beginning, device(3), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Revoke(t.Context(), "lobby-3000"); err != nil || s.table.Causes()[second.ID] != session.AdminReset {
		t.Errorf("one voucher: %v, its session ended by %q", err, s.table.Causes()[second.ID])
	}
	if done, err := s.Revoke(t.Context(), "lobby"); done.Vouchers != 2999 || err != nil ||
		s.table.Causes()[first.ID] != session.AdminReset {
		t.Errorf("%+v, %v, a session ended by %q", done, err, s.table.Causes()[first.ID])
	}
	s.table.Begin(device(3), beginning)
	if err := s.Began(beginning); err == nil || s.table.Causes()["beginning"] != session.AdminReset {
		t.Errorf("a session that began meanwhile: %v, ended by %q", err, s.table.Causes()["beginning"])
	}
	if why := s.refusal(made[7].Code); why != session.Revoked {
		t.Errorf("a login is refused by %q", why)
	}
	if why := s.refusal("CCCCCCCCCCCC"); why != "" {
		t.Errorf("a wrong code is refused by %q", why)
	}
}

// TestRestart: after a restart open sessions go on with what is left, and those that ended meanwhile are counted once,
// whether the book knew of the end, only the session table did, or neither has the session.
func TestRestart(t *testing.T) {
	s := newScene(t)
	code := s.make(1, Terms{Devices: 4, Bytes: gigabyte, OnlineSeconds: 10 * 3600})[0].Code
	for n := range 4 {
		s.mustLogIn(code, n+1)
		s.use(n+1, gigabyte/10)
	}
	noted, _ := s.table.End(device(1).Addr, session.UserRequest) // the book has not written it yet
	s.SessionEnded(noted)
	s.table.End(device(2).Addr, session.UserRequest) // the book was not told
	s.table.Lose(device(3).Addr)                     // the table was lost
	s.restart()
	if v := s.one("lobby-1"); v.Sessions != 1 || v.UsedBytes != 3*gigabyte/10 {
		t.Errorf("after a restart: %+v", v)
	}
	for range 2 {
		if err := s.table.Ends(func(e session.Event) { // the table accounts them, perhaps twice
			if err := s.EndAccounted(e); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Error(err)
		}
		s.restart()
	}
	if v := s.one("lobby-1"); v.Sessions != 1 || v.UsedBytes != 3*gigabyte/10 {
		t.Errorf("after three restarts: %+v", v)
	}
	s.Leave("") // no daemon runs
	if done, err := s.Revoke(t.Context(), "lobby-1"); err != nil || done != (Revocation{1, 0, 1}) ||
		s.table.Number() != 1 {
		t.Errorf("without a daemon a voucher is revoked: %+v, %v; sessions: %d", done, err, s.table.Number())
	}
	s.restart()
	if v := s.one("lobby-1"); s.table.Number() > 0 || v.Sessions > 0 || v.UsedBytes != 3*gigabyte/10 {
		t.Errorf("after the next start of a revoked voucher %+v; sessions: %d", v, s.table.Number())
	}
}

// TestGoneNetwork: the sessions of a network that is served no longer take no place.
func TestGoneNetwork(t *testing.T) {
	s := newScene(t)
	code := s.make(1, Terms{ForSeconds: 3600})[0].Code
	s.mustLogIn(code, 1)
	if err := s.Retain(func(network string) bool { return network == "guests" }); err != nil {
		t.Fatal(err)
	}
	s.mustLogIn(code, 2)
}

// TestBatches: batches have names of their own, which no voucher has, and the number without one.
func TestBatches(t *testing.T) {
	s := newScene(t)
	for i, name := range []string{"", "lobby", "", "lobby"} {
		if _, err := s.Create(name, 2, Terms{Devices: 1}); (err != nil) != (i == 3) {
			t.Errorf("batch %q: %v", name, err)
		}
	}
	var names []string
	if err := s.each("", func(v Voucher) { names = append(names, v.Name) }); err != nil || len(names) != 6 ||
		names[1] != "1-2" || names[2] != "lobby-1" || names[4] != "2-1" {
		t.Errorf("vouchers %v, %v", names, err)
	}
	for _, name := range []string{"lobby-17", "Lobby", "a b", "-a", "a/b", "lobby-"} {
		if CheckBatch(name) == nil {
			t.Errorf("%q can be a batch", name)
		}
	}
	for _, name := range []string{"lobby-3", "lobby-0", "lobby-01", "nobody", "lobby-1-1"} {
		if err := s.each(name, func(Voucher) {}); err == nil {
			t.Errorf("%q is a voucher", name)
		}
	}
}
