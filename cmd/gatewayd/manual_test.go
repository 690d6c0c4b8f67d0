package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestManualNamesEveryVerb checks that the reference has a row for each command, with
// all of its flags.
func TestManualNamesEveryVerb(t *testing.T) {
	text, err := os.ReadFile("../../docs/gateway-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	_, section, _ := strings.Cut(string(text), "\n## Control\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if m := regexp.MustCompile("^\\| `gatewayd ([a-z-]+)").FindStringSubmatch(line); m != nil {
			rows[m[1]] = line
		}
	}
	for _, cmd := range rootCommand().Commands() {
		row, named := rows[cmd.Name()]
		if !named {
			t.Errorf("the manual has no row for %s", cmd.Name())
		}
		delete(rows, cmd.Name())
		if want, got := flagsOf(cmd), flagsIn(row); !slices.Equal(got, want) {
			t.Errorf("%s has the flags %v, the manual names %v", cmd.Name(), want, got)
		}
	}
	if len(rows) > 0 {
		t.Errorf("the manual has rows for what is no verb: %v", rows)
	}
}

// flagsOf lists a verb's own flags. -c stands for --config in the manual.
func flagsOf(cmd *cobra.Command) []string {
	isCommon := func(name string) bool { return name == "--config" || name == "--help" }
	return slices.DeleteFunc(flagsIn(cmd.LocalNonPersistentFlags().FlagUsages()), isCommon)
}

func flagsIn(text string) []string {
	names := regexp.MustCompile(`--[a-z-]+`).FindAllString(text, -1)
	slices.Sort(names)
	return names
}
