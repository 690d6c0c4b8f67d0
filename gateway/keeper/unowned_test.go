// Tests of a keeper whose owner (the daemon whose files it holds) is gone. ownerOf starts a keeper, or takes one over,
// that ends itself when it has had no owner for the time alone; pipe returns a pipe to give it, and the function gone,
// which returns nil once nobody has the pipe's other end (keeper_test.go).

package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// says makes keepers log to a file. awaits waits for a message with all of the words.
func says(t *testing.T) (awaits func(words ...string)) {
	file := filepath.Join(t.TempDir(), "said")
	t.Setenv(saidEnv, file)
	return func(words ...string) {
		t.Helper()
		netnstest.Await(t, "a message of the keeper", func() error {
			text, err := os.ReadFile(file)
			for line := range strings.Lines(string(text)) {
				if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
					return nil
				}
			}
			return errors.Join(err, fmt.Errorf("none has %q: %s", words, text))
		})
	}
}

// TestUnowned: a keeper logs that its owner is gone, and what ends from then on. It looks after what it holds until
// another owner comes; that owner waits until it has stopped.
func TestUnowned(t *testing.T) {
	said := says(t)
	o := ownerOf(t, 3*time.Second)
	a, aGone := pipe(t)
	b, bGone := pipe(t)
	o.Put(Item{Key: "rules"})
	o.Put(Item{Key: "a", Files: []int{a}})
	o.Put(Item{Key: "b", Files: []int{b}, Until: time.Now().Add(time.Second)})
	unix.Close(a)
	unix.Close(b)
	if !o.Leave() || o.Leave() {
		t.Error("an owner leaves twice, or not at all")
	}
	said("without an owner", "items=3")
	said("sessions=2")
	netnstest.Await(t, "the end of b", bGone)
	said("session=b")
	next := ownerOf(t, 3*time.Second)
	said("with an owner")
	if len(next.held) != 2 || aGone() == nil {
		t.Fatalf("the successor has %+v", next.held)
	}
	for _, i := range next.held {
		closeAll(i.Files)
	}
	next.dropDead()
	netnstest.Await(t, "the end of a, for which nobody has come", aGone)
	said("ERROR", "sessions=1", "after=3s")
}

// TestStuckLog: nobody reads the keeper's log. Sessions still end, by their time and when no owner comes. An owner that
// comes is not delayed.
func TestStuckLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "said")
	must(t, unix.Mkfifo(file, 0o600))
	full, err := unix.Open(file, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(full) })
	for err == nil {
		_, err = unix.Write(full, make([]byte, 4096))
	}
	t.Setenv(saidEnv, file)
	o := ownerOf(t, 2*time.Second)
	a, aGone := pipe(t)
	b, bGone := pipe(t)
	o.Put(Item{Key: "a", Files: []int{a}})
	o.Put(Item{Key: "b", Files: []int{b}, Until: time.Now().Add(time.Second)})
	unix.Close(a)
	unix.Close(b)
	o.dropDead()
	netnstest.Await(t, "the end of b", bGone)
	next := ownerOf(t, 2*time.Second)
	if len(next.held) != 1 || aGone() == nil {
		t.Fatalf("the successor has %+v", next.held)
	}
	closeAll(next.held[0].Files)
	next.dropDead()
	netnstest.Await(t, "the end of a, for which nobody has come", aGone)
}
