// Secret keys, which all gateways of a store have together.

package gateway

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/statefile"
)

const keySize = 32 // bytes

// keptKey reads a secret key of size bytes, or creates and stores one.
func keptKey(path string, size int) ([]byte, error) {
	key, err := os.ReadFile(path)
	if err == nil && len(key) == size {
		return key, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the key %s: %w", path, err)
	}
	key = make([]byte, size)
	rand.Read(key)
	if err := os.WriteFile(path, key, 0o600); err != nil {
		return nil, fmt.Errorf("keeping the key %s: %w", path, err)
	}
	return key, nil
}

// keyKind is the kind of keys in the store.
const keyKind = "keys"

// sharedKey is a key in a file that becomes the store's: that of the gateway that came first.
type sharedKey struct {
	name, path string
	use        func(key []byte)
	log        *slog.Logger

	mu      sync.Mutex
	present []byte // guarded by mu
}

var _ cluster.Copy = (*sharedKey)(nil)

// shareKey has use called with the store's key where that is not the one of the file. leave ends that.
func (s *sharedStore) shareKey(k *sharedKey) (leave func()) {
	if s.Store == nil {
		return func() {}
	}
	_, leave = s.Share(keyKind, k)
	return leave
}

// Records implements cluster.Copy.
func (k *sharedKey) Records(visit func(key string, content []byte) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return visit(k.name, k.present)
}

// Told implements cluster.Copy.
func (k *sharedKey) Told(name string, r cluster.Record) (instead []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if name != k.name || len(r.Content) != len(k.present) || bytes.Equal(r.Content, k.present) {
		return nil
	}
	k.present = bytes.Clone(r.Content)
	k.use(k.present)
	err := statefile.Replace(k.path, func(w io.Writer) error { _, err := w.Write(k.present); return err })
	if err != nil {
		k.log.Error("a key that the gateways share is not in its file: another one is used from the next start until the "+
			"store is there", "file", k.path, "err", err)
	}
	return nil
}

// Synced implements cluster.Copy.
func (k *sharedKey) Synced(bool) {}
