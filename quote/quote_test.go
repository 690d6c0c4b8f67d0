package quote_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/quote"
)

// TestQuotedCommandsRun: a shell takes the words of a printed command as they were, and the line survives what pages
// and terminals do to lines.
func TestQuotedCommandsRun(t *testing.T) {
	argv := []string{"printf", `%s\0`, "runs/20260101T120000Z-quick", "my runs/Q1 2026",
		"it's", `"quoted"`, "a  b    c   d", "", "$HOME `id` $(id) \\ !x", "a;b&c|d>e<f(g){h}[i]*?#j~", "=ls",
		"clients=5,10", "wide → ü", "line\nbreak\ttab \x1b[31m it's \\ é", "not utf-8 \xff\xfe 1", "'", "~", "a\u00a0b"}
	line := quote.Command(argv...)
	if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("control characters: %q", line)
	}
	if got := strings.Join(strings.Fields(line), " "); got != line {
		t.Errorf("not the same with single spaces: %q", line)
	}
	out, err := exec.Command("bash", "-c", line).Output()
	if got, want := string(out), strings.Join(argv[2:], "\x00")+"\x00"; err != nil || got != want {
		t.Errorf("%v: %q, want %q; of %s", err, got, want, line)
	}
	for _, word := range []string{"runs/a", "--set", "clients=5,10", "debian:trixie", "50%"} {
		if got := quote.Command(word); got != word {
			t.Errorf("%s, which needs no quotes, is %s", word, got)
		}
	}
}
