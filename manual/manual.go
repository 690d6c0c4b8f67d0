// Package manual writes what a program's commands say of themselves: man pages, scripts for shells, and a page of
// Markdown. It is for any program made with cobra. Cobra's own man pages lose words in angle brackets and columns of a
// text, know neither exit status nor files, and are warned of by mandoc; its scripts for shells are the ones written
// here.
package manual

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Book is the manual of a program.
type Book struct {
	Root    *cobra.Command
	Section int       // of the manual: 1 for users' commands, 8 for the administrator's
	Title   string    // of the manual, in the middle of a page's first line
	Version string    // of the program
	Date    time.Time // of the program's sources; zero: unknown

	// What commands have besides their texts and flags.
	Exit, Environment, Files []Entry

	// Others are programs of the same build whose commands are not the root's. They take no shell completion.
	Others  []*cobra.Command
	SeeAlso []string // pages of other programs, such as "gatewayd(8)"
}

// Entry is one line of a list on a page, such as a file or an exit code.
type Entry struct {
	Name, Text string
	// Commands are the names of the commands that it belongs to, without the program's name. None: all. The program's own
	// page has all entries, with these names behind the text.
	Commands []string
}

// commands are a program's commands in the order of their names, each before its own commands, and without those that
// are hidden.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	children := slices.SortedFunc(slices.Values(cmd.Commands()), func(a, b *cobra.Command) int {
		return strings.Compare(a.Name(), b.Name())
	})
	for _, c := range children {
		if c.IsAvailableCommand() {
			all = append(all, commands(c)...)
		}
	}
	return all
}

// prepared returns a command with the flags and subcommands that cobra adds before it runs one.
func prepared(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
}

// entriesOf are the entries of a list that belong to a command's page.
func entriesOf(cmd *cobra.Command, list []Entry) (of []Entry) {
	name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	for _, e := range list {
		if !cmd.HasParent() && len(e.Commands) > 0 {
			e.Text += " (" + strings.Join(e.Commands, ", ") + ")"
		}
		if !cmd.HasParent() || len(e.Commands) == 0 || slices.Contains(e.Commands, name) {
			of = append(of, e)
		}
	}
	return of
}

// option is a flag as a page describes it.
type option struct{ names, value, text string }

// help reports whether it is the flag that all commands have.
func (o option) help() bool { return strings.HasSuffix(o.names, "--help") }

// gap is between a flag and its text in cobra's list of them.
var gap = regexp.MustCompile(` {2,}`)

// optionsOf are the flags of a set, with their defaults, as cobra words them.
func optionsOf(flags *pflag.FlagSet) (all []option) {
	flags.VisitAll(func(f *pflag.Flag) {
		one := pflag.NewFlagSet("", pflag.ContinueOnError)
		one.AddFlag(f)
		head, text := cut(strings.TrimSpace(one.FlagUsages()))
		if head == "" {
			return // hidden
		}
		names, value, _ := strings.Cut(head, " --"+f.Name)
		if f.Shorthand == "" {
			names, value = "", strings.TrimPrefix(head, "--"+f.Name)
		}
		names = strings.TrimSpace(names + " --" + f.Name)
		all = append(all, option{names, strings.TrimSpace(value), strings.Join(strings.Fields(text), " ")})
	})
	return all
}

// cut takes a line of cobra's list of flags apart.
func cut(line string) (head, text string) {
	parts := gap.Split(line, 2)
	if len(parts) == 1 {
		return line, ""
	}
	return parts[0], parts[1]
}

// block is a part of a text: a paragraph, or lines that stay as they are.
type block struct {
	text     string
	verbatim bool
}

// blocks takes a command's text apart. Lines that begin with two spaces stay as they are; an empty line ends a
// paragraph.
func blocks(text string) (all []block) {
	ended := true
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		verbatim := strings.HasPrefix(line, "  ")
		last := len(all) - 1
		switch {
		case strings.TrimSpace(line) == "":
			ended = true
			continue
		case ended || all[last].verbatim != verbatim:
			all = append(all, block{strings.TrimRight(line, " "), verbatim})
		case verbatim:
			all[last].text += "\n" + line
		default:
			all[last].text += " " + line
		}
		ended = false
	}
	return all
}

// useLine is how a command is called.
func useLine(cmd *cobra.Command) string {
	for _, o := range optionsOf(cmd.NonInheritedFlags()) {
		if !o.help() {
			return cmd.UseLine()
		}
	}
	return strings.TrimSuffix(cmd.UseLine(), " [flags]")
}

// description is a command's text.
func description(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short + "."
}
