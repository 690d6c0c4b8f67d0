package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Markdown is a page with all commands of a program, for reading and for links: a section for each.
func (b Book) Markdown() []byte {
	var m strings.Builder
	fmt.Fprintf(&m, "<!-- Made by make generate from the commands' own texts. -->\n# Commands of %s\n", b.Root.Name())
	for _, root := range slices.Concat([]*cobra.Command{b.Root}, b.Others) {
		for _, cmd := range commands(root) {
			b.section(&m, cmd)
		}
	}
	for _, list := range []struct {
		title string
		all   []Entry
	}{{"Exit status", b.exit(b.Root)}, {"Environment", b.Environment}, {"Files", b.Files}} {
		if len(list.all) == 0 {
			continue
		}
		fmt.Fprintf(&m, "\n## %s\n\n| | Means | Commands |\n|---|---|---|\n", list.title)
		for _, e := range list.all {
			fmt.Fprintf(&m, "| `%s` | %s | %s |\n", e.Name, cell(e.Text), strings.Join(e.Commands, ", "))
		}
	}
	return []byte(m.String())
}

func (b Book) section(m *strings.Builder, cmd *cobra.Command) {
	prepared(cmd)
	fmt.Fprintf(m, "\n## %s\n\n    %s\n", cmd.CommandPath(), useLine(cmd))
	for _, b := range blocks(description(cmd)) {
		if b.verbatim {
			fmt.Fprintf(m, "\n%s\n", indented(b.text))
		} else {
			fmt.Fprintf(m, "\n%s\n", plain(b.text))
		}
	}
	options := slices.DeleteFunc(optionsOf(cmd.NonInheritedFlags()), option.help)
	if len(options) > 0 {
		m.WriteString("\n| Flag | Means |\n|---|---|\n")
	}
	for _, o := range options {
		names := "`" + strings.ReplaceAll(strings.TrimSpace(o.names+" "+o.value), ", ", "`, `") + "`"
		fmt.Fprintf(m, "| %s | %s |\n", names, cell(o.text))
	}
	if cmd.Example != "" {
		fmt.Fprintf(m, "\nFor example:\n\n%s\n", indented(strings.TrimRight(cmd.Example, "\n")))
	}
}

// indented has lines as Markdown takes them for code: by four spaces.
func indented(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

var marks = strings.NewReplacer(`\`, `\\`, "*", `\*`, "<", `\<`, "[", `\[`)

// plain is a text in which words in backquotes are code.
func plain(text string) string {
	parts := strings.Split(text, "`")
	for i := range parts {
		if i%2 == 0 {
			parts[i] = marks.Replace(parts[i])
		}
	}
	return strings.Join(parts, "`")
}

func cell(text string) string { return strings.ReplaceAll(plain(text), "|", `\|`) }
