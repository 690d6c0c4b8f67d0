// Tests of the store's file: damaged, full, locked or of another kind. memory_test.go has the helpers: newMemory is a
// data path in memory; key and keyOf make keys of clients; openTable opens a table in a file; lease gives a client a
// lease, admit logs it in, get reads its session, drain takes all pending events. done fails the test on an error.

package session_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// filled returns the path of a closed store with clients and events in it.
func filled(t *testing.T, clients int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.db")
	table := openTable(t, path, newMemory())
	for i := range clients {
		k := key(1, byte(i))
		lease(t, table, k)
		admit(t, table, k, session.Limits{})
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFilesThatAreNoStores(t *testing.T) {
	for _, tt := range []struct {
		name    string
		make    func(path string) error
		want    error
		message string
	}{
		{"text", func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("hello\n"), 5000), 0o600) },
			session.ErrDamaged, "move it away"},
		{"short", func(path string) error { return os.WriteFile(path, []byte("hello\n"), 0o600) }, session.ErrDamaged,
			"move it away"},
		{"zeros", func(path string) error { return os.WriteFile(path, make([]byte, 1<<16), 0o600) }, session.ErrDamaged,
			"move it away"},
		{"foreign", session.MakeForeign, session.ErrDamaged, `bucket "members"`},
		{"newer", func(path string) error {
			return errors.Join(
				os.Rename(filled(t, 1), path), session.SetFormat(path, binary.BigEndian.AppendUint64(nil, session.FormatVersion+1)))
		}, session.ErrNewerVersion, "format 3, known up to 2"},
		{"format of a byte", func(path string) error {
			return errors.Join(os.Rename(filled(t, 1), path), session.SetFormat(path, []byte{1}))
		}, session.ErrDamaged, "move it away"},
		{"folder", func(path string) error { return os.Mkdir(path, 0o700) }, nil, "is not a file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.db")
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(path)
			_, err := session.Open(path, newMemory(), discardLog)
			if err == nil || !strings.Contains(err.Error(), tt.message) || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("Open: %v; want %v, saying %q", err, tt.want, tt.message)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestEmptyFileIsANewStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lease(t, openTable(t, path, newMemory()), key(1, 5))
}

func TestStoreIsLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	openTable(t, path, newMemory())
	if _, err := session.Open(path, newMemory(), discardLog); !errors.Is(err, session.ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; others may read who is there", info.Mode(), err)
	}
}

// TestTornFiles: a file truncated anywhere gives an error or its complete content, and never a crash.
func TestTornFiles(t *testing.T) {
	whole, err := os.ReadFile(filled(t, 40))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s.db")
	errs := 0
	for size := len(whole); size > 0; size -= 1000 {
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := session.Open(path, newMemory(), discardLog)
		if err != nil {
			errs++
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move it away") {
				t.Errorf("%d of %d bytes: %v", size, len(whole), err)
			}
			continue
		}
		n := 0
		for range table.Each {
			n++
		}
		if n != 40 {
			t.Errorf("%d of %d bytes: %d clients, and no error", size, len(whole), n)
		}
		table.Close()
	}
	if errs == 0 {
		t.Error("no cut did any harm: the test cuts nothing")
	}
}

