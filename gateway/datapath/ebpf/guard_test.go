package ebpf

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/netnstest"
)

// TestGuardComesBack: who reloads the machine's rules, and flushes all first, does not
// leave it without the guard; after detach it stays away.
func TestGuardComesBack(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	table := "nft list table inet gatewayd-" + n.lan
	before := run(t, table)
	run(t, "nft delete table inet gatewayd-$lan", n.env()...)
	netnstest.Await(t, "the guard", func() error {
		if after, err := try(table); err != nil || after != before {
			return errors.New(after)
		}
		return nil
	})
	must(t, Remove(d.cfg)) // as detach --force does
	run(t, "nft add table inet gd_test; nft delete table inet gd_test")
	d.obey()
	if left, err := try(table); err == nil {
		t.Errorf("after detach there is\n%s", left)
	}
}

// TestWithoutNFT: a machine without nft has the data path, and is told what it lacks.
func TestWithoutNFT(t *testing.T) {
	n := newNetwork(t)
	var said log
	path := os.Getenv("PATH")
	t.Setenv("PATH", "/nowhere")
	d := n.open(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&said, nil)) })
	t.Setenv("PATH", path)
	if !strings.Contains(said.String(), "level=WARN") || !strings.Contains(said.String(), "nft is missing (package nftables)") {
		t.Errorf("it said\n%s", said.String())
	}
	run(t, "ip link del $lan", n.env()...)
	if err := d.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "nobody is kept from forwarding") {
		t.Errorf("without the guard the LAN's end is told as: %v", err)
	}
}

// log is what a data path's goroutines said.
type log struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
