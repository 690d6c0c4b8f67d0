// Tests of the guard, the nftables rules that let nothing pass without the programs, and of other programs at the
// interfaces. newNetwork makes a LAN with alice and bob and a WAN with a server, and open starts a data path between
// them (main_test.go). detach is the command of that name.

package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestGuardRestored: the guard is restored after others flushed or changed its rules, but not after detach.
func TestGuardRestored(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	table := "nft list table inet gatewayd-" + n.lan
	before := run(t, table)
	changes := []string{"nft delete table inet gatewayd-$lan", "nft flush table inet gatewayd-$lan",
		"nft insert rule inet gatewayd-$lan forward accept", "nft flush ruleset"}
	for i, change := range changes {
		run(t, change, n.env()...)
		netnstest.Await(t, "the guard after "+change, func() error {
			if after, err := try(table); err != nil || after != before || d.Repairs().Guarded != uint64(i+1) {
				return fmt.Errorf("%+v: %s", d.Repairs(), after)
			}
			return nil
		})
	}
	must(t, Remove(d.cfg)) // as detach --force does
	run(t, "nft add table inet gd_test; nft delete table inet gd_test")
	d.readRules()
	d.lookNow <- struct{}{} // accepted when the watcher begins a check; the next one when that has ended
	d.lookNow <- struct{}{}
	d.lookNow <- struct{}{}
	if Attached(d.cfg) || d.Repairs() != (Repairs{Guarded: uint64(len(changes))}) {
		t.Errorf("after detach, programs are put back: %+v", d.Repairs())
	}
	if left, err := try(table); err == nil {
		t.Errorf("after detach there is\n%s", left)
	}
}

// TestChangedPinFolder: a data path can take over from a predecessor with another folder of pins, and detach finds a
// predecessor's programs without its folder.
func TestChangedPinFolder(t *testing.T) {
	netnstest.NeedTCX(t)
	n := newNetwork(t)
	first, err := Open(n.config(t))
	must(t, err)
	must(t, first.Close())
	t.Cleanup(func() { must(t, os.RemoveAll(first.cfg.PinDir)) })
	var logs logtest.Log
	second := n.open(t, func(c *Config) {
		c.PinDir += "-new"
		c.Log = logs.Logger()
	})
	count := func(h hook) int {
		attached, err := link.QueryPrograms(link.QueryOptions{Target: h.dev.Index, Attach: h.attachType()})
		must(t, err)
		return len(attached.Programs)
	}
	for _, h := range second.hooks(second.lan, second.wan) {
		if n := count(h); n != 1 || !strings.Contains(logs.String(), "program="+h.name+" ") {
			t.Errorf("%d programs at %s; it said\n%s", n, h.name, logs.String())
		}
	}
	must(t, second.Close())
	elsewhere := second.cfg
	elsewhere.PinDir += "-unknown"
	if !Attached(elsewhere) {
		t.Error("programs pinned elsewhere are not seen")
	}
	must(t, detach(elsewhere))
	for _, h := range second.hooks(second.lan, second.wan) {
		if n := count(h); n != 0 {
			t.Errorf("%d programs at %s after detach with another folder", n, h.name)
		}
	}
}

// TestNoBPFFS: programs need a bpffs for their pins, and the message says how to mount one.
func TestNoBPFFS(t *testing.T) {
	cfg := newNetwork(t).config(t)
	cfg.PinDir = filepath.Join(t.TempDir(), "deep", "down")
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "mount -t bpf bpf /sys/fs/bpf") {
		t.Errorf("pins on no bpffs: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(cfg.PinDir)); err == nil {
		t.Error("a folder was made for them")
	}
}

// TestForeignProgramBeforeOursIsLogged: another program that handles packets first is logged once, at start or when it
// comes, and left alone.
func TestForeignProgramBeforeOursIsLogged(t *testing.T) {
	netnstest.NeedTCX(t)
	n := newNetwork(t)
	var meanwhile logtest.Log
	d := n.open(t, logTo(&meanwhile))
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "others", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	must(t, err)
	defer other.Close()
	l, err := link.AttachTCX(
		link.TCXOptions{Program: other, Interface: d.lan.Index, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	must(t, err)
	defer l.Close()
	netnstest.Await(t, "a warning", func() error {
		if text := meanwhile.String(); !strings.Contains(text, "programs of others see packets ahead") {
			return errors.New(text)
		}
		return nil
	})
	for range 3 { // the watcher looks again
		d.lookNow <- struct{}{}
	}
	if n := strings.Count(meanwhile.String(), "see packets ahead"); n != 1 {
		t.Errorf("it warned %d times", n)
	}
	must(t, d.Close())
	var logs logtest.Log
	n.open(t, logTo(&logs))
	if !strings.Contains(logs.String(), "programs of others see packets ahead") ||
		!strings.Contains(logs.String(), "others (id ") {
		t.Errorf("it said\n%s", logs.String())
	}
}

// logTo configures a data path to write its log to l.
func logTo(l *logtest.Log) func(*Config) { return func(c *Config) { c.Log = l.Logger() } }

// TestDetachWithoutGuard: if the guard cannot be shut, because another process owns its table, detach detaches no
// program.
func TestDetachWithoutGuard(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Close())
	holder, err := nftables.Dial()
	must(t, err)
	table, b := nftables.Table{Family: nftables.Inet, Name: guard.Table(n.lan)}, nftables.Batch{Held: true}
	b.DeleteTable(table)
	b.AddTable(table)
	if err := holder.Commit(&b); errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		must(t, holder.Close())
		t.Skip("nobody can hold a table (Linux 6.9)")
	} else if err != nil {
		t.Fatal(err)
	}
	if err := Remove(d.cfg); !errors.Is(err, unix.EPERM) {
		t.Errorf("while another process holds the guard's table: %v", err)
	}
	if !Attached(d.cfg) {
		t.Error("programs were taken off")
	}
	b = nftables.Batch{Held: true}
	b.DeleteTable(table)
	must(t, errors.Join(holder.Commit(&b), holder.Close(), d.guardian().Shut())) // as it was
	must(t, Remove(d.cfg))
	if Attached(d.cfg) {
		t.Error("something is left after detach")
	}
}
