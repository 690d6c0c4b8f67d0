package netnstest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m, "ip link add outer type veth peer name other") }

// TestSpaces: two spaces are different namespaces, and neither is the test's.
func TestSpaces(t *testing.T) {
	a, b := NewSpace(t), NewSpace(t)
	a.Run(t, "ip link add $name type veth peer name x", "name=only-a")
	for name, c := range map[string]struct {
		where *Space
		found bool
	}{"a": {a, true}, "b": {b, false}} {
		if out := c.where.Run(t, "ip -o link; ip -o link show lo up"); strings.Contains(out, "only-a") != c.found ||
			strings.Contains(out, "outer") || strings.Count(out, "LOOPBACK") != 2 {
			t.Errorf("links of %s:\n%s", name, out)
		}
	}
	if _, err := os.Stat("/proc/self/net/dev_snmp6/only-a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a's link in the test's own namespace: %v", err)
	}
	if out, err := a.Try("echo said; exit 3"); err == nil || out != "said" {
		t.Errorf("a script that fails: %q, %v", out, err)
	}
}

// failing is a test that notes why it fails.
type failing struct {
	testing.TB
	why string
}

func (f *failing) Helper() {}
func (f *failing) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestAwait: a wait ends when what it waits for has come, and a wait in vain tells the last error.
func TestAwait(t *testing.T) {
	defer func(before time.Duration) { patience = before }(patience)
	for _, c := range []struct {
		patience time.Duration
		comes    int // the number of the call that finds it
		fails    bool
	}{{time.Hour, 1, false}, {time.Hour, 3, false}, {-1, 1, false}, {-1, 2, true}} {
		patience = c.patience
		test, calls, done := failing{TB: t}, 0, make(chan struct{})
		go func() {
			defer close(done)
			Await(&test, "it", func() error {
				if calls++; calls == c.comes {
					return nil
				}
				return fmt.Errorf("not at look %d", calls)
			})
		}()
		<-done
		if c.fails != (test.why != "") || c.fails && !(strings.Contains(test.why, "waited in vain for it") &&
			strings.HasSuffix(test.why, ": not at look 1")) {
			t.Errorf("%+v: it says %q", c, test.why)
		}
	}
}
