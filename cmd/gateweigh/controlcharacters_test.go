// Tests of control characters in names and texts that gateweigh prints.

package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. small is an experiment of a few seconds with the device allowlist.

// TestControlCharacters: a device's program prints control characters. None of them reaches the terminal, and pages,
// Markdown and XML stay well-formed.
func TestControlCharacters(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "loud.toml", strings.Replace(small, `["allowlist"]`, `["allowlist", "loud"]`, 1)+`
[dut.loud]
start = "printf 'red \\033[31m title \\033]0;owned\\007 8 bits \\302\\233 back\\b\\b \\001 torn \\377 turned \\342\\200\\256 end'; exit 1"
`)
	texts := map[string]string{}
	e := finish(t, command(t, dir, "run", "loud.toml", "--out", "r"))
	texts["run's stdout"], texts["run's stderr"] = e.stdout, e.stderr
	for what, text := range texts {
		if !strings.Contains(text, "owned") {
			t.Errorf("%s does not tell what the program said:\n%s", what, text)
		}
	}
	again := finish(t, command(t, dir, "report", "r"))
	gate := finish(t,
		command(t, dir, "compare", "r", "r", "--max-regression", "5%", "--junit", "gate.xml", "--markdown", "-"))
	texts["report's stdout"], texts["compare's Markdown"] = again.stdout, gate.stdout
	for _, name := range []string{"r/report.html", "gate.xml"} {
		texts[name] = string(read(t, dir, name))
	}
	csvs, _ := filepath.Glob(filepath.Join(dir, "r", "*.csv"))
	for _, name := range csvs {
		texts[name] = string(read(t, "", name))
	}
	for what, text := range texts {
		for _, r := range text {
			if unicode.IsControl(r) && !strings.ContainsRune("\n\t\r", r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("%s has %U", what, r)
				break
			}
		}
		if len(text) == 0 {
			t.Errorf("%s is empty", what)
		}
	}
	x := xml.NewDecoder(bytes.NewReader(read(t, dir, "gate.xml")))
	for {
		if _, err := x.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
