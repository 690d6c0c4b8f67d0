// TestTableMatchesModel does random operations on a table and on a model (model_test.go), which is the simplest correct
// table, and compares the two. memory is a data path in memory, and key(mac, host) the key of MAC 02:00:00:00:00:mac at
// 10.1.0.host (memory_test.go).

package session_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// world is a table, its model, and the data path they share.
type world struct {
	*rapid.T
	dir   string
	files int
	path  string // of the table's file
	dp    *memory
	model *model
	table *session.Table
	stop  func()
	done  []expected // accounted in this second: a crash may repeat them
	doneA time.Time
}

// TestTableMatchesModel performs random operations on a table and on its model: three clients use three addresses and
// an IPv6 address each, while the gateway restarts, crashes and reboots.
func TestTableMatchesModel(t *testing.T) {
	dir := t.TempDir()
	files := 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(t *rapid.T) {
			w := &world{T: t, dir: dir, files: files, dp: newMemory(), model: newModel()}
			w.dp.onSet = w.neverMoreOpen
			w.open(w.newFile())
			defer func() { w.stop(); files = w.files }()
			t.Repeat(map[string]func(*rapid.T){
				"lease": w.lease, "enter": w.enter, "forget": w.forget, "shown": w.shown, "admit": w.admit, "end": w.end,
				"send": w.send, "pass": w.pass, "account": w.account,
				"restart": w.restart, "crash": func(*rapid.T) { w.crash(false) }, "reboot": func(*rapid.T) { w.crash(true) },
				"": w.check,
			})
			w.accountAll()
		})
	})
}

// bubble hides the test's deadline from rapid: a synctest bubble has none.
type bubble struct{ testing.TB }

func (w *world) newFile() string {
	w.files++
	return filepath.Join(w.dir, fmt.Sprintf("%d.db", w.files))
}

func (w *world) open(path string) {
	table, err := session.Open(path, w.dp, discardLog)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- table.Run(ctx) }()
	w.table, w.path = table, path
	w.stop = func() {
		w.table = nil
		cancel()
		if err := errors.Join(<-ended, table.Close()); err != nil {
			w.Error(err)
		}
	}
	synctest.Wait()
}

// neverMoreOpen requires each Set to admit only clients that the file admits.
func (w *world) neverMoreOpen(c datapath.Client) {
	if w.table == nil {
		return // the client is being admitted
	}
	onDisk, err := w.table.OnDisk()
	if err != nil {
		w.Error(err)
	}
	allowed := map[session.Key]bool{}
	for _, s := range onDisk {
		for _, addr := range append(s.FurtherAddrs, s.Addr) {
			allowed[session.Key{MAC: s.MAC, Addr: addr}] = s.State == session.Authenticated
		}
	}
	if asked := (session.Key{MAC: c.MAC, Addr: c.Addrs[0]}); c.Admitted && !allowed[asked] {
		w.Errorf("%s is let in, and a crash now would not know", asked)
	}
	for _, k := range allKeys() {
		if w.dp.admits(k) && !allowed[k] {
			w.Errorf("%s is inside, and a crash now would not know", k)
		}
	}
}

func allKeys() (keys []session.Key) {
	for mac := range byte(3) {
		keys = append(keys, key6(mac))
		for host := range byte(3) {
			keys = append(keys, key(mac, host))
		}
	}
	return keys
}

// key6 is the key of a device without IPv4.
func key6(mac byte) session.Key {
	k := key(mac, 0)
	k.Addr = addr6(k.MAC)
	return k
}

var (
	someKey  = rapid.Custom(func(t *rapid.T) session.Key { return rapid.SampledFrom(allKeys()).Draw(t, "key") })
	leaseFor = rapid.SampledFrom([]time.Duration{0, time.Minute, 10 * time.Minute})
	limits   = rapid.Custom(func(t *rapid.T) session.Limits {
		pick := func(name string, d time.Duration) time.Duration {
			return rapid.SampledFrom([]time.Duration{0, d}).Draw(t, name)
		}
		return session.Limits{
			SessionTimeout: pick("session", 100*time.Second), IdleTimeout: pick("idle", 70*time.Second),
			Interim: pick("interim", 40*time.Second),
		}
	})
)

func (w *world) lease(t *rapid.T) {
	k := someKey.Filter(func(k session.Key) bool { return k.Addr.Is4() }).Draw(t, "client")
	hostname := rapid.StringMatching("[a-z]?").Draw(t, "hostname")
	end := time.Time{}
	if d := leaseFor.Draw(t, "for"); d > 0 {
		end = w.model.now.Add(d)
	}
	w.must(w.table.Lease(k, hostname, end))
	w.model.lease(k, hostname, end)
}

func (w *world) enter(t *rapid.T) {
	k := key6(rapid.ByteRange(0, 2).Draw(t, "device"))
	err := w.table.Enter(k)
	if w.model.enter(k) {
		w.must(err)
	} else if !errors.Is(err, session.ErrAddresses) && !errors.Is(err, session.ErrTaken) {
		w.Errorf("a device that has a client is entered: %v", err)
	}
}

func (w *world) forget(t *rapid.T) {
	k := someKey.Draw(t, "client")
	w.must(w.table.Forget(k))
	w.model.forget(k)
}

func (w *world) shown(t *rapid.T) {
	k := someKey.Draw(t, "client")
	w.checkKnown(k, w.table.Shown(k.Addr), session.ErrUnknown)
	w.model.shown(k.Addr)
}

