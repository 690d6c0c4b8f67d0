// Tests with a real server of Redis, in a network of their own. A file stands for a gateway's own file of records.

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// file is a gateway's own records, and their mirror.
type file struct {
	*Mirror
	mu      sync.Mutex
	records map[string][]byte
}

func (f *file) put(key, content string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if content == "" {
		delete(f.records, key)
		f.Changed(key, nil)
		return
	}
	f.records[key] = []byte(content)
	f.Changed(key, []byte(content))
}

func (f *file) each(visit func(string, []byte) error) error {
	f.mu.Lock()
	all := maps.Clone(f.records)
	f.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if err := visit(key, all[key]); err != nil {
			return err
		}
	}
	return nil
}

// options are those of a gateway that uses a server.
func options(s *redistest.Server, name string) Options {
	return Options{Addresses: []string{s.Addr}, Prefix: "test:", Gateway: name, Instance: name + "-instance",
		Version: "1.2.3", Log: slog.New(slog.DiscardHandler), Sessions: func() int { return 7 }}
}

// join runs a gateway's store until the test ends or leave is called, with records that mirror f has.
func join(t *testing.T, o Options) (s *Store, f *file, leave func()) {
	t.Helper()
	s = Open(o)
	f = &file{Mirror: s.Mirror("sessions"), records: map[string][]byte{}}
	f.Read(f.each)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	leave = sync.OnceFunc(func() { stop(); <-ended; s.Close() })
	t.Cleanup(leave)
	return s, f, leave
}

// inStore waits until the store has exactly the records of a file.
func inStore(t *testing.T, s *Store, f *file) {
	t.Helper()
	netnstest.Await(t, "the store has the file's records", func() error {
		there := map[string][]byte{}
		err := s.Each(t.Context(), "sessions", s.Gateway, func(key string, r Record) error {
			there[key] = r.Content
			if r.Owner != s.Gateway {
				return fmt.Errorf("%s belongs to %q", key, r.Owner)
			}
			return nil
		})
		f.mu.Lock()
		defer f.mu.Unlock()
		if err == nil && !maps.EqualFunc(there, f.records, bytes.Equal) {
			err = fmt.Errorf("it has %d records and the file %d", len(there), len(f.records))
		}
		return err
	})
}

