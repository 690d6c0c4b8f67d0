// Tests of the table's operations. memory_test.go has the helpers: newMemory is a data path in memory; key(mac, host)
// is MAC 02:00:00:00:00:mac at 10.1.0.host; openTable opens a table in a file; lease gives a client a lease, admit logs
// it in, get reads its session, drain takes all pending events, and kinds lists what kinds they are.

package session_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestClientGoesThroughItsStates: a client is leased, redirected, logged in and logged out, and its state says so.
// Long: the steps of one run, each of which needs the state that the one before left.
func TestClientGoesThroughItsStates(t *testing.T) {
	dp := newMemory()
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
	k := key(1, 5)
	lease(t, table, k)
	if s := get(t, table, k); s.State != session.Leased || s.Hostname != "phone" || s.LeaseEnd.IsZero() ||
		s.LeasedAt.IsZero() {
		t.Errorf("leased: %+v", s)
	}
	if c, found := dp.client(k.Addr); !found || c.MAC != k.MAC || c.Admitted {
		t.Errorf("the data path has %+v, %v of a leased client", c, found)
	}
	for range 2 {
		if err := table.Shown(k.Addr); err != nil {
			t.Fatal(err)
		}
	}
	if s := get(t, table, k); s.State != session.PreAuth {
		t.Errorf("shown the portal: %s", s.State)
	}
	begun := admit(t, table, k, session.Limits{})
	if up, down := dp.send(k, 3, 1000); up != 3 || down != 3 {
		t.Errorf("of an authenticated client's 3 packets %d and %d passed", up, down)
	}
	s := get(t, table, k)
	if want := (session.Counts{UpBytes: 3000, UpPackets: 3, DownBytes: 3000, DownPackets: 3}); s.Counts != want {
		t.Errorf("counts %+v, want %+v", s.Counts, want)
	}
	if s.State != session.Authenticated || s.User != "ada" || s.ID != begun.ID || len(s.ID) != 16 ||
		!s.Seen.After(s.Began) {
		t.Errorf("authenticated: %+v", s)
	}
	ended, err := table.End(k.Addr, session.UserRequest)
	if err != nil || ended.ID != begun.ID || ended.Counts != s.Counts {
		t.Errorf("End = %+v, %v", ended, err)
	}
	if dp.admits(k) {
		t.Error("packets pass after the end")
	}
	if s := get(t, table, k); s.State != session.PreAuth || s.User != "" || s.ID != "" || s.Counts != (session.Counts{}) {
		t.Errorf("after the end: %+v", s)
	}
	if err := table.Forget(k); err != nil {
		t.Fatal(err)
	}
	_, inTable := table.Get(k.Addr)
	if _, inDatapath := dp.client(k.Addr); inTable || inDatapath {
		t.Errorf("a forgotten client is in the table: %v, in the data path: %v", inTable, inDatapath)
	}
	checkEvents(t, drain(t, table), begun.ID, session.UserRequest)
}

// checkEvents checks that a session has one start and one end.
func checkEvents(t *testing.T, events []session.Event, id string, cause session.Cause) {
	t.Helper()
	if want := []session.Kind{session.Started, session.Ended}; !slices.Equal(kinds(events), want) {
		t.Fatalf("events %v, want %v", kinds(events), want)
	}
	for _, e := range events {
		if e.ID != id || e.User != "ada" || len(e.Class) != 2 {
			t.Errorf("%s: %+v", e.Kind, e.Session)
		}
	}
	if events[0].Cause != "" || events[1].Cause != cause {
		t.Errorf("causes %q and %q, want none and %q", events[0].Cause, events[1].Cause, cause)
	}
}

