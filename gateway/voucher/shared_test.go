// Tests of a book that two gateways have together, in a real server of Redis.

package voucher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/allowance"
	"github.com/gateweigh/gateweigh/gateway/allowance/allowancetest"
	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// member is a gateway's book and the table of its only network.
type member struct {
	*Book
	t      testing.TB
	folder string
	server *redistest.Server
	name   string
	table  *allowancetest.Table
	store  *cluster.Store
	other  *member // whose open sessions are known here; nil: nobody's
	leave  func()  // ends the gateway in order
}

// joinBook begins a gateway with a state folder.
func joinBook(t testing.TB, server *redistest.Server, name, folder string) *member {
	t.Helper()
	m := &member{t: t, folder: folder, server: server, name: name, table: &allowancetest.Table{}}
	netnstest.Must(t, m.open())
	return m
}

// open begins the gateway, whose sessions are those of its table.
func (m *member) open() error {
	m.store = cluster.Open(cluster.Options{Addresses: []string{m.server.Addr}, Prefix: "test:", Gateway: m.name,
		Instance: m.name, Log: slog.New(slog.DiscardHandler), Sessions: func() int { return 0 }})
	var err error
	if m.Book, err = OpenShared(m.folder, m.store, m.elsewhere, slog.New(slog.DiscardHandler)); err != nil {
		return errors.Join(err, m.store.Close())
	}
	m.table.Ended = m.SessionEnded
	netnstest.Must(m.t, m.Serve("", m.table))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { m.store.Run(ctx) })
	running.Go(func() { m.Run(ctx) })
	m.leave = sync.OnceFunc(func() {
		stop()
		running.Wait()
		m.Book.Close()
		m.store.Close()
	})
	m.t.Cleanup(m.leave)
	return nil
}

// elsewhere returns a session of the other gateway, as an index of the store's sessions does.
func (m *member) elsewhere(u allowance.Use) (s session.Session, known bool) {
	if m.other == nil {
		return s, false
	}
	s, known = m.other.table.Get(u.Addr)
	return s, known && s.ID == u.Session
}

// logIn logs a device in, as a gateway does.
func (m *member) logIn(code Code, n int) error {
	login, err := m.Login(string(code))
	if err != nil {
		return err
	}
	login.SessionID, login.For = session.NewID(), device(n)
	if err := m.Begin(&login, login.For, ""); err != nil {
		return err
	}
	m.table.Begin(login.For, login)
	return m.Began(login)
}

// logOut ends a device's session, and accounts it.
func (m *member) logOut(n int) {
	m.t.Helper()
	one, found := m.table.End(device(n).Addr, session.UserRequest)
	if !found {
		m.t.Fatalf("%s: device %d has no session", m.name, n)
	}
	m.SessionEnded(one)
	netnstest.Must(m.t, m.EndAccounted(session.Event{Kind: session.Ended, Session: one, At: time.Now()}))
	m.table.Account()
}

// list is what "voucher list" shows of all vouchers, without moments.
func (m *member) list() string {
	var b strings.Builder
	err := m.Each("", func(v Voucher) bool {
		fmt.Fprintf(&b, "%s %s %s %d sessions %d bytes\n", v.Name, v.Code, v.State, v.Sessions, v.UsedBytes)
		return true
	})
	if err != nil {
		fmt.Fprint(&b, err)
	}
	return b.String()
}

// agreeOn waits until gateways list the same vouchers, among them what is wanted.
func agreeOn(label string, want string, all ...*member) {
	t := all[0].t
	t.Helper()
	netnstest.Await(t, label, func() error {
		for _, m := range all {
			if got := m.list(); got != all[0].list() || !strings.Contains(got, want) {
				return fmt.Errorf("%s lists, and not %q:\n%s%s lists:\n%s", m.name, want, got, all[0].name, all[0].list())
			}
		}
		return nil
	})
}

// ready waits until gateways are as the store is.
func ready(all ...*member) {
	for _, m := range all {
		m.t.Helper()
		netnstest.Until(m.t, m.name+" is as the store", m.common.ready)
	}
}

// twoBooks are two gateways with one store.
func twoBooks(t *testing.T) (server *redistest.Server, one, two *member) {
	server = redistest.Start(t, redistest.Place{})
	one, two = joinBook(t, server, "gw1", t.TempDir()), joinBook(t, server, "gw2", t.TempDir())
	ready(one, two)
	return server, one, two
}