func await(t *testing.T, s *Store, up bool) {
	t.Helper()
	netnstest.Await(t, fmt.Sprintf("the store is up: %v", up), func() error {
		if st := s.State(); st.Up != up {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

// TestSwap: of two gateways that change the same record one succeeds, and the other learns the version and whose it is.
// A change that is tried again because its answer was lost is no conflict. Content may be any bytes. Long: each step
// needs the record that the one before left.
func TestSwap(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, two := Open(options(server, "gw1")), Open(options(server, "gw2"))
	defer one.Close()
	defer two.Close()
	swap := func(s *Store, c Change) Outcome {
		t.Helper()
		out, err := s.Swap(t.Context(), "sessions", "gw1", []Change{c})
		netnstest.Must(t, err)
		return out[0]
	}
	binary := []byte("\x00\n %d 7 \xff")
	first := swap(one, Change{Key: "a", Content: binary})
	if first != (Outcome{true, 1, "gw1"}) {
		t.Fatalf("a new record: %+v", first)
	}
	if again := swap(one, Change{Key: "a", Content: binary}); again != first {
		t.Errorf("the same once more: %+v", again)
	}
	if got := swap(two, Change{Key: "a", Content: binary}); got != (Outcome{false, 1, "gw1"}) {
		t.Errorf("by another gateway that does not know it: %+v", got)
	}
	if got := swap(two, Change{Key: "a", Content: []byte("taken"), Version: 1}); got != (Outcome{true, 2, "gw2"}) {
		t.Errorf("by another gateway that knows it: %+v", got)
	}
	for _, c := range []Change{{Key: "a", Content: []byte("late"), Version: 1}, {Key: "a", Version: 1}} {
		if got := swap(one, c); got != (Outcome{false, 2, "gw2"}) {
			t.Errorf("with the former version: %+v", got)
		}
	}
	netnstest.Must(t, one.Each(t.Context(), "sessions", "gw1", func(key string, r Record) error {
		if key != "a" || r.Version != 2 || r.Owner != "gw2" || string(r.Content) != "taken" {
			t.Errorf("%s is %+v", key, r)
		}
		return nil
	}))
	if got := swap(two, Change{Key: "a", Version: 2}); got != (Outcome{true, 0, ""}) {
		t.Errorf("deleted: %+v", got)
	}
	if got := swap(two, Change{Key: "a", Version: 2}); !got.Done {
		t.Errorf("deleted again: %+v", got)
	}
	var wins int
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			out, err := []*Store{one, two}[i%2].Swap(t.Context(), "sessions", "gw1",
				[]Change{{Key: "b", Content: []byte(strconv.Itoa(i))}})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if out[0].Done {
				wins++
			}
		})
	}
	if all.Wait(); wins != 1 {
		t.Errorf("%d of 8 made the record", wins)
	}
}

// TestStoreAway: records that change while the server is killed, stopped or full, or before it is emptied, are in it
// once it is back, and nothing waits for it meanwhile. What a gateway has ended is gone there. Long: each kind of fault
// meets the records that the one before left.
func TestStoreAway(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	s, f, leave := join(t, options(server, "gw1"))
	for i := range 600 {
		f.put(fmt.Sprint("k", i), fmt.Sprint("first ", i))
	}
	inStore(t, s, f)
	change := func(label string) {
		for i := range 50 {
			f.put(fmt.Sprint("k", i), label)
			f.put(fmt.Sprint(label, i), label)
			f.put(fmt.Sprint("k", 100+i), "")
		}
	}
	for _, c := range []struct {
		label      string
		away, back func()
	}{
		{"killed", server.Kill, server.Restart},
		{"stopped", server.Stop, server.Continue},
		{"full", func() { server.CLI("CONFIG", "SET", "maxmemory", "1") },
			func() { server.CLI("CONFIG", "SET", "maxmemory", "0") }},
	} {
		c.away()
		change(c.label)
		await(t, s, false)
		if st := s.State(); st.Waiting == 0 || st.Why == "" {
			t.Errorf("%s: %+v", c.label, st)
		}
		c.back()
		await(t, s, true)
		inStore(t, s, f)
	}
	server.CLI("FLUSHALL")
	inStore(t, s, f)
	server.CLI("HSET", "test:sessions:gw1", "k1", "by hand", "strange", "9 gw1 x", "other", "9 gw2 x")
	server.CLI("CLIENT", "KILL", "TYPE", "normal")
	netnstest.Await(t, "what was changed by hand is as before, but for another gateway's", func() error {
		all := server.CLI("HMGET", "test:sessions:gw1", "k1", "strange", "other")
		if got := strings.Split(all, "\n"); !strings.HasSuffix(got[0], " gw1 full") && len(got) == 3 || got[1] != "" ||
			got[2] != "9 gw2 x" {
			return errors.New(all)
		}
		return nil
	})
	server.CLI("HDEL", "test:sessions:gw1", "other")
	// What happened while the gateway was not there is found in its file.
	leave()
	if n := server.CLI("EXISTS", "test:alive:gw1"); n != "0" {
		t.Errorf("after its end the gateway is there: %s", n)
	}
	records := f.records
	delete(records, "k599")
	records["new"] = []byte("new")
	s, f, _ = join(t, options(server, "gw1"))
	f.mu.Lock()
	f.records = records
	f.mu.Unlock()
	f.Read(f.each)
	inStore(t, s, f)
}

// TestOverflow: more changes than are kept in memory reach the store.
func TestOverflow(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	s, f, _ := join(t, options(server, "gw1"))
	await(t, s, true)
	server.Kill()
	await(t, s, false)
	for i := range changesMost + 100 {
		f.put(fmt.Sprint("k", i), "x")
	}
	if st := s.State(); st.Waiting > changesMost || st.Behind == 0 {
		t.Errorf("%+v", st)
	}
	server.Restart()
	inStore(t, s, f)
}

// TestForeign: a record that another gateway has taken stays as it is.
func TestForeign(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	s, f, _ := join(t, options(server, "gw1"))
	f.put("a", "mine")
	inStore(t, s, f)
	other := Open(options(server, "gw2"))
	defer other.Close()
	out, err := other.Swap(t.Context(), "sessions", "gw1", []Change{{Key: "a", Content: []byte("theirs"), Version: 1}})
	if err != nil || !out[0].Done {
		t.Fatalf("%+v, %v", out, err)
	}
	f.put("a", "mine again")
	netnstest.Await(t, "it is noticed", func() error {
		if st := s.State(); st.Foreign != 1 || st.Waiting != 0 || !st.Up {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if got := server.CLI("HGET", "test:sessions:gw1", "a"); got != "2 gw2 theirs" {
		t.Errorf("it is %q", got)
	}
}

// TestVersionsOfOthers: a record with a version that no gateway writes is replaced, and stops nobody.
func TestVersionsOfOthers(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	s, f, _ := join(t, options(server, "gw1"))
	f.put("a", "mine")
	f.put("b", "mine")
	inStore(t, s, f)
	for i, version := range []string{"1000000000000000", "18446744073709551616"} {
		server.CLI("HSET", "test:sessions:gw1", "a", version+" gw1 mine")
		f.put("a", fmt.Sprint("again ", i))
		f.put("b", fmt.Sprint("too ", i))
		f.Compare()
		inStore(t, s, f)
	}
}

// TestMembers: gateways see each other, with what they say, and one that has ended is away. Two with the same name are
// refused, but not a gateway that was killed and starts again.
func TestMembers(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, _, _ := join(t, options(server, "gw1"))
	two, _, leave := join(t, options(server, "gw2"))
	await(t, one, true)
	await(t, two, true)
	see := func() string {
		all, err := one.Members(t.Context())
		netnstest.Must(t, err)
		var b strings.Builder
		for _, m := range all {
			fmt.Fprintf(&b, "%s %s %d %v;", m.Name, m.Version, m.Sessions, m.There)
		}
		return b.String()
	}
	if got := see(); got != "gw1 1.2.3 7 true;gw2 1.2.3 7 true;" {
		t.Error(got)
	}
	leave()
	if got := see(); got != "gw1 1.2.3 7 true;gw2 1.2.3 7 false;" {
		t.Error(got)
	}
	o := options(server, "gw1")
	again, _, _ := join(t, o)
	await(t, again, true)
	o.Instance = "another"
	double, f, _ := join(t, o)
	f.put("a", "not mine")
	netnstest.Await(t, "the name is another's", func() error {
		if st := double.State(); st.Up || !strings.Contains(st.Why, ErrName.Error()) {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if got := server.CLI("HLEN", "test:sessions:gw1"); got != "0" {
		t.Errorf("it has written %s records", got)
	}
}

// TestLogin: TLS, a user who may do only what gatewayd needs, and why the store is away where that fails.
func TestLogin(t *testing.T) {
	dir := t.TempDir()
	redistest.Certificate(t, dir)
	certificate := strings.ReplaceAll("tls-port PORT\ntls-cert-file DIR/server.pem\ntls-key-file DIR/server.key\n"+
		"tls-ca-cert-file DIR/ca.pem\ntls-auth-clients no", "DIR", dir)
	const port = "16379" // nobody else has the test's network
	server := redistest.Start(t, redistest.Place{}, strings.ReplaceAll(certificate, "PORT", port),
		"user default on nopass ~* +@all", "user gw on >right ~test:* +@all -@admin -@dangerous",
		"user weak on >right ~x:* +@all")
	authority, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	netnstest.Must(t, err)
	o := options(server, "gw1")
	o.Addresses, o.User, o.Password = []string{"127.0.0.1:" + port}, "gw", "right"
	o.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	o.TLS.RootCAs.AppendCertsFromPEM(authority)
	s, f, leave := join(t, o)
	f.put("a", "by TLS")
	inStore(t, s, f)
	if _, err := s.Members(t.Context()); err != nil {
		t.Error(err)
	}
	leave()
	for _, c := range []struct {
		change func(*Options)
		why    string
	}{
		{func(o *Options) { o.Password = "wrong" }, "store.user"},
		{func(o *Options) { o.User = "weak" }, "docs/cluster.md"},
		{func(o *Options) { o.TLS = &tls.Config{RootCAs: x509.NewCertPool()} }, "certificate"},
	} {
		bad := o
		c.change(&bad)
		s, _, leave := join(t, bad)
		netnstest.Await(t, "it is said why: "+c.why, func() error {
			if why := s.State().Why; !strings.Contains(why, c.why) {
				return errors.New(why)
			}
			return nil
		})
		leave()
	}
}

// TestNobodyWaits: what the gateway does, and its end, do not wait for a server that does not answer.
func TestNobodyWaits(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	s, f, leave := join(t, options(server, "gw1"))
	await(t, s, true)
	server.Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 1000 {
			f.put(fmt.Sprint("k", i), "x")
			s.State()
		}
		if _, err := s.Members(t.Context()); err == nil {
			t.Error("a stopped server answers")
		}
		leave()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute): // it takes seconds, on a busy machine more
		t.Error("something waits for the server")
	}
	server.Continue()
}

// TestRecordsThatAreNoMore: a store is not behind with records that nobody can read any more, as of a network that was
// taken out of the configuration.
func TestRecordsThatAreNoMore(t *testing.T) {
	s := Open(options(&redistest.Server{Addr: "127.0.0.1:1"}, "gw1"))
	defer s.Close()
	m := s.Mirror("sessions.former")
	m.Read(func(func(string, []byte) error) error { return nil })
	if _, since := m.waiting(); since.IsZero() {
		t.Error("they need not be compared")
	}
	m.Read(nil)
	s.compareAll() // as with a new connection
	if st := s.State(); st.Behind != 0 || st.Waiting != 0 {
		t.Errorf("afterwards: %+v", st)
	}
}
