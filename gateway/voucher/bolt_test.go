package voucher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// TestWrite: changes that come at the same time are all carried out, each once; one that does not fit what is there is
// not carried out at all, and keeps no other from being written with it.
func TestWrite(t *testing.T) {
	store, err := OpenFile(filepath.Join(t.TempDir(), FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	codes := newCodes(200)
	var all sync.WaitGroup
	errs := make([]error, len(codes))
	for i, code := range codes {
		all.Go(func() {
			r := record{Code: code}
			errs[i] = store.Write(Change{Vouchers: []Record{{ID: ID(i%100 + 1), Is: r.encode(), Code: code}}})
		})
	}
	all.Wait()
	for i := range 100 {
		if (errs[i] == nil) == (errs[i+100] == nil) || !errors.Is(errors.Join(errs[i], errs[i+100]), ErrChanged) {
			t.Errorf("of two new vouchers %d: %v and %v", i+1, errs[i], errs[i+100])
		}
		winner := codes[i]
		if errs[i] != nil {
			winner = codes[i+100]
		}
		if id, err := store.Find(winner); id != ID(i+1) || err != nil {
			t.Errorf("the code of voucher %d finds %d, %v", i+1, id, err)
		}
	}
	twice := record{Code: codes[0]}
	if err := store.Write(Change{Vouchers: []Record{{ID: 300, Is: twice.encode(), Code: codes[0]},
		{ID: 301, Is: twice.encode(), Code: "CCCCCCCCCCCC"}}}); errs[0] == nil && !errors.Is(err, ErrChanged) {
		t.Errorf("a code that is another voucher's: %v", err)
	}
	if id, err := store.Find("CCCCCCCCCCCC"); errs[0] == nil && id != 0 || err != nil {
		t.Errorf("half of a change was carried out: %d, %v", id, err)
	}
}

// TestDamage: a file that is not what gatewayd writes is refused as damaged, and one of a newer version by name.
func TestDamage(t *testing.T) {
	s := newScene(t)
	s.make(20, Terms{})
	s.store.Close()
	whole, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"cut": whole[:len(whole)/2], "empty head": append(make([]byte, 8192),
		whole[8192:]...), "text": []byte(fmt.Sprintf("%9000s", "text"))} {
		path := filepath.Join(t.TempDir(), FileName)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenFile(path); !errors.Is(err, statefile.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if info, err := os.Stat(s.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of codes has mode %v, %v", info.Mode(), err)
	}
}

// TestOthersMayRead: a file whose codes others may read, write or own is refused, and the error says what to do.
func TestOthersMayRead(t *testing.T) {
	for want, spoil := range map[string]func(path string) error{
		"chmod 600 ":  func(path string) error { return os.Chmod(path, 0o640) },
		"chmod 600":   func(path string) error { return os.Chmod(path, 0o602) },
		"chown root ": func(path string) error { return os.Chown(path, 1234, 0) },
	} {
		if os.Geteuid() != 0 && want == "chown root " {
			continue
		}
		path := filepath.Join(t.TempDir(), FileName)
		store, err := OpenFile(path)
		if err == nil {
			err = errors.Join(store.Close(), spoil(path))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the file is opened: %v, want %q", err, want)
		}
	}
}