// TestOneOfTwo: of two devices that want the only place of a voucher at two gateways at the same moment exactly one
// gets it.
func TestOneOfTwo(t *testing.T) {
	_, one, two := twoBooks(t)
	made, err := one.Create("lobby", 20, Terms{Devices: 1, ForSeconds: 3600})
	netnstest.Must(t, err)
	agreeOn("both have the batch", "lobby-20 ", one, two)
	for i, v := range made {
		var errs [2]error
		var both sync.WaitGroup
		for n, m := range []*member{one, two} {
			both.Go(func() { errs[n] = m.logIn(v.Code, 2*i+n) })
		}
		both.Wait()
		for n, err := range errs {
			if err != nil && !errors.Is(err, session.ErrSessions) || errs[1-n] != nil && err != nil {
				t.Fatalf("%s: %v", v.Name, errs)
			}
		}
		if errs[0] == nil && errs[1] == nil {
			t.Fatalf("%s admits two devices", v.Name)
		}
	}
	agreeOn("both know who is in", "lobby-20 "+made[19].Code.String()+" in-use 1 sessions", one, two)
}

// TestOverGateways: what sessions at one gateway use is used at the other, a voucher that is revoked at one ends its
// sessions at the other, and a device that walks to the other keeps its place there.
func TestOverGateways(t *testing.T) {
	_, one, two := twoBooks(t)
	made, err := one.Create("lobby", 3, Terms{Devices: 1, Bytes: gigabyte})
	netnstest.Must(t, err)
	agreeOn("both have the batch", "lobby-3 ", one, two)
	netnstest.Must(t, one.logIn(made[0].Code, 1))
	one.table.Use(device(1).Addr, gigabyte/4)
	one.logOut(1)
	agreeOn("the end is known", fmt.Sprint("in-use 0 sessions ", gigabyte/4, " bytes"), one, two)
	netnstest.Must(t, two.logIn(made[0].Code, 2))
	if s, _ := two.table.Get(device(2).Addr); s.Limits.TotalBytes != gigabyte*3/4 {
		t.Errorf("at the other gateway it may use %d", s.Limits.TotalBytes)
	}
	if done, err := one.Revoke(t.Context(), "lobby-1"); err != nil || done.Vouchers != 1 {
		t.Errorf("revoked: %+v, %v", done, err)
	}
	agreeOn("its session has ended at the other", "revoked 0 sessions", one, two)
	if n := two.table.Number(); n != 0 {
		t.Errorf("the other gateway has %d sessions", n)
	}
	netnstest.Must(t, one.logIn(made[1].Code, 3))
	one.table.Use(device(3).Addr, 1000)
	netnstest.Must(t, two.logIn(made[1].Code, 3))
	agreeOn("the device is at the other gateway", made[1].Code.String()+" in-use 1 sessions 1000 bytes", one, two)
	if one.table.Number() != 0 || two.table.Number() != 1 {
		t.Errorf("the gateways have %d and %d sessions", one.table.Number(), two.table.Number())
	}
}

