// Package manualtest is what the manual of every program must show.
package manualtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gateweigh/gateweigh/manual"
)

// Write writes a program's manual below a folder, and checks it: there is a page for each command, with an entry for
// each flag, mandoc finds nothing to say of them, lists name commands that there are, shells take the scripts.
func Write(t *testing.T, b manual.Book, folder string) {
	t.Helper()
	b.Date = time.Unix(1700000000, 0) // mandoc warns of pages without
	if _, err := b.Write(folder); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(folder, "man/man*/*"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	out, err := exec.Command("mandoc", slices.Concat([]string{"-Tlint"}, pages)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("mandoc -Tlint: %v\n%s", err, out)
	}
	left := map[string]bool{}
	for _, p := range pages {
		left[filepath.Base(p)] = true
	}
	names := map[string]bool{}
	for _, root := range append(b.Others, b.Root) {
		each(root, func(cmd *cobra.Command) {
			names[strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")] = true
			name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + map[int]string{1: ".1", 8: ".8"}[b.Section]
			delete(left, name)
			complete(t, cmd, filepath.Join(filepath.Dir(pages[0]), name))
		})
	}
	if len(left) > 0 {
		t.Errorf("pages of no command: %v", left)
	}
	for _, e := range slices.Concat(b.Exit, b.Environment, b.Files) {
		for _, of := range e.Commands {
			if !names[of] {
				t.Errorf("%s is of %q, which is no command", e.Name, of)
			}
		}
	}
	scripts(t, b.Root.Name(), folder)
}

// each calls f for all commands that are not hidden.
func each(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			each(c, f)
		}
	}
}

// complete holds a page, as a reader sees it, against its command.
func complete(t *testing.T, cmd *cobra.Command, page string) {
	t.Helper()
	out, err := exec.Command("mandoc", "-Tutf8", "-Owidth=78", page).Output()
	if err != nil {
		t.Errorf("%s: %v", page, err)
		return
	}
	text := regexp.MustCompile(".\b").ReplaceAllString(string(out), "") // letters are printed twice to be bold
	for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"} {
		if !strings.Contains(text, "\n"+section+"\n") {
			t.Errorf("%s has no section %s", page, section)
		}
	}
	words := strings.Join(strings.Fields(strings.ReplaceAll(text, "\u2010\n", "-")), " ")
	for _, want := range []string{cmd.Short, cmd.Long, cmd.Example} {
		want = strings.Join(strings.Fields(strings.ReplaceAll(want, "`", "")), " ")
		if !strings.Contains(words, want) {
			t.Errorf("%s does not say %q:\n%s", page, want, text)
		}
	}
	check := func(f *pflag.Flag) {
		entry := regexp.MustCompile(`(?m)^ {5,7}(-[a-zA-Z], )?--` + f.Name + `\b`)
		if !f.Hidden && !entry.MatchString(text) {
			t.Errorf("%s has no entry for --%s", page, f.Name)
		}
		if f.Usage == "" && !f.Hidden {
			t.Errorf("%s: nothing is said of --%s", cmd.CommandPath(), f.Name)
		}
	}
	cmd.NonInheritedFlags().VisitAll(check)
	cmd.InheritedFlags().VisitAll(check)
}

// scripts has bash, and the other shells that are here, take the scripts.
func scripts(t *testing.T, program, folder string) {
	t.Helper()
	for shell, c := range map[string]struct{ file, check string }{
		"bash": {"bash-completion/completions/" + program, `. "$0"; complete -p ` + program},
		"zsh":  {"zsh/site-functions/_" + program, `autoload -Uz compinit; compinit -D -u; . "$0"; whence -w _` + program},
		"fish": {"fish/vendor_completions.d/" + program + ".fish", `source $argv[1]; complete ` + program},
	} {
		script := filepath.Join(folder, c.file)
		if _, err := os.Stat(script); err != nil {
			t.Error(err)
		}
		if _, err := exec.LookPath(shell); err != nil && shell != "bash" {
			t.Logf("%s is not here: its script is not tried", shell)
			continue
		}
		out, err := exec.Command(shell, "-c", c.check, script).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte(program)) {
			t.Errorf("%s does not take its script: %v, %s", shell, err, out)
		}
	}
}

// Again checks that the command "manual" writes the same bytes whenever it is run, and dates pages by
// SOURCE_DATE_EPOCH. run runs the command with an environment and a folder.
func Again(t *testing.T, run func(env []string, folder string)) {
	t.Helper()
	a, b, other := t.TempDir(), t.TempDir(), t.TempDir()
	run([]string{"SOURCE_DATE_EPOCH=1700000000", "TZ=Pacific/Auckland"}, a)
	run([]string{"SOURCE_DATE_EPOCH=1700000000", "TZ=America/Lima", "LANG=de_DE.UTF-8"}, b)
	run([]string{"SOURCE_DATE_EPOCH=1800000000"}, other)
	if out, err := exec.Command("diff", "-r", a, b).CombinedOutput(); err != nil {
		t.Errorf("the manual is another when it is made again: %v\n%s", err, out)
	}
	out, _ := exec.Command("diff", "-r", a, other).CombinedOutput() // it ends with 1 where files differ
	if !strings.Contains(string(out), `"2023-11-14"`) || !strings.Contains(string(out), `"2027-01-15"`) {
		t.Errorf("pages are not dated by SOURCE_DATE_EPOCH:\n%s", out)
	}
}

// Page checks that a page of the documentation equals the one that the commands make.
func Page(t *testing.T, b manual.Book, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(text, b.Markdown()) {
		t.Errorf("%s is not what the commands say (%v): make generate writes it", path, err)
	}
}
