package experiment

import "testing"

// TestLinesOfKeys places keys where a line count could go wrong.
func TestLinesOfKeys(t *testing.T) {
	text := "a = 1\n" + // 1
		"b = [ # [c]\n  1,\n\n  2 ]\n" + // 2
		"c = \"\"\"\nd = 1\n\\\"\"\" \n\"\"\"\n" + // 6
		"[t]\n" + // 10
		"  e.f = '''x'''\n" + // 11
		"\"g.h\" = { i = 1,\r\n j = 2 }\n" + // 12
		"[t.u.v]\n" + // 14
		"[[w]]\nx = 1\n" + // 15
		"# ä\n[t.\"y z\"]\nk = '''\n\n1\n'''\n" // 17, 18, 19
	for _, mark := range []string{"", "\ufeff"} { // a byte order mark
		entries, err := parseEntries("x", []byte(mark+text))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, e := range entries {
			got[e.key.String()] = e.line
		}
		checkLines(t, got)
	}
}

// checkLines compares the lines of TestLinesOfKeys.
func checkLines(t *testing.T, got map[string]int) {
	t.Helper()
	for key, line := range map[string]int{
		"a": 1, "b": 2, "c": 6, "t": 10, "t.e": 11, "t.e.f": 11, `t."g.h"`: 12, `t."g.h".i`: 12, `t."g.h".j`: 13,
		"t.u": 14, "t.u.v": 14, "w": 15, `t."y z"`: 18, `t."y z".k`: 19,
	} {
		if got[key] != line {
			t.Errorf("%s is on line %d, not %d", key, line, got[key])
		}
	}
}
