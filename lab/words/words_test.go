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
