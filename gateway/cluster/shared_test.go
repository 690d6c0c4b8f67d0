package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// memory is a Copy in memory, of which a gateway's changes go to the store first.
type memory struct {
	t *testing.T
	*Shared
	mu      sync.Mutex
	records map[string]Record
	synced  bool
}

func (m *memory) Records(visit func(string, []byte) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.records {
		if err := visit(key, r.Content); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Told(key string, r Record) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mine := m.records[key]; mine.Version > r.Version {
		return mine.Content
	}
	m.records[key] = r
	return nil
}

func (m *memory) Synced(up bool) { m.mu.Lock(); m.synced = up; m.mu.Unlock() }

func (m *memory) get(key string) Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[key]
}

// change replaces a record's content, if it is as the copy has it.
func (m *memory) change(key, content string) error {
	return m.changeFrom(m.get(key).Version, key, content)
}

// changeFrom replaces the content of a record that has a version.
func (m *memory) changeFrom(version uint64, key, content string) error {
	out, err := m.Write(m.t.Context(), Change{Key: key, Content: []byte(content), Version: version})
	if err != nil {
		return err
	}
	if !out[0].Done {
		return fmt.Errorf("it is version %d of %s", out[0].Version, out[0].Owner)
	}
	m.Told(key, Record{out[0].Version, out[0].Owner, []byte(content)})
	return nil
}

// share has a gateway's records in a store of which it is a member.
func share(t *testing.T, server *redistest.Server, name string) *memory {
	s, _, _ := join(t, options(server, name))
	m := &memory{t: t, records: map[string]Record{}}
	m.Shared, _ = s.Share("things", m)
	m.awaitSynced(true)
	return m
}

func (m *memory) awaitSynced(up bool) {
	m.t.Helper()
	netnstest.Await(m.t, fmt.Sprintf("the copy is synced: %v", up), func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.synced != up {
			return errors.New("it is not so")
		}
		return nil
	})
}

// agree waits until two gateways and the store have the same records.
func agree(t *testing.T, label string, server *redistest.Server, one, two *memory) {
	t.Helper()
	netnstest.Await(t, label, func() error {
		same := func(a, b Record) bool { return a.Version == b.Version && bytes.Equal(a.Content, b.Content) }
		one.mu.Lock()
		defer one.mu.Unlock()
		two.mu.Lock()
		defer two.mu.Unlock()
		if !maps.EqualFunc(one.records, two.records, same) {
			return fmt.Errorf("%v and %v", one.records, two.records)
		}
		for key, r := range one.records {
			if got := server.CLI("HGET", "test:things:all", key); got != fmt.Sprintf("%d %s %s", r.Version, r.Owner, r.Content) {
				return fmt.Errorf("%s is %q in the store and %+v", key, got, r)
			}
		}
		return nil
	})
}

// TestShared: two gateways change the same records, of which one loses if both do at once. While the store is away
// nothing is written. Afterwards, and where it was emptied or has lost its last changes, both have the same records.
// Long: the steps of one run, each of which needs the records that the one before left.
func TestShared(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, two := share(t, server, "gw1"), share(t, server, "gw2")
	netnstest.Must(t, one.change("a", "1"))
	netnstest.Must(t, two.change("b", "1"))
	agree(t, "both have both", server, one, two)
	for i := range 50 {
		version, errs := one.get("a").Version, [2]error{}
		var both sync.WaitGroup
		for n, m := range []*memory{one, two} {
			both.Go(func() { errs[n] = m.changeFrom(version, "a", fmt.Sprint("of ", n, " try ", i)) })
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("of two changes at once: %v, %v", errs[0], errs[1])
		}
		agree(t, "both have that of one", server, one, two)
	}

	server.Kill()
	one.awaitSynced(false)
	if err := one.change("a", "not"); !errors.Is(err, ErrStore) {
		t.Errorf("without the store: %v", err)
	}
	server.Restart()
	one.awaitSynced(true)
	two.awaitSynced(true)
	netnstest.Must(t, two.change("a", "after"))
	agree(t, "the store is back", server, one, two)

	before := one.get("a").Version
	server.CLI("FLUSHALL")
	agree(t, "the store was emptied", server, one, two)
	netnstest.Must(t, one.change("a", "emptied"))
	if now := one.get("a").Version; now <= before {
		t.Errorf("a version %d after %d", now, before)
	}
	agree(t, "the emptied store has a new one", server, one, two)
	lost := server.CLI("HGET", "test:things:all", "b")
	netnstest.Must(t, one.change("b", "new"))
	agree(t, "all have the new one", server, one, two)
	server.CLI("HSET", "test:things:all", "b", lost)
	server.CLI("CLIENT", "KILL", "TYPE", "normal")
	agree(t, "the store has lost its last change", server, one, two)
	if got := one.get("b"); string(got.Content) != "new" {
		t.Errorf("then it is %+v", got)
	}
}

// TestLateWrite: what a stopped server was told to write, and carries out when it goes on, loses against what is
// written of the record by then.
func TestLateWrite(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, two := share(t, server, "gw1"), share(t, server, "gw2")
	netnstest.Must(t, one.change("a", "1"))
	agree(t, "both have it", server, one, two)
	server.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := one.Write(ctx, Change{Key: "x", Content: []byte("never")}); !errors.Is(err, ErrStore) {
		t.Errorf("after the context's end: %v", err)
	}
	if err := one.change("a", "late"); !errors.Is(err, ErrStore) {
		t.Errorf("a stopped server: %v", err)
	}
	server.Continue()
	one.awaitSynced(true)
	two.awaitSynced(true)
	agree(t, "both have what the store has", server, one, two)
	if got := string(two.get("a").Content); !slices.Contains([]string{"1", "late"}, got) {
		t.Errorf("it is %q", got)
	}
}