func TestUnknownClients(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	k := key(1, 5)
	_, admitErr := table.Admit(k.Addr, session.Login{})
	_, endErr := table.End(k.Addr, session.UserRequest)
	for name, err := range map[string]error{"Admit": admitErr, "End": endErr, "Shown": table.Shown(k.Addr)} {
		if !errors.Is(err, session.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := table.Forget(k); err != nil {
		t.Errorf("forgetting nobody: %v", err)
	}
	six := session.Key{Addr: netip.MustParseAddr("2001:db8::1")}
	if err := table.Lease(six, "", time.Time{}); err == nil {
		t.Error("an IPv6 address was leased")
	}
	mapped := session.Key{MAC: k.MAC, Addr: netip.AddrFrom16(k.Addr.As16())}
	lease(t, table, mapped)
	get(t, table, k)
	if _, err := table.End(k.Addr, session.UserRequest); !errors.Is(err, session.ErrNoSession) {
		t.Errorf("ended no session: %v", err)
	}
	if events := drain(t, table); len(events) > 0 {
		t.Errorf("events %v of nothing", events)
	}
}

func TestAddressGoesToAnotherClient(t *testing.T) {
	dp := newMemory()
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
	before, current := key(1, 5), key(2, 5)
	lease(t, table, before)
	begun := admit(t, table, before, session.Limits{})
	dp.send(before, 2, 100)
	lease(t, table, current)
	if s := get(t, table, current); s.State != session.Leased {
		t.Errorf("the new client is %s", s.State)
	}
	if dp.admits(before) || dp.admits(current) {
		t.Error("somebody is still admitted")
	}
	events := drain(t, table)
	checkEvents(t, events, begun.ID, session.NASRequest)
	if e := events[1]; e.Key != before || e.UpBytes != 200 {
		t.Errorf("ended: %s with %+v", e.Key, e.Counts)
	}
	if err := table.Forget(before); err != nil {
		t.Fatal(err)
	}
	get(t, table, current)
	if _, err := table.Admit(current.Addr, session.Login{For: before}); !errors.Is(err, session.ErrMoved) {
		t.Errorf("the new client was admitted for the old one: %v", err)
	}
}

func TestReadmission(t *testing.T) {
	dp := newMemory()
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
	k := key(1, 5)
	lease(t, table, k)
	first := admit(t, table, k, session.Limits{})
	dp.send(k, 5, 100)
	second := admit(t, table, k, session.Limits{UpBytes: 1000})
	dp.send(k, 1, 100)
	if second.ID == first.ID || second.Counts != (session.Counts{}) {
		t.Errorf("second session: %+v", second)
	}
	if s := get(t, table, k); s.UpBytes != 100 {
		t.Errorf("%d bytes of the second session, want 100", s.UpBytes)
	}
	if c, _ := dp.client(k.Addr); c.Limits.UpBytes != 1500 {
		t.Errorf("the quota ends at counter %d, want 1500", c.Limits.UpBytes)
	}
	events := drain(t, table)
	if want := []session.Kind{session.Started, session.Ended, session.Started}; !slices.Equal(kinds(events), want) {
		t.Fatalf("events %v, want %v", kinds(events), want)
	}
	if e := events[1]; e.ID != first.ID || e.Cause != session.UserRequest || e.UpBytes != 500 {
		t.Errorf("end of the first: %+v", e)
	}
}

// TestSessionHasTheIDThatWasAskedWith: accounting uses the ID that was sent with the login.
func TestSessionHasTheIDThatWasAskedWith(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	k := key(1, 5)
	lease(t, table, k)
	if s, err := table.Admit(k.Addr, session.Login{SessionID: "00deadbeef001234"}); err != nil ||
		s.ID != "00deadbeef001234" {
		t.Errorf("session %q, %v", s.ID, err)
	}
	if _, err := table.Admit(k.Addr, session.Login{SessionID: strings.Repeat("0", 254)}); err == nil {
		t.Error("an ID that RADIUS cannot carry was taken")
	}
	for _, e := range drain(t, table) {
		if e.ID != "00deadbeef001234" {
			t.Errorf("%s tells of session %q", e.Kind, e.ID)
		}
	}
}

func TestLeaseIsRenewed(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	k := key(1, 5)
	end := time.Now().Add(time.Hour)
	if err := table.Lease(k, "phone", end); err != nil {
		t.Fatal(err)
	}
	id := admit(t, table, k, session.Limits{}).ID
	before, err := table.Transactions()
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Lease(k, "phone", end.Round(0)); err != nil {
		t.Fatal(err)
	}
	if after, err := table.Transactions(); err != nil || after != before {
		t.Errorf("%d transactions to say nothing new (%v)", after-before, err)
	}
	later := end.Add(time.Hour)
	if err := table.Lease(k, "tablet\x00\n", later); err != nil {
		t.Fatal(err)
	}
	s := get(t, table, k)
	if s.ID != id || s.Hostname != "tablet" || s.LeaseEnd.Sub(later).Abs() > time.Millisecond {
		t.Errorf("renewed: %+v", s)
	}
	if err := table.Lease(k, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if s := get(t, table, k); !s.LeaseEnd.IsZero() {
		t.Errorf("a lease for ever ends at %s", s.LeaseEnd)
	}
}

func TestSessionIsACopy(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	k := key(1, 5)
	lease(t, table, k)
	login := session.Login{User: "ada", Class: [][]byte{{1, 2}}}
	s, err := table.Admit(k.Addr, login)
	if err != nil {
		t.Fatal(err)
	}
	login.Class[0][0], s.Class[0][1] = 9, 9
	got := get(t, table, k)
	if want := [][]byte{{1, 2}}; !cmp.Equal(got.Class, want) {
		t.Errorf("class %v, want %v", got.Class, want)
	}
}

func TestLoginsThatAreRefused(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	k := key(1, 5)
	lease(t, table, k)
	for name, login := range map[string]session.Login{
		"long user":     {User: strings.Repeat("a", 254)},
		"much class":    {Class: [][]byte{make([]byte, 4095)}},
		"negative time": {Limits: session.Limits{IdleTimeout: -1}},
	} {
		if _, err := table.Admit(k.Addr, login); err == nil {
			t.Errorf("%s: admitted", name)
		}
	}
	if s := get(t, table, k); s.State != session.Leased {
		t.Errorf("state %s after refused logins", s.State)
	}
}

func TestEachIsOrdered(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	for _, host := range []byte{9, 200, 30, 4} {
		lease(t, table, key(host, host))
	}
	var hosts []byte
	for s := range table.Each {
		hosts = append(hosts, s.Addr.As4()[3])
		if len(hosts) == 3 {
			break
		}
	}
	if want := []byte{4, 9, 30}; !slices.Equal(hosts, want) {
		t.Errorf("hosts %v, want %v", hosts, want)
	}
}

// TestDataPathRefuses checks that a failed change leaves no access open.
func TestDataPathRefuses(t *testing.T) {
	dp := newMemory()
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
	k, other := key(1, 5), key(2, 6)
	lease(t, table, k)
	dp.refuseWith(syscall.ENOSPC)
	if _, err := table.Admit(k.Addr, session.Login{User: "ada", Class: [][]byte{{1}, {2}}}); !errors.Is(
		err, syscall.ENOSPC) {
		t.Errorf("Admit: %v", err)
	}
	if err := table.Lease(other, "", time.Time{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Lease: %v", err)
	}
	if s := get(t, table, k); s.State != session.PreAuth {
		t.Errorf("a client the data path would not admit is %s", s.State)
	}
	events := drain(t, table)
	checkEvents(t, events, events[0].ID, session.NASError)

	dp.refuseWith(nil)
	lease(t, table, other) // says it again
	if c, found := dp.client(other.Addr); !found || c.MAC != other.MAC {
		t.Error("the data path was not told of a client that said its lease again")
	}
	id := admit(t, table, k, session.Limits{}).ID
	dp.refuseWith(syscall.EIO)
	if _, err := table.End(k.Addr, session.UserRequest); !errors.Is(err, syscall.EIO) {
		t.Errorf("End: %v", err)
	}
	if err := table.Forget(k); !errors.Is(err, syscall.EIO) {
		t.Errorf("Forget: %v", err)
	}
	if s := get(t, table, k); s.ID != id {
		t.Errorf("a session that could not be ended: %+v", s)
	}
}

func TestClosedTable(t *testing.T) {
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), newMemory())
	k := key(1, 5)
	lease(t, table, k)
	waited := make(chan error)
	go func() {
		_, err := table.Next(t.Context())
		waited <- err
	}()
	if err := errors.Join(table.Close(), table.Close()); err != nil {
		t.Fatal(err)
	}
	_, admitErr := table.Admit(k.Addr, session.Login{})
	_, endErr := table.End(k.Addr, session.UserRequest)
	for name, err := range map[string]error{
		"Next": <-waited, "Run": table.Run(t.Context()), "Lease": table.Lease(k, "", time.Time{}), "Forget": table.Forget(k),
		"Shown": table.Shown(k.Addr), "Admit": admitErr, "End": endErr, "Done": table.Done(session.Event{}),
	} {
		if !errors.Is(err, session.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, found := table.Get(k.Addr); found {
		t.Error("Get found a client in a closed table")
	}
}
