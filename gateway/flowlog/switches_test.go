package flowlog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/logtest"
)

// TestNoteThatCannotBeRead: settings that cannot be restored are named, by Undo and by the next log, and only once
// where the note is torn.
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
		if err := Undo(c.note); err == nil || !names(err.Error()) {
			t.Errorf("%s: %v", label, err)
		}
		if err := Undo(c.note); (err == nil) != c.once {
			t.Errorf("%s, again: %v", label, err)
		}
		run(t, off)
		must(t, os.WriteFile(note, []byte(`{"x`), 0o600))
		if err := Undo(c.note); err != nil {
			t.Errorf("%s, and nothing stays: %v", label, err)
		}
	}
	var logs logtest.Log
	must(t, os.WriteFile(note, []byte(`{"x`), 0o600))
	run(t, "sysctl -qw net.netfilter.nf_conntrack_acct=1")
	must(t, track(note, logs.Logger()))
	if !strings.Contains(logs.String(), "net.netfilter.nf_conntrack_acct=0") {
		t.Errorf("the log says %q", logs.String())
	}
	must(t, Undo(note)) // which knows the other one
	if got := run(t, "sysctl -n net.netfilter.nf_conntrack_acct net.netfilter.nf_conntrack_timestamp"); got != "1\n0" {
		t.Errorf("after all of it: %q", got)
	}
}
