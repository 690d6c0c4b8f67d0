// Tests of a book with a table of sessions and clocks that are set by hand.

package daily

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance"
	"github.com/gateweigh/gateweigh/gateway/allowance/allowancetest"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// scene is a book, its clocks, and its network's table.
type scene struct {
	t     *testing.T
	path  string
	terms Terms
	*Book
	wall, line time.Time
	inRoom     bool // clients are of room 204
	table      allowancetest.Table
	joining    func() // is called before the book is served; nil: nothing
}

func newScene(t *testing.T, device, room Amount) *scene {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &scene{t: t, path: filepath.Join(t.TempDir(), FileName),
		terms: Terms{Clock{4 * time.Hour, time.UTC}, device, room},
		wall:  start, line: start}
	s.table.Ended = func(one session.Session) { s.SessionEnded(one) }
	s.open()
	return s
}

// open opens the book, as a daemon does when it starts.
func (s *scene) open() {
	s.t.Helper()
	store, err := openFile(s.path)
	if err == nil {
		s.Book, err = open(store, "", s.terms, slog.New(slog.DiscardHandler), clocks{func() time.Time { return s.wall },
			func() time.Time { return s.line }, func() error { return nil }})
	}
	if err == nil && s.joining != nil {
		s.joining()
	}
	if err == nil {
		err = s.Serve(&s.table, func(one session.Session) (device, room Holder) {
			if s.inRoom {
				return DeviceOf(one.MAC), RoomOf("204")
			}
			return "", ""
		})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { store.Close() })
}

// kill opens the book again without closing it in order.
func (s *scene) kill() {
	s.t.Helper()
	s.store.Close()
	s.open()
}

// pass lets time pass, and has the book look at it.
func (s *scene) pass(d time.Duration) {
	s.wall, s.line = s.wall.Add(d), s.line.Add(d)
	s.table.Age(d)
	s.look(true)
}

func client(n byte) session.Key {
	return session.Key{MAC: [6]byte{2, 0, 0, 0, 0, n}, Addr: netip.AddrFrom4([4]byte{10, 1, 0, n})}
}

// begin begins a session of client n in a room, "" is none, as a gateway does.
func (s *scene) begin(n byte, room string, own session.Limits) error {
	key := client(n)
	login := session.Login{SessionID: fmt.Sprintf("session-%d-%d", n, s.line.UnixNano()), Limits: own}
	if err := s.Begin(&login, key, DeviceOf(key.MAC), roomOf(room)); err != nil {
		return err
	}
	s.table.Begin(key, login)
	return s.Began(login)
}

func roomOf(room string) Holder {
	if room == "" {
		return ""
	}
	return RoomOf(room)
}

// end ends a client's session; told says whether the book hears of it.
func (s *scene) end(n byte, told bool) {
	one, found := s.table.End(client(n).Addr, session.UserRequest)
	if !found {
		s.t.Errorf("client %d has no session to end", n)
	}
	if told {
		s.SessionEnded(one)
	}
}

// use has a client use bytes.
func (s *scene) use(n byte, bytes uint64) { s.table.Use(client(n).Addr, bytes) }

// limits are those of client n's session.
func (s *scene) limits(n byte) session.Limits {
	one, _ := s.table.Get(client(n).Addr)
	return one.Limits
}

