package result_test

import (
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestDigitsHidden: reasons that differ only in numbers become equal.
func TestDigitsHidden(t *testing.T) {
	for text, want := range map[string]string{
		"generator at 83 %":             "generator at # %",
		"steal 1.25 %, limit 1,000":     "steal # %, limit #",
		"no answer from 10.1.0.1:2050.": "no answer from #:#.",
		"exit status 9: out of memory":  "exit status #: out of memory",
		"":                              "",
	} {
		if got := result.DigitsHidden(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
