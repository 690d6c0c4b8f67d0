package main

import (
	"strings"
	"testing"
)

func announces(n, pkg, action string) string {
	return `echo '{"Action":"packages","Value":"` + n + `"}'; echo '{"Action":"pass","Package":"` + pkg +
		`","Test":"TestA"}'
echo '{"Action":"` + action + `","Package":"` + pkg + `","Elapsed":1}'; `
}

// TestProgress: what two commands print side by side is counted together, each package has its place among all, and a
// command that fails without a test's failure, or leaves packages out, is a failure.
func TestProgress(t *testing.T) {
	long := `echo '{"Action":"output","Package":"c","Test":"TestA","Output":"` + strings.Repeat("long ", 5000) + `"}'`
	for _, c := range []struct {
		name     string
		commands []string
		passed   int
		failures string
		says     []string
	}{
		{"all", []string{announces("1", "a", "pass"), announces("1", "b", "skip") + long}, 2, "",
			[]string{"2 packages to test"}},
		{"one after the other", []string{"sleep 0.2; " + announces("2", "a", "pass"), then, announces("0", "b", "pass")}, 2,
			"",
			[]string{"ok    a  1.0 s  (1 of 2 packages)", "ok    b  1.0 s  (2 of 2 packages)"}},
		{"the later also after an error", []string{announces("2", "a", "pass") + "exit 7", then, announces("0", "b", "pass")},
			2,
			"exit status 7", []string{"(2 of 2 packages)"}},
		{"one ends with an error", []string{announces("1", "a", "pass") + "exit 7", announces("1", "b", "pass")}, 2,
			"exit status 7", []string{"(2 of 2 packages)"}},
		{"a failure is told once", []string{announces("1", "a", "fail") + "exit 1"}, 1, "failed  a",
			[]string{"FAIL  a", "(1 of 1 packages)"}},
		{"not to the end", []string{announces("3", "a", "pass")}, 1, "2 of 3 packages were not tested",
			[]string{"(1 of 3 packages)"}},
		{"nobody announces", []string{`echo '{"Action":"pass","Package":"a","Elapsed":1}'`}, 0, "",
			[]string{"ok    a  1.0 s\n"}},
	} {
		var printed strings.Builder
		ta := tally{w: &printed}
		commands := run(c.commands)
		if err := ta.read(commands); err != nil {
			t.Fatal(err)
		}
		ta.complete(commands.wait())
		if ta.passed != c.passed || (c.failures == "") != (ta.failed == 0) || ta.failed > 1 ||
			!strings.Contains(ta.broken(), c.failures) {
			t.Errorf("%s: %s, %q", c.name, ta.summary(), ta.broken())
		}
		for _, text := range c.says {
			if !strings.Contains(printed.String(), text) {
				t.Errorf("%s: %q is not in\n%s", c.name, text, printed.String())
			}
		}
	}
}
