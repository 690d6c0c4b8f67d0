package strict_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// TestLinesOfKeys: keys are found on their lines, even where counting lines is difficult.
func TestLinesOfKeys(t *testing.T) {
	const text = "a = 1\n" + // 1
		"b = [ # [c]\n  1,\n\n  { x = 2 } ]\n" + // 2
		"c = \"\"\"\nd = 1\n\\\"\"\" \n\"\"\"\r\n" + // 6
		"[t]\n" + // 10
		"  e.f = '''x'''\n" + // 11
		"\"g.h\" = { i = 1,\r\n j = 2 }\n" + // 12
		"[t.u.v]\n" + // 14
		"[[w]]\nx = 1\n" + // 15
		"# ä\n[t.\"y z\"]\nk = '''\n\n1\n'''\n" + // 17, 18, 19
		"[[w]]\nx.y = 1\n[[w.z]]\n" + // 23, 24, 25
		"[m.n]\n[m]\n" // 26, 27
	want := map[string]int{
		"a": 1, "b": 2, "c": 6, "t": 10, "t.e": 11, "t.e.f": 11, `t."g.h"`: 12, `t."g.h".i`: 12, `t."g.h".j`: 13,
		"t.u": 14, "t.u.v": 14, "w": 15, "w#1": 15, "w.x#1": 16, `t."y z"`: 18, `t."y z".k`: 19,
		"w#2": 23, "w.x#2": 24, "w.x.y#2": 24, "w.z#2": 25, "m.n": 26, "m": 27,
	}
	for _, mark := range []string{"", "\ufeff"} { // a byte order mark
		entries, bad := strict.Read("x", []byte(mark+text), "")
		if bad != nil {
			t.Fatal(bad)
		}
		got := map[string]int{}
		for _, e := range entries {
			key := e.Key()
			if e.Row > 0 {
				key += "#" + string(rune('0'+e.Row))
			}
			got[key] = e.Line
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// TestRefusedTOML: an array or a text that is not closed is reported at the line on which it begins.
func TestRefusedTOML(t *testing.T) {
	for text, want := range map[string]string{
		"a = 1\nb = [1,\n 2\nc = 3\n": "x:2: b: the array that begins here is not closed, or lacks a comma, before " +
			"line 4: ",
		"a = 1\nb = \"\"\"x\n\nc = 3\n": "x:2: b: the text that begins here is not closed before line ",
		"a = 1\nb = { x = 1,\n y = 2\nc\n": "x:2: b.y: the table that begins here is not closed, or lacks a comma, before " +
			"line ",
		"a = 1\nb = x\nc = 3\n": "x:2: b: expected value but found \"x\" instead: values other than numbers, " +
			"true and false stand in quotes: b = \"…\"",
		"[":                                "x:1: ",
		"\x7fELF\x02\x01\x01\x00\n[lan]\n": "x:1: is no text: name a file in TOML",
		"a = 1\nb\n": "x:2: expected '.' or '=', but got '\\n' instead: each line is a [table] or " +
			"key = value; see y",
	} {
		if _, bad := strict.Read("x", []byte(text), "see y"); bad == nil || !strings.HasPrefix(bad.Error(), want) {
			t.Errorf("%q: %v, want %s", text, bad, want)
		}
	}
}

// FuzzRead: in every text that is TOML, each key has a line of the text, and tables precede the keys in them.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"a.b = 1\n[c]\nd = [\n1]\n", "[[x]]\n[[x.y]]\n[[x]]\nz = { a = 1,\n b.c = 2 }\n", "x = [[", "t = 07:32\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		entries, bad := strict.Read("x", []byte(text), "")
		lines := 1 + strings.Count(text, "\n")
		if bad != nil && (bad.Line < 1 || bad.Line > lines) {
			t.Errorf("%v of %d lines", bad, lines)
		}
		for i, e := range entries {
			if e.Line < 1 || e.Line > lines || len(e.Path) > 1 && !strings.HasPrefix(e.Key(), entries[i-1].Path[:1].String()) {
				t.Errorf("%+v of %d lines", e, lines)
			}
		}
	})
}
