package tomlline_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/tomlline"
)

func TestBlame(t *testing.T) {
	for text, want := range map[string]struct {
		line int
		says string
	}{
		"a = 1\nb = [1,\n 2\nc = 3\n":      {2, "the array that begins here is not closed, or lacks a comma, before line"},
		"a = 1\nb = \"\"\"x\n\nc = 3\n":    {2, "the text that begins here is not closed before line"},
		"a = 1\nb = { x = 1,\n y = 2\nc\n": {2, "the table that begins here is not closed"},
		"a = 1\nb = x\nc = 3\n":            {2, ""},
		"[":                                {1, ""},
	} {
		var whole map[string]any
		var bad toml.ParseError
		if err := toml.Unmarshal([]byte(text), &whole); !errors.As(err, &bad) {
			t.Fatalf("%q: %v", text, err)
		}
		line, said := tomlline.Blame([]byte(text), bad.Position.Line, bad.Message)
		if line != want.line || !strings.HasPrefix(said, want.says) || want.says == "" && said != bad.Message {
			t.Errorf("%q: line %d: %s", text, line, said)
		}
	}
}
