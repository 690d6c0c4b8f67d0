// Tests that a table works with any Store. newMemory is a data path in memory, key(mac, host) the key of MAC
// 02:00:00:00:00:mac at 10.1.0.host; lease gives a client a lease, admit logs it in, get reads its session, drain takes
// all pending events (memory_test.go).

package session_test

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// memoryStore is a Store in memory. While refuses is set it refuses batches.
type memoryStore struct {
	mu      sync.Mutex
	clients map[datapath.ID][]byte
	events  map[uint64][]byte
	last    uint64
	refuses error
}

var _ session.Store = (*memoryStore)(nil)

func (k *memoryStore) Clients(visit func(datapath.ID, []byte) error) error {
	k.mu.Lock()
	clients := maps.Clone(k.clients)
	k.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(clients)) {
		if err := visit(id, clients[id]); err != nil {
			return err
		}
	}
	return nil
}

func (k *memoryStore) Events(from uint64, visit func(uint64, []byte) (bool, error)) error {
	k.mu.Lock()
	events := maps.Clone(k.events)
	k.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(events)) {
		if number < from {
			continue
		}
		if more, err := visit(number, events[number]); err != nil || !more {
			return err
		}
	}
	return nil
}

func (k *memoryStore) Write(b session.Batch) (removed int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuses != nil {
		return 0, k.refuses
	}
	for _, c := range b.Clients {
		if c.Data == nil {
			delete(k.clients, c.ID)
		} else {
			k.clients[c.ID] = slices.Clone(c.Data)
		}
	}
	for _, e := range b.Events {
		k.last++
		k.events[k.last] = slices.Clone(e)
	}
	for _, number := range b.Done {
		if _, found := k.events[number]; found {
			delete(k.events, number)
			removed++
		}
	}
	return removed, nil
}

func (k *memoryStore) Close() error { return nil }

func (k *memoryStore) refuse(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuses = err
}

// TestAnyStore: a table works with any Store. It admits only clients that are in the store. A table that is opened on
// the store finds the sessions, and the events that were not accounted, in order.
func TestAnyStore(t *testing.T) {
	store, dir := &memoryStore{clients: map[datapath.ID][]byte{}, events: map[uint64][]byte{}}, t.TempDir()
	dp := newMemory()
	open := func() *session.Table {
		table, err := session.OpenStore(store, dp, discardLog, session.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { table.Close() })
		return table
	}
	table, ada, bob := open(), key(1, 1), key(2, 2)
	lease(t, table, ada)
	lease(t, table, bob)
	began := admit(t, table, ada, session.Limits{})
	full := errors.New("no space left")
	store.refuse(full)
	if _, err := table.Admit(bob.Addr, session.Login{User: "bob", For: bob}); !errors.Is(err, full) || dp.admits(bob) {
		t.Errorf("with a store that is full: %v, admitted %v", err, dp.admits(bob))
	}
	store.refuse(nil)
	admit(t, table, bob, session.Limits{})
	e, err := table.Next(t.Context())
	if err == nil {
		err = table.Done(e)
	}
	if err == nil {
		err = table.Close()
	}
	if err != nil || e.ID != began.ID || len(store.events) != 1 {
		t.Fatalf("the first event is %+v, %v; the store has %d", e, err, len(store.events))
	}
	table = open()
	if s := get(t, table, ada); s.ID != began.ID || s.State != session.Authenticated || !dp.admits(ada) {
		t.Errorf("read again: %+v", s)
	}
	if err := table.Forget(bob); err != nil {
		t.Fatal(err)
	}
	if got := kinds(drain(t, table)); !slices.Equal(got, []session.Kind{session.Started, session.Ended}) {
		t.Errorf("events %v", got)
	}
	if err := table.Close(); err != nil || len(store.clients) != 1 || len(store.events) != 0 {
		t.Errorf("%v; the store has %d clients and %d events", err, len(store.clients), len(store.events))
	}
}
