package words

import (
	"slices"
	"testing"
)

// TestWrapped: lines have at most the width, and commands are whole.
func TestWrapped(t *testing.T) {
	for text, want := range map[string][]string{
		"one two three":                     {"one two", "three"},
		"a longestword b":                   {"a", "longestword", "b"},
		"run `do this and that`; then rest": {"run", "`do this and that`;", "then rest"},
		"lone ` mark of many":               {"lone", "` mark of many"},
		"":                                  nil,
	} {
		if got := Wrapped(text, 9, 0); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestCounted(t *testing.T) {
	for noun, want := range map[string][2]string{
		"client":         {"1 client", "2 clients"},
		"more A/A block": {"1 more A/A block", "2 more A/A blocks"}, "switch": {"1 switch", "2 switches"},
		"address": {"1 address", "2 addresses"}, "entry": {"1 entry", "2 entries"}, "try": {"1 try", "2 tries"},
	} {
		if got := [2]string{Counted(1, noun), Counted(2, noun)}; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	one, none := Agreed(1, "client fits", "clients fit"), Agreed(0, "client fits", "clients fit")
	if got := one + ", " + none; got != "1 client fits, 0 clients fit" {
		t.Error(got)
	}
}
