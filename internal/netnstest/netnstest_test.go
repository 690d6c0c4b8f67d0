package netnstest

import (
	"errors"
	"os"
	"strings"
	"testing"
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
