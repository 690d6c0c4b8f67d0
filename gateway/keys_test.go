// Tests of keys that gateways share.

package gateway

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// joinStore makes a gateway's connection with a store.
func joinStore(t *testing.T, server *redistest.Server, name string) *sharedStore {
	s := cluster.Open(cluster.Options{Addresses: []string{server.Addr}, Prefix: "test:", Gateway: name, Instance: name,
		Log: slog.New(slog.DiscardHandler), Sessions: func() int { return 0 }})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended; s.Close() })
	return &sharedStore{Store: s}
}

// TestSharedKey: gateways have their own keys until the store is there, and then all that of one of them, also in their
// files, and also after the store was emptied. Those of other networks are others. Long: the steps of one run, each of
// which needs the keys that the one before left.
func TestSharedKey(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	server.Kill()
	var used [3]atomic.Pointer[[]byte]
	var paths []string
	for i, name := range []string{"portal", "portal", "portal.staff"} {
		path := filepath.Join(t.TempDir(), "portal.key")
		paths = append(paths, path)
		key, err := keptKey(path, keySize)
		netnstest.Must(t, err)
		used[i].Store(&key)
		store := joinStore(t, server, fmt.Sprint("gw", i))
		t.Cleanup(store.shareKey(&sharedKey{name: name, path: path, present: key, log: slog.New(slog.DiscardHandler),
			use: func(key []byte) { used[i].Store(&key) }}))
	}
	own := [3][]byte{*used[0].Load(), *used[1].Load(), *used[2].Load()}
	if bytes.Equal(own[0], own[1]) {
		t.Fatal("two gateways make the same key")
	}
	server.Restart()
	same := func() error {
		one, two := *used[0].Load(), *used[1].Load()
		if !bytes.Equal(one, two) {
			return fmt.Errorf("%x and %x", one, two)
		}
		for i, path := range paths {
			if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, *used[i].Load()) {
				return fmt.Errorf("%s has %x, %v", path, kept, err)
			}
		}
		return nil
	}
	netnstest.Await(t, "both have the same key", same)
	kept := *used[0].Load()
	if !bytes.Equal(kept, own[0]) && !bytes.Equal(kept, own[1]) {
		t.Errorf("it is none of theirs: %x", kept)
	}
	server.CLI("FLUSHALL")
	netnstest.Await(t, "the emptied store has it again", func() error {
		if n := server.CLI("HLEN", "test:keys:all"); n != "2" {
			return fmt.Errorf("it has %s keys", n)
		}
		return same()
	})
	if !bytes.Equal(*used[0].Load(), kept) {
		t.Error("after the store was emptied they have another key")
	}
	if !bytes.Equal(*used[2].Load(), own[2]) {
		t.Error("another network's key has changed")
	}
}