// TestVouchersWithoutStore: while the store is away who is in goes on, ends are kept, also over a restart, and nobody
// new comes in. When it is back, or was emptied, or has lost its last changes, both gateways agree, and each session is
// counted once. Long: the steps of one run, each of which needs the state that the one before left.
func TestVouchersWithoutStore(t *testing.T) {
	server, one, two := twoBooks(t)
	made, err := one.Create("", 4, Terms{Devices: 2, Bytes: gigabyte})
	netnstest.Must(t, err)
	code := made[0].Code
	agreeOn("both have the batch", "1-4 ", one, two)
	netnstest.Must(t, one.logIn(code, 1))
	netnstest.Must(t, two.logIn(code, 2))
	agreeOn("both are in", "in-use 2 sessions 0 bytes", one, two)
	server.Kill()
	one.table.Use(device(1).Addr, 1000)
	two.table.Use(device(2).Addr, 500)
	one.logOut(1)
	if err := one.logIn(made[1].Code, 3); !errors.Is(err, session.ErrTryAgain) || errors.Is(err, session.ErrRejected) {
		t.Errorf("without the store: %v", err)
	}
	if _, err := one.Create("more", 1, Terms{Devices: 1}); !errors.Is(err, session.ErrTryAgain) {
		t.Errorf("vouchers are made without the store: %v", err)
	}
	if one.table.Number() != 0 || two.table.Number() != 1 {
		t.Errorf("without the store the gateways have %d and %d sessions", one.table.Number(), two.table.Number())
	}
	one.leave()
	netnstest.Must(t, one.open())
	if got := one.list(); !strings.Contains(got, "in-use 1 sessions 1000 bytes") {
		t.Errorf("without the store, after a restart:\n%s", got)
	}
	server.Restart()
	ready(one, two)
	agreeOn("the store is back", "in-use 1 sessions 1500 bytes", two)
	two.logOut(2)
	agreeOn("the other one is out", "in-use 0 sessions 1500 bytes", one, two)

	server.CLI("FLUSHALL")
	netnstest.Must(t, one.logIn(made[1].Code, 3))
	agreeOn("the store was emptied", "1-2 "+made[1].Code.String()+" in-use 1 sessions 0 bytes", one, two)
	agreeOn("the former use is known", "1-1 "+code.String()+" in-use 0 sessions 1500 bytes", one, two)

	lost := server.CLI("HGETALL", "test:vouchers:all")
	one.table.Use(device(3).Addr, 700)
	one.logOut(3)
	netnstest.Must(t, two.logIn(made[2].Code, 4))
	agreeOn("one is out and one is in", "1-2 "+made[1].Code.String()+" in-use 0 sessions 700 bytes", one, two)
	lines := strings.Split(lost, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		server.CLI("HSET", "test:vouchers:all", lines[i], lines[i+1])
	}
	server.CLI("CLIENT", "KILL", "TYPE", "normal")
	agreeOn("the store has lost its last changes", "1-2 "+made[1].Code.String()+" in-use 0 sessions 700 bytes", one, two)
	agreeOn("who is in, is", "1-3 "+made[2].Code.String()+" in-use 1 sessions", one, two)
}

// TestLateBegin: a login that the stopped store carries out only when it goes on keeps no place.
func TestLateBegin(t *testing.T) {
	server, one, two := twoBooks(t)
	made, err := one.Create("lobby", 1, Terms{Devices: 1, ForSeconds: 3600})
	netnstest.Must(t, err)
	agreeOn("both have the batch", "lobby-1 ", one, two)
	server.Stop()
	began := time.Now()
	if err := one.logIn(made[0].Code, 1); !errors.Is(err, session.ErrTryAgain) {
		t.Errorf("a stopped store: %v", err)
	}
	t.Log("it took", time.Since(began))
	server.Continue()
	netnstest.Await(t, "its place is free", func() error { return two.logIn(made[0].Code, 2) })
	agreeOn("one is in", "in-use 1 sessions", one, two)
	if one.table.Number() != 0 || two.table.Number() != 1 {
		t.Errorf("the gateways have %d and %d sessions", one.table.Number(), two.table.Number())
	}
}

// TestJoiningVouchers: a gateway that comes to a store brings its vouchers, with the sessions that are open. One with a
// batch whose name the store has does not start, and says why.
func TestJoiningVouchers(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	folders := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	var codes []Code
	for i, name := range []string{"lobby", "bar", "bar"} {
		alone, err := Open(folders[i], slog.New(slog.DiscardHandler))
		netnstest.Must(t, err)
		made, err := alone.Create(name, 2, Terms{Devices: 1, ForSeconds: 3600})
		netnstest.Must(t, err)
		codes = append(codes, made[1].Code)
		if i == 0 {
			login, err := alone.Login(string(made[1].Code))
			login.SessionID = "open"
			netnstest.Must(t, errors.Join(err, alone.Begin(&login, device(1), "")))
		}
		netnstest.Must(t, alone.Close())
	}
	one := &member{t: t, folder: folders[0], server: server, name: "gw1", table: &allowancetest.Table{}}
	one.table.Set(session.Session{Key: device(1), State: session.Authenticated, ID: "open", Began: time.Now(),
		Login: session.Login{User: UserOf("lobby-2"), Voucher: "lobby-2"}})
	netnstest.Must(t, one.open())
	two := joinBook(t, server, "gw2", folders[1])
	ready(one, two)
	agreeOn("both have all", "bar-2 "+codes[1].String()+" new", one, two)
	agreeOn("with the session", "lobby-2 "+codes[0].String()+" in-use 1 sessions", one, two)
	if one.table.Number() != 1 {
		t.Error("the session has ended")
	}
	if err := two.logIn(codes[0], 2); !errors.Is(err, session.ErrSessions) {
		t.Errorf("at the other gateway: %v", err)
	}
	one.table.Use(device(1).Addr, 1000)
	one.logOut(1)
	agreeOn("the session has ended", "lobby-2 "+codes[0].String()+" in-use 0 sessions 1000 bytes", one, two)
	third := &member{t: t, folder: folders[2], server: server, name: "gw3", table: &allowancetest.Table{}}
	if err := third.open(); !errors.Is(err, ErrAlien) || !strings.Contains(err.Error(), "bar") {
		t.Errorf("with a batch of the same name: %v", err)
	}
}