func (w *world) admit(t *rapid.T) {
	k := someKey.Draw(t, "client")
	login := session.Login{User: "ada", Class: [][]byte{{1}}, Limits: limits.Draw(t, "limits")}
	s, err := w.table.Admit(k.Addr, login)
	if w.checkKnown(k, err, session.ErrUnknown) {
		w.model.admit(k.Addr, login, s.ID)
	}
}

func (w *world) end(t *rapid.T) {
	k := someKey.Draw(t, "client")
	_, err := w.table.End(k.Addr, session.AdminReset)
	c := w.model.at(k.Addr)
	if c != nil && c.State != session.Authenticated {
		if !errors.Is(err, session.ErrNoSession) {
			w.Errorf("ended a client that is %s: %v", c.State, err)
		}
	} else if w.checkKnown(k, err, session.ErrUnknown) {
		w.model.endKeeping(c, session.AdminReset, w.model.now)
	}
}

func (w *world) send(t *rapid.T) {
	k, n := someKey.Draw(t, "client"), rapid.Uint64Range(1, 3).Draw(t, "packets")
	want := w.model.send(k, n, 100)
	if up, down := w.dp.send(k, n, 100); up != want || down != want {
		w.Errorf("of %d packets of %s %d and %d passed, want %d", n, k, up, down, want)
	}
}

func (w *world) pass(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 150).Draw(t, "seconds")) * time.Second
	pass(d)
	w.model.advance(d)
}

func (w *world) account(*rapid.T) {
	if w.model.left() == 0 || w.table.Pending() == 0 {
		return
	}
	e, err := w.table.Next(context.Background())
	w.must(err)
	w.must(w.table.Done(e))
	want, found := w.model.take(e)
	if !found {
		w.Fatalf("event out of nowhere: %s %s %s", e.Kind, e.Cause, e.ID)
	}
	w.compare(want, e)
	if !w.doneA.Equal(w.model.now) {
		w.done, w.doneA = nil, w.model.now
	}
	want.optional = true
	w.done = append(w.done, want)
	// Waiting for an event that was about to be written took time.
	if passed := time.Since(w.model.now); passed > 0 {
		synctest.Wait()
		w.model.advance(passed)
	}
}

func (w *world) compare(want expected, got session.Event) {
	if want.anyCounts {
		if got.Cause != session.NASReboot || !noGreater(got.Counts, want.Counts) || got.At.After(want.At) ||
			got.At.Before(want.Began) {
			w.Errorf("end by a reboot: %+v, want at most %+v", got, want)
		}
		return
	}
	if diff := cmp.Diff(want.Event, got, sameEvent, cmpopts.EquateApproxTime(time.Millisecond)); diff != "" {
		w.Errorf("event (-want +got):\n%s", diff)
	}
}

// accountAll takes all pending events, and requires them to be the expected ones.
func (w *world) accountAll() {
	for w.model.left() > 0 {
		if w.table.Pending() == 0 {
			w.Fatalf("%d events never came: %+v", w.model.left(), w.model.events)
		}
		w.account(nil)
	}
}

func (w *world) restart(*rapid.T) {
	w.stop()
	w.open(w.path)
	w.model.restart()
}

// crash opens the table again with what is on the disk now.
func (w *world) crash(reboot bool) {
	path := w.newFile()
	w.must(w.table.CopyFile(path))
	w.stop() // writes to its own disk, which is not read
	if reboot {
		w.dp.restart()
	}
	w.model.crash(reboot)
	w.expectAgain()
	w.open(path)
	for addr, c := range w.model.clients {
		if c.shownAt.Equal(w.model.now) && c.State == session.PreAuth {
			if s, found := w.table.Get(addr); found && s.State == session.Leased {
				c.State = session.Leased
			}
		}
	}
}

// expectAgain expects the events of this second a second time, because a crash may repeat them.
func (w *world) expectAgain() {
	if !w.doneA.Equal(w.model.now) {
		return
	}
	for i := len(w.done) - 1; i >= 0; i-- {
		e := w.done[i]
		w.model.events[e.ID] = append([]expected{e}, w.model.events[e.ID]...)
	}
	w.done = nil
}

func (w *world) check(*rapid.T) {
	n, states := 0, map[session.State]int{}
	for got := range w.table.Each {
		n++
		states[got.State]++
		want := session.Session{}
		if c := w.model.clients[got.Addr]; c != nil {
			want = c.Session
		}
		if diff := cmp.Diff(want, got, sameEvent, cmpopts.EquateApproxTime(time.Millisecond)); diff != "" {
			w.Errorf("client %s (-want +got):\n%s", got.Key, diff)
		}
	}
	if n != len(w.model.clients) {
		w.Errorf("%d clients, want %d", n, len(w.model.clients))
	}
	if diff := cmp.Diff(states, w.table.States()); diff != "" {
		w.Errorf("clients by state (-listed +counted):\n%s", diff)
	}
	for _, k := range allKeys() {
		c := w.model.at(k.Addr)
		if want := c != nil && c.MAC == k.MAC && c.State == session.Authenticated; w.dp.admits(k) != want {
			w.Errorf("the data path admits %s: %v, want %v", k, !want, want)
		}
	}
}

func (w *world) must(err error) {
	if err != nil {
		w.Fatal(err)
	}
}

// checkKnown reports whether the address has a client, and checks err accordingly.
func (w *world) checkKnown(k session.Key, err, unknown error) bool {
	if w.model.at(k.Addr) == nil {
		if !errors.Is(err, unknown) {
			w.Errorf("%s has nobody: %v", k.Addr, err)
		}
		return false
	}
	w.must(err)
	return true
}
