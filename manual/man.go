package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Page is one man page.
type Page struct {
	Name string // gateweigh-run.1
	Text []byte // man(7)
}

// Pages are the man pages of a program, one for each command: that of "gateweigh run" is gateweigh-run(1).
func (b Book) Pages() (all []Page) {
	for _, root := range slices.Concat([]*cobra.Command{b.Root}, b.Others) {
		for _, cmd := range commands(root) {
			all = append(all, Page{fmt.Sprintf("%s.%d", pageName(cmd), b.Section), b.page(cmd)})
		}
	}
	return all
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// roff is a page that is being written, in the format of man pages.
type roff struct{ strings.Builder }

func (r *roff) line(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

func (b Book) page(cmd *cobra.Command) []byte {
	prepared(cmd)
	var r roff
	date := ""
	if !b.Date.IsZero() {
		date = b.Date.UTC().Format("2006-01-02")
	}
	r.line(`.TH %s %d "%s" "%s" "%s"`, escaped(strings.ToUpper(pageName(cmd))), b.Section, date,
		escaped(cmd.Root().Name()+" "+b.Version), escaped(b.Title))
	r.line(".SH NAME\n%s \\-\n%s", escaped(pageName(cmd)), inline(cmd.Short))
	r.line(".SH SYNOPSIS")
	r.synopsis(cmd)
	r.line(".SH DESCRIPTION")
	r.text(description(cmd))
	own, inherited := optionsOf(cmd.NonInheritedFlags()), optionsOf(cmd.InheritedFlags())
	r.options("OPTIONS", slices.Concat(own, inherited))
	if below := commands(cmd)[1:]; len(below) > 0 {
		r.line(".SH COMMANDS")
		for _, c := range below {
			r.line(".TP\n.BR %s (%d)\n%s", escaped(pageName(c)), b.Section, inline(c.Short))
		}
	}
	r.entries("EXIT STATUS", entriesOf(cmd, b.exit(cmd)))
	r.entries("ENVIRONMENT", entriesOf(cmd, b.ofProgram(cmd, b.Environment)))
	r.entries("FILES", entriesOf(cmd, b.ofProgram(cmd, b.Files)))
	if cmd.Example != "" {
		r.line(".SH EXAMPLES")
		r.verbatim(strings.TrimRight(cmd.Example, "\n"))
	}
	r.line(".SH SEE ALSO\n%s", strings.Join(b.seeAlso(cmd), ",\n"))
	return []byte(r.String())
}

// ofProgram is a list of the book's program, which its other programs do not have.
func (b Book) ofProgram(cmd *cobra.Command, list []Entry) []Entry {
	if cmd.Root() != b.Root {
		return nil
	}
	return list
}

// exit are the exit status of a program, in their order.
func (b Book) exit(cmd *cobra.Command) []Entry {
	return slices.Concat([]Entry{{Name: "0", Text: "done"}}, b.ofProgram(cmd, b.Exit))
}

// seeAlso are the pages beside a command's own.
func (b Book) seeAlso(cmd *cobra.Command) (pages []string) {
	of := func(cmd *cobra.Command) string { return fmt.Sprintf("%s(%d)", pageName(cmd), b.Section) }
	if cmd.HasParent() {
		pages = []string{of(cmd.Parent())}
	} else {
		for _, root := range slices.Concat([]*cobra.Command{b.Root}, b.Others) {
			if root != cmd {
				pages = append(pages, of(root))
			}
		}
		pages = append(pages, b.SeeAlso...)
	}
	for i, page := range pages {
		pages[i] = ".BR " + strings.Replace(escaped(page), "(", " (", 1)
	}
	return pages
}

// synopsis is how a command is called. Words in capitals are for values.
func (r *roff) synopsis(cmd *cobra.Command) {
	r.line(".nf")
	for way := range strings.SplitSeq(useLine(cmd), "\n") {
		r.line("\\fB%s\\fR%s", escaped(cmd.CommandPath()), escaped(strings.TrimPrefix(way, cmd.CommandPath())))
	}
	r.line(".fi")
}

func (r *roff) options(title string, all []option) {
	if len(all) == 0 {
		return
	}
	r.line(".SH %s", title)
	for _, o := range all {
		names := `\fB` + strings.ReplaceAll(escaped(o.names), ", ", `\fR, \fB`) + `\fR`
		if o.value != "" {
			names += ` \fI` + escaped(o.value) + `\fR`
		}
		r.line(".TP\n%s\n%s", names, inline(o.text))
	}
}

func (r *roff) entries(title string, all []Entry) {
	if len(all) == 0 {
		return
	}
	r.line(".SH %s", title)
	for _, e := range all {
		r.line(".TP\n\\fB%s\\fR\n%s", escaped(e.Name), inline(e.Text))
	}
}

func (r *roff) text(text string) {
	for i, b := range blocks(text) {
		switch {
		case b.verbatim:
			r.verbatim(b.text)
		case i > 0:
			r.line(".PP\n%s", inline(b.text))
		default:
			r.line("%s", inline(b.text))
		}
	}
}

func (r *roff) verbatim(text string) {
	r.line(".nf")
	for line := range strings.SplitSeq(text, "\n") {
		r.line("%s", escaped(line))
	}
	r.line(".fi")
}

// inline is a text in which words in backquotes are bold, in lines of a width that mandoc wants.
func inline(text string) string {
	parts := strings.Split(text, "`")
	for i, part := range parts {
		parts[i] = escapedWords(part)
		if i%2 == 1 {
			parts[i] = `\fB` + parts[i] + `\fR`
		}
	}
	var lines []string
	for word := range strings.FieldsSeq(strings.Join(parts, "")) {
		last := len(lines) - 1
		if last < 0 || len(lines[last])+1+len(word) > width {
			lines = append(lines, leading(word))
		} else {
			lines[last] += " " + word
		}
	}
	return strings.Join(lines, "\n")
}

const width = 79

// escaped is a text that roff takes as it is, and that is copied from a page as it is here.
func escaped(text string) string { return leading(escapedWords(text)) }

// leading keeps a line from being a request.
func leading(text string) string {
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, `\(aq`) {
		return `\&` + text
	}
	return text
}

var special = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`)

func escapedWords(text string) string {
	var b strings.Builder
	for _, c := range special.Replace(text) {
		if c < 0x80 {
			b.WriteRune(c)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, c)
		}
	}
	return b.String()
}