// has reports what is left to client n and a room, and fails unless it is so much, to the second.
func (s *scene) has(what string, n byte, room string, left time.Duration, bytes uint64) {
	s.t.Helper()
	l, err := s.Left(DeviceOf(client(n).MAC), roomOf(room))
	if err != nil || (l.Time-left).Abs() > time.Minute/2 || l.Bytes != bytes {
		s.t.Errorf("%s: client %d in %q has %v and %d bytes left, want %v and %d; %v", what, n, room, l.Time, l.Bytes, left,
			bytes, err)
	}
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestDayIsUsedOverSessions: sessions of a device on a day have its time and bytes together, also over kills of the
// daemon, and the next day they have all of it again.
func TestDayIsUsedOverSessions(t *testing.T) {
	s := newScene(t, Amount{2 * time.Hour, 1000}, Amount{})
	s.must(s.begin(1, "", session.Limits{}))
	s.pass(30 * time.Minute)
	s.use(1, 400)
	s.has("in a session", 1, "", 90*time.Minute, 600)
	s.kill()
	s.has("after a kill", 1, "", 90*time.Minute, 600)
	s.end(1, false)
	s.kill() // the end is known from the accounting alone
	s.has("after an end nobody saw", 1, "", 90*time.Minute, 600)
	s.table.Account()
	s.pass(time.Hour)
	s.must(s.begin(1, "", session.Limits{}))
	if l := s.limits(1); (l.SessionTimeout-90*time.Minute).Abs() > time.Minute || l.TotalBytes != 600 {
		t.Errorf("the second session has %+v", l)
	}
	s.pass(89 * time.Minute)
	s.end(1, true)
	s.must(s.settle())
	s.has("at last", 1, "", time.Minute, 600)
	s.must(s.begin(1, "", session.Limits{}))
	s.pass(2 * time.Minute)
	if _, there := s.table.Get(client(1).Addr); there {
		t.Error("the session goes on after the day's time")
	}
	if err := s.begin(1, "", session.Limits{}); !errors.Is(err, ErrUsedUp) {
		t.Errorf("with nothing left: %v", err)
	}
	s.must(s.begin(2, "", session.Limits{})) // another device
	s.pass(14 * time.Hour)
	s.has("the next day", 1, "", 2*time.Hour, 1000)
	s.must(s.begin(1, "", session.Limits{}))
}

// TestDayBeginsInASession: a session that goes on when the day begins has the new day's time and bytes, and none of
// what it used before counts.
func TestDayBeginsInASession(t *testing.T) {
	s := newScene(t, Amount{2 * time.Hour, 1000}, Amount{})
	s.pass(15*time.Hour + time.Minute) // 03:01
	s.must(s.begin(1, "", session.Limits{TotalBytes: 5000}))
	s.use(1, 900)
	s.pass(59 * time.Minute)
	s.has("when the day begins", 1, "", 2*time.Hour, 1000)
	if l := s.limits(1); l.TotalBytes != 1900 {
		t.Errorf("the session has %+v", l)
	}
	s.use(1, 50)
	s.pass(30 * time.Minute)
	s.has("later", 1, "", 90*time.Minute, 950)
	s.end(1, true)
	s.must(s.settle())
	s.has("after its end", 1, "", 90*time.Minute, 950)
}

// TestOwnLimitsHold: an allowance prolongs no session that has less time or bytes of its own.
func TestOwnLimitsHold(t *testing.T) {
	s := newScene(t, Amount{2 * time.Hour, 1000}, Amount{})
	s.must(s.begin(1, "", session.Limits{SessionTimeout: 30 * time.Minute, TotalBytes: 100}))
	s.pass(10 * time.Minute)
	if l := s.limits(1); l.SessionTimeout > 31*time.Minute || l.TotalBytes != 100 {
		t.Errorf("the session has %+v", l)
	}
}

// TestRoomsShare: the devices of a room have its time and bytes together, and each has no more than its own. In the
// last minute two that come at once have half of it each.
func TestRoomsShare(t *testing.T) {
	s := newScene(t, Amount{Time: 2 * time.Hour}, Amount{3 * time.Hour, 1000})
	s.must(s.begin(1, "204", session.Limits{}))
	s.must(s.begin(2, "204", session.Limits{}))
	s.has("two", 3, "204", 2*time.Hour, 1000) // a third one: its own two hours are the least
	s.pass(time.Hour)
	s.has("after an hour", 3, "204", time.Hour, 1000)
	s.use(1, 300)
	s.use(2, 300)
	s.has("after some bytes", 3, "204", time.Hour, 400)
	s.pass(29*time.Minute + 30*time.Second) // a minute is left
	s.end(1, true)
	s.end(2, true)
	s.must(s.settle())
	var both sync.WaitGroup
	for n := range byte(2) {
		both.Go(func() { s.must(s.begin(3+n, "204", session.Limits{})) })
	}
	both.Wait()
	for n := range byte(2) {
		if l := s.limits(3 + n); l.SessionTimeout > 31*time.Second || l.TotalBytes > 400 {
			t.Errorf("in the last minute client %d has %+v", 3+n, l)
		}
	}
	s.use(3, 399)
	s.use(4, 399)
	s.look(false)
	if n := s.table.Number(); n != 0 {
		t.Errorf("%d sessions go on after the room's bytes", n)
	}
	if err := s.begin(5, "204", session.Limits{}); !errors.Is(err, ErrUsedUp) {
		t.Errorf("a further device of the room: %v", err)
	}
	s.must(s.begin(5, "205", session.Limits{}))
}

// TestOneAtATime: of devices of a room that come at once each has a use in the room's record, and gets no more than a
// fair part of the time with those that came before: none reads the record while another changes it.
func TestOneAtATime(t *testing.T) {
	s := newScene(t, Amount{}, Amount{Time: time.Hour})
	const devices = 20
	shares := make([]time.Duration, devices)
	var all sync.WaitGroup
	for n := range devices {
		all.Go(func() {
			key := client(byte(1 + n))
			login := session.Login{SessionID: fmt.Sprint("s", n)}
			if err := s.Begin(&login, key, DeviceOf(key.MAC), RoomOf("204")); err != nil {
				t.Error(err)
			}
			shares[n] = login.Limits.SessionTimeout
		})
	}
	all.Wait()
	r, err := s.read(RoomOf("204"))
	s.must(err)
	if len(r.Uses) != devices {
		t.Errorf("the record has %d of %d sessions", len(r.Uses), devices)
	}
	slices.Sort(shares)
	for i, got := range shares { // the last that came has an hour's twentieth
		if want := time.Hour / time.Duration(devices-i); got != want {
			t.Errorf("share %d is %v, want %v", i, got, want)
		}
	}
}

// TestClockIsSet: a clock that is set back gives nobody a second allowance; set forth over the begin of a day it begins
// that day, once. After 24 hours by the time line a day is over whatever the clock shows.
func TestClockIsSet(t *testing.T) {
	s := newScene(t, Amount{Time: 2 * time.Hour}, Amount{})
	s.must(s.begin(1, "", session.Limits{}))
	s.pass(time.Hour)
	for _, by := range []time.Duration{-time.Hour, time.Hour, time.Hour, -time.Hour, -24 * time.Hour, 24 * time.Hour} {
		s.wall = s.wall.Add(by)
		s.look(true)
		s.has(fmt.Sprint("set by ", by), 1, "", time.Hour, 0)
	}
	s.wall = s.wall.Add(24 * time.Hour)
	s.look(true)
	s.has("set forth by a day", 1, "", 2*time.Hour, 0)
	s.pass(30 * time.Minute)
	s.wall = s.wall.Add(-24 * time.Hour)
	s.look(true)
	s.has("and back", 1, "", 90*time.Minute, 0)
	s.wall = s.wall.AddDate(3, 0, 0)
	s.look(true)
	s.has("set forth by three years", 1, "", 2*time.Hour, 0)
	s.wall = s.wall.AddDate(-3, 0, 0)
	s.pass(30 * time.Minute)
	s.has("and back", 1, "", 90*time.Minute, 0)
	s.end(1, true)
	s.must(s.settle())
	s.pass(24 * time.Hour)
	s.has("a day later", 1, "", 2*time.Hour, 0)
}

// TestUndo: a session that did not begin counts as nothing, and one of a daemon that was killed meanwhile neither.
func TestUndo(t *testing.T) {
	s := newScene(t, Amount{Time: 2 * time.Hour}, Amount{})
	key := client(1)
	login := session.Login{SessionID: "a"}
	s.must(s.Begin(&login, key, DeviceOf(key.MAC), ""))
	s.must(s.Undo(login))
	login.SessionID = "b"
	s.must(s.Begin(&login, key, DeviceOf(key.MAC), ""))
	s.kill()
	s.has("after both", 1, "", 2*time.Hour, 0)
	if n := s.sessions.Number(); n != 0 {
		t.Errorf("%d sessions are open", n)
	}
}

// TestTidy: records of former days go, and those of the day and of open sessions stay.
func TestTidy(t *testing.T) {
	s := newScene(t, Amount{Time: 2 * time.Hour}, Amount{})
	for n := range byte(5) {
		s.must(s.begin(n, "", session.Limits{}))
	}
	s.pass(time.Minute)
	for n := range byte(3) {
		s.end(n, true)
	}
	s.must(s.settle())
	count := func() (n int) {
		s.must(s.store.Each("", func(Holder, []byte) (bool, error) { n++; return true, nil }))
		return n
	}
	s.must(s.tidy())
	if n := count(); n != 5 {
		t.Errorf("%d records on the same day", n)
	}
	s.wall, s.line = s.wall.Add(24*time.Hour), s.line.Add(24*time.Hour)
	s.must(s.tidy())
	if n := count(); n != 2 {
		t.Errorf("%d records a day later, want those of the open sessions", n)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add((&record{Day: 1, Since: 2, Used: allowance.Used{Online: 3, Bytes: 4, Uses: []allowance.Use{{Session: "a",
		MAC: "02:00:00:00:00:01", Addr: netip.MustParseAddr("10.1.0.2"), OnlineBefore: 5, OwnTime: 6}}}}).encode())
	f.Add([]byte(`{"d":1,"t":-1}`))
	f.Add([]byte(`{"d":1}{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data)
		if err != nil {
			return
		}
		if again, err := decode(r.encode()); err != nil || !bytes.Equal(again.encode(), r.encode()) {
			t.Errorf("%s became %s, %v", data, r.encode(), err)
		}
	})
}
