// Tests of the kernel's settings (switches) that the log changes while it runs, such as nf_conntrack_acct: the former
// values are in a note, a file by which they are restored after a crash.

package flowlog

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
	"github.com/gateweigh/gateweigh/internal/logtest"
)

// both are the families of a LAN whose clients have IPv6.
var both = []nftables.Family{nftables.IPv4, nftables.IPv6}

// TestNoteThatCannotBeRead: Undo and the next log name the settings that they cannot restore; for a torn note only
// once.
func TestNoteThatCannotBeRead(t *testing.T) {
	const on = "sysctl -qw net.netfilter.nf_conntrack_acct=1 net.netfilter.nf_conntrack_timestamp=1"
	const off = "sysctl -qw net.netfilter.nf_conntrack_acct=0 net.netfilter.nf_conntrack_timestamp=0"
	names := func(text string) bool {
		return strings.Contains(text, "net.netfilter.nf_conntrack_acct=0 net.netfilter.nf_conntrack_timestamp=0")
	}
	t.Cleanup(func() { run(t, off) })
	folder := t.TempDir()
	note, file := NoteIn(folder), filepath.Join(folder, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for label, c := range map[string]struct {
		note string
		once bool
	}{"torn": {note, true}, "a file for a folder": {NoteIn(file), false}} {
		run(t, on)
		must(t, os.WriteFile(note, []byte(`{"x`), 0o600))
		if err := Undo(c.note, "lan0"); err == nil || !names(err.Error()) {
			t.Errorf("%s: %v", label, err)
		}
		if err := Undo(c.note, "lan0"); (err == nil) != c.once {
			t.Errorf("%s, again: %v", label, err)
		}
		run(t, off)
		must(t, os.WriteFile(note, []byte(`{"x`), 0o600))
		if err := Undo(c.note, "lan0"); err != nil {
			t.Errorf("%s, and nothing stays: %v", label, err)
		}
	}
	var logs logtest.Log
	must(t, os.WriteFile(note, []byte(`{"x`), 0o600))
	run(t, "sysctl -qw net.netfilter.nf_conntrack_acct=1")
	must(t, track(note, "lan0", both, logs.Logger()))
	if !strings.Contains(logs.String(), "net.netfilter.nf_conntrack_acct=0") {
		t.Errorf("the log says %q", logs.String())
	}
	must(t, Undo(note, "lan0")) // which knows the other one
	if got := run(t, "sysctl -n net.netfilter.nf_conntrack_acct net.netfilter.nf_conntrack_timestamp"); got != "1\n0" {
		t.Errorf("after all of it: %q", got)
	}
}

// TestLogsOfSeveralLANs: each log of several gateways in one namespace has a rule, and the last one that ends restores
// the kernel's settings, also when another one was killed.
func TestLogsOfSeveralLANs(t *testing.T) {
	const settings = "sysctl -n net.netfilter.nf_conntrack_acct net.netfilter.nf_conntrack_timestamp " +
		"net.netfilter.nf_conntrack_events"
	before, dir := run(t, settings), t.TempDir()
	note := func(lan string) string { return filepath.Join(dir, lan) }
	begin := func(lan string) { must(t, track(note(lan), lan, both, slog.New(slog.DiscardHandler))) }
	end := func(lan string) { must(t, Undo(note(lan), lan)) }
	is := func(when, want string, lans ...string) {
		t.Helper()
		if got := run(t, settings); got != want {
			t.Errorf("%s the settings are %q, want %q", when, got, want)
		}
		rules := run(t, "nft list ruleset")
		for _, lan := range []string{"lan0", "lan1"} {
			for _, family := range []string{"ip", "ip6"} {
				got, want := strings.Contains(rules, "table "+family+" gatewayd-flows-"+lan), slices.Contains(lans, lan)
				if got != want {
					t.Errorf("%s there is a rule of %s for %s: %v, want %v", when, lan, family, got, want)
				}
			}
		}
	}
	const on = "1\n1\n1"
	begin("lan0")
	begin("lan1")
	_, of0, err := ruleDigest("lan0", both, 0)
	must(t, err)
	begin("lan1")
	if _, now, err := ruleDigest("lan0", both, 0); err != nil || now != of0 {
		t.Errorf("another log has changed the rule of lan0: %v", err)
	}
	is("of both", on, "lan0", "lan1")
	end("lan0")
	end("lan0")
	is("of one", on, "lan1")
	end("lan1")
	is("of none", before)
	begin("lan0") // and killed
	begin("lan1")
	end("lan1")
	is("of one that was killed", on, "lan0")
	end("lan0")
	is("in the end", before)
	if left := run(t, "nft list ruleset"); strings.Contains(left, "gatewayd") {
		t.Errorf("left:\n%s", left)
	}
}