// TestDamagedFiles overwrites pages with arbitrary bytes.
func TestDamagedFiles(t *testing.T) {
	whole, err := os.ReadFile(filled(t, 200))
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(t.TempDir(), "s.db")
	const page = 4096
	errs := 0
	for first := 2 * page; first < len(whole); first += page {
		damaged := bytes.Clone(whole)
		for i := first; i < min(first+page, len(whole)); i++ {
			damaged[i] = byte(random.Uint32())
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := session.Open(path, newMemory(), discardLog)
		switch {
		case err == nil: // the page was free
			table.Close()
		case !strings.Contains(err.Error(), "move it away") || errors.Is(err, session.ErrInUse):
			t.Errorf("page %d damaged: %v", first/page, err)
		default:
			errs++
		}
	}
	if errs == 0 {
		t.Error("no page was of any use")
	}
}

// TestFullDisk runs on a full tmpfs: changes that cannot be stored are refused, and no client is admitted that is not
// in the file.
func TestFullDisk(t *testing.T) {
	dir := onSmallDisk(t)
	if dir == "" {
		return
	}
	dp := newMemory()
	table := openTable(t, filepath.Join(dir, "s.db"), dp)
	admitted, refused := 0, 0
	for i := range 2500 {
		k := keyOf(i)
		err := table.Lease(k, strings.Repeat("x", 200), time.Time{})
		if err == nil {
			_, err = table.Admit(k.Addr, session.Login{User: "ada"})
		}
		switch {
		case err == nil:
			admitted++
		case errors.Is(err, syscall.ENOSPC):
			refused++
			if s, found := table.Get(k.Addr); found && s.State == session.Authenticated || dp.admits(k) {
				t.Fatal("a client was let in that could not be written down")
			}
		default:
			t.Fatal(err)
		}
	}
	if admitted == 0 || refused == 0 {
		t.Fatalf("%d admitted, %d refused: the disk was never full", admitted, refused)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	lease(t, table, key(9, 250))
	admit(t, table, key(9, 250), session.Limits{})
}

// onSmallDisk runs the calling test again in its own mount namespace, with a tmpfs at the returned folder that a file
// called filler nearly fills. In the parent the folder is empty and the test ends with the child's result.
func onSmallDisk(t *testing.T) string {
	t.Helper()
	const variable = "GATEWEIGH_TEST_SMALL_DISK"
	if dir := os.Getenv(variable); dir != "" {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cmd := child(t, t.Name(), variable+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("on a small disk: %v\n%s", err, out)
	}
	return ""
}

// child returns a command that runs one test of this binary in another process.
func child(t *testing.T, test string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", fmt.Sprintf("^%s$", test), "-test.v")
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// TestFormatOfExtras: a file has the format that former versions read, but while a client has what they would take for
// damage: they then say that a newer version wrote it.
func TestFormatOfExtras(t *testing.T) {
	path, dp := filepath.Join(t.TempDir(), "s.db"), newMemory()
	ada, six := key(1, 1), netip.MustParseAddr("2001:db8::5")
	is := func(when string, want uint64) {
		t.Helper()
		if got, err := session.Format(path); got != want || err != nil {
			t.Errorf("%s the format is %d, %v, want %d", when, got, err, want)
		}
	}
	table := openTable(t, path, dp)
	lease(t, table, ada)
	admit(t, table, ada, session.Limits{})
	drain(t, table)
	done(t, table.Close())
	is("with one address", 1)
	table = openTable(t, path, dp)
	done(t, table.Extend(ada, six))
	done(t, table.Close())
	is("with another", 2)
	done(t, session.SetFormat(path, binary.BigEndian.AppendUint64(nil, 1))) // as the version before wrote it
	done(t, openTable(t, path, dp).Close())
	is("with another, of a version that had one format,", 2)
	table = openTable(t, path, dp)
	if s := get(t, table, ada); !slices.Equal(s.FurtherAddrs, []netip.Addr{six}) {
		t.Errorf("read again: %+v", s)
	}
	done(t, table.Withdraw(ada, six))
	done(t, table.Close())
	done(t, openTable(t, path, dp).Close())
	is("without it", 1)
	table = openTable(t, path, dp)
	done(t, table.Extend(ada, six))
	_, err := table.End(ada.Addr, session.AdminReset) // its event has the address too
	done(t, err)
	done(t, table.Withdraw(ada, six))
	done(t, table.Close())
	done(t, openTable(t, path, dp).Close())
	is("while an event has it", 2)
	table = openTable(t, path, dp)
	drain(t, table)
	done(t, table.Close())
	done(t, openTable(t, path, dp).Close())
	is("once that is accounted", 1)
}
