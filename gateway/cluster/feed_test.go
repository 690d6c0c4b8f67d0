// Tests of what gateways are told of each other's records. join runs a gateway's store with records of a file
// (store_test.go).

package cluster

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// seen is a follower that keeps what it was told.
type seen struct {
	mu      sync.Mutex
	records map[string]string // GATEWAY/KEY → OWNER CONTENT
	history []string          // of all
	synced  bool
}

func (f *seen) Put(gateway, key string, r Record) {
	f.note(gateway+"/"+key, r.Owner+" "+string(r.Content))
}
func (f *seen) Gone(gateway, key string) { f.note(gateway+"/"+key, "") }

func (f *seen) Synced(up bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = up
}

func (f *seen) note(key, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history = append(f.history, key+" "+text)
	if f.records[key] = text; text == "" {
		delete(f.records, key)
	}
}

// follow has a follower told of a store's sessions.
func follow(s *Store) *seen {
	f := &seen{records: map[string]string{}}
	s.Follow("sessions", f)
	return f
}

// holds waits until a follower knows exactly the records of a gateway's file.
func (f *seen) holds(t *testing.T, label string, of *file, gateway string) {
	t.Helper()
	netnstest.Await(t, label, func() error {
		want := map[string]string{}
		of.mu.Lock()
		for key, content := range of.records {
			want[gateway+"/"+key] = gateway + " " + string(content)
		}
		of.mu.Unlock()
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.synced {
			return errors.New("not all was told")
		}
		if !maps.Equal(f.records, want) {
			return fmt.Errorf("%d records instead of %d", len(f.records), len(want))
		}
		return nil
	})
}

// TestFollow: a gateway is told of another one's records, those that were there before it and those that change, in
// their order, and of none of its own. What it was told is right again after the server was emptied, killed and
// restarted, after its stream was cut, and after it was stopped, of which it is told.
// Long: each fault meets the records that the one before left.
func TestFollow(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, f, _ := join(t, options(server, "gw1"))
	f.put("a", "before")
	inStore(t, one, f)
	two, own, _ := join(t, options(server, "gw2"))
	told := follow(two)
	own.put("mine", "x")
	inStore(t, two, own)
	told.holds(t, "what was there before", f, "gw1")
	for i := range 500 {
		f.put("a", fmt.Sprint(i))
		if i%100 == 50 {
			f.put("a", "")
			inStore(t, one, f)
		}
	}
	told.holds(t, "changes", f, "gw1")
	last := -1
	for _, line := range told.history {
		var n int
		if _, err := fmt.Sscanf(line, "gw1/a gw1 %d", &n); err == nil && n <= last {
			t.Errorf("%d was told after %d", n, last)
		} else if err == nil {
			last = n
		}
		if strings.Contains(line, "mine") {
			t.Errorf("its own: %s", line)
		}
	}
	for _, c := range []struct {
		label  string
		happen func()
	}{
		{"emptied", func() { server.CLI("FLUSHALL") }},
		{"killed", func() { server.Kill(); server.Restart() }},
		{"cut", func() { server.CLI("DEL", "test:changes") }},
		{"cut with its number", func() { server.CLI("DEL", "test:changes", "test:changes:count") }},
		{"number lost", func() { server.CLI("DEL", "test:changes:count") }},
		{"trimmed", func() { server.CLI("XTRIM", "test:changes", "MAXLEN", "0") }},
		{"full", func() {
			server.CLI("CONFIG", "SET", "maxmemory", "1")
			f.put("a", "")
			netnstest.Await(t, "a full server deletes", func() error {
				if got := server.CLI("HGET", "test:sessions:gw1", "a"); got != "" {
					return errors.New(got)
				}
				return nil
			})
			server.CLI("CONFIG", "SET", "maxmemory", "0")
		}},
	} {
		f.put("a", c.label)
		f.put(c.label, "x")
		c.happen()
		f.put("b", c.label)
		f.put("cut", "")
		told.holds(t, c.label, f, "gw1")
	}
	server.Stop()
	netnstest.Await(t, "it is told that the store is away", func() error {
		told.mu.Lock()
		defer told.mu.Unlock()
		if told.synced {
			return errors.New("it is not")
		}
		return nil
	})
	f.put("b", "while it was stopped")
	server.Continue()
	told.holds(t, "the server goes on", f, "gw1")
}

// TestFollowTaken: who takes a record over is not told of it, the former owner is.
func TestFollowTaken(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, f, _ := join(t, options(server, "gw1"))
	two, _, _ := join(t, options(server, "gw2"))
	first, second := follow(one), follow(two)
	f.put("a", "x")
	second.holds(t, "it is told", f, "gw1")
	out, err := two.Swap(t.Context(), "sessions", "gw1", []Change{{Key: "a", Content: []byte("taken"), Version: 1}})
	if err != nil || !out[0].Done {
		t.Fatalf("%+v, %v", out, err)
	}
	netnstest.Await(t, "both know", func() error {
		first.mu.Lock()
		defer first.mu.Unlock()
		second.mu.Lock()
		defer second.mu.Unlock()
		if len(second.records) != 0 || first.records["gw1/a"] != "gw2 taken" {
			return fmt.Errorf("%v, %v", first.records, second.records)
		}
		return nil
	})
}

// TestFollowMany: a follower that comes later is told all, and one that stops is told nothing more.
func TestFollowMany(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	_, f, _ := join(t, options(server, "gw1"))
	two, _, _ := join(t, options(server, "gw2"))
	first := &seen{records: map[string]string{}}
	stop := two.Follow("sessions", first)
	for i := range 1200 {
		f.put(fmt.Sprint("k", i), "x")
	}
	first.holds(t, "the first", f, "gw1")
	stop()
	second := follow(two)
	f.put("k1", "")
	second.holds(t, "the second", f, "gw1")
	if n := len(first.records); n != 1200 {
		t.Errorf("who has stopped knows %d", n)
	}
}

// TestYield: a record that another gateway has taken stays, also when all records are compared, until its former
// gateway has done without it. Then what that one has counts again.
func TestYield(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	s, f, _ := join(t, options(server, "gw1"))
	f.put("a", "mine")
	f.put("b", "mine")
	inStore(t, s, f)
	other := Open(options(server, "gw2"))
	defer other.Close()
	out, err := other.Swap(t.Context(), "sessions", "gw1", []Change{
		{Key: "a", Content: []byte("theirs"), Version: 1}, {Key: "b", Content: []byte("theirs"), Version: 2}})
	if err != nil || !out[0].Done || !out[1].Done {
		t.Fatalf("%+v, %v", out, err)
	}
	stay := func(label string) {
		t.Helper()
		netnstest.Await(t, label, func() error {
			if st := s.State(); st.Foreign != 2 || st.Waiting != 0 || st.Behind != 0 {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
		if got := server.CLI("HMGET", "test:sessions:gw1", "a", "b"); got != "3 gw2 theirs\n4 gw2 theirs" {
			t.Errorf("they are %q", got)
		}
	}
	f.put("a", "again")
	f.Compare()
	stay("they are noticed")
	f.Yield("a", 3)
	f.Yield("a", 0) // it goes on
	f.put("a", "on")
	f.Compare()
	stay("it stays")
	f.Yield("a", 3)
	f.put("a", "ended")
	f.mu.Lock()
	delete(f.records, "b")
	f.mu.Unlock()
	f.Yield("b", 4)
	f.Compare()
	inStore(t, s, f)
}