// TestLostCopy: a session goes on, keeps its place and counts where its gateway has lost its file of vouchers.
func TestLostCopy(t *testing.T) {
	server, one, two := twoBooks(t)
	made, err := one.Create("lobby", 1, Terms{Devices: 1, Bytes: gigabyte})
	netnstest.Must(t, err)
	agreeOn("both have the batch", "lobby-1 ", one, two)
	netnstest.Must(t, one.logIn(made[0].Code, 1))
	server.Stop()
	one.leave()
	netnstest.Must(t, os.Remove(filepath.Join(one.folder, FileName)))
	netnstest.Must(t, one.open())
	server.Continue()
	ready(one, two)
	agreeOn("it goes on", "in-use 1 sessions 0 bytes", one, two)
	one.table.Use(device(1).Addr, 1000)
	one.logOut(1)
	agreeOn("it has ended", "in-use 0 sessions 1000 bytes", one, two)
}

// TestMadeAtOnce: batches that two gateways make at the same moment have different names and numbers.
func TestMadeAtOnce(t *testing.T) {
	_, one, two := twoBooks(t)
	for i := range 5 {
		var both sync.WaitGroup
		var errs, named [2]error
		for n, m := range []*member{one, two} {
			both.Go(func() {
				_, errs[n] = m.Create("", 10, Terms{Devices: 1})
				_, named[n] = m.Create(fmt.Sprint("of", i), 10, Terms{Devices: 1})
			})
		}
		both.Wait()
		netnstest.Must(t, errors.Join(errs[0], errs[1]))
		if (named[0] == nil) == (named[1] == nil) || !errors.Is(errors.Join(named[0], named[1]), ErrTaken) {
			t.Errorf("two batches of one name: %v", named)
		}
	}
	netnstest.Await(t, "both have all", func() error {
		if got := one.list(); got != two.list() || strings.Count(got, "\n") != 5*(10+10+10) {
			return fmt.Errorf("%s has\n%s, %s has\n%s", one.name, got, two.name, two.list())
		}
		return nil
	})
}

// TestOpenElsewhereCounts: what a session at one gateway has used and goes on to use leaves a voucher's session at
// another one less, and both end when the voucher's data is used up together.
func TestOpenElsewhereCounts(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	two := joinBook(t, server, "gw2", t.TempDir())
	one := &member{t: t, folder: t.TempDir(), server: server, name: "gw1", table: &allowancetest.Table{}, other: two}
	netnstest.Must(t, one.open())
	made, err := one.Create("lobby", 1, Terms{Devices: 2, OnlineSeconds: 3600, Bytes: 1000})
	netnstest.Must(t, err)
	agreeOn("both have the voucher", "new", one, two)
	netnstest.Must(t, two.logIn(made[0].Code, 2))
	two.table.Age(20 * time.Minute)
	two.table.Use(device(2).Addr, 300)
	agreeOn("both know of its session", "in-use 1", one, two)
	left := func(label string, time time.Duration, bytes uint64) {
		t.Helper()
		netnstest.Await(t, label, func() error {
			s, _ := one.table.Get(device(1).Addr)
			if has := s.Limits; (has.SessionTimeout-time).Abs() > 5e9 || has.TotalBytes != bytes {
				return fmt.Errorf("%v and %d bytes, want %v and %d", has.SessionTimeout, has.TotalBytes, time, bytes)
			}
			return nil
		})
	}
	netnstest.Await(t, "a session at the first gateway", func() error { return one.logIn(made[0].Code, 1) })
	left("half of the time, and the data", 20*time.Minute, 700)
	two.table.Use(device(2).Addr, 400)
	left("less data", 20*time.Minute, 300)
	two.table.Use(device(2).Addr, 300)
	netnstest.Await(t, "the session ends with the data", func() error {
		if s, there := one.table.Get(device(1).Addr); there {
			return fmt.Errorf("it goes on with %+v", s.Limits)
		}
		return nil
	})
}
