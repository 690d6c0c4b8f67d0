package manual

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Usage has wrong command line arguments fail with an error of the program's own type.
type Usage func(cobra.PositionalArgs) cobra.PositionalArgs

// Command is the command "manual", which writes a program's book. The book is asked for when the command runs.
func Command(book func(root *cobra.Command) Book, usage Usage, stdout io.Writer) *cobra.Command {
	var page string
	cmd := &cobra.Command{
		Use:   "manual FOLDER",
		Short: "Write man pages and the scripts for shells' completion to a folder such as /usr/local/share",
		Long: "Writes a man page for each command and the scripts with which bash, zsh and fish complete commands, in the\n" +
			"folders below FOLDER in which packages have them, and prints the names of the files.",
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if page == "" && len(args) == 0 {
				return usage(cobra.ExactArgs(1))(cmd, args)
			}
			b := book(cmd.Root())
			var err error
			if b.Date, err = SourceDate(); err != nil {
				return err
			}
			if page != "" {
				return os.WriteFile(page, b.Markdown(), 0o644)
			}
			files, err := b.Write(args[0])
			for _, f := range files {
				fmt.Fprintln(stdout, f)
			}
			return err
		},
		ValidArgsFunction: Folders,
	}
	cmd.Flags().StringVar(&page, "markdown", "", "write one page of Markdown to this file instead")
	_ = cmd.Flags().MarkHidden("markdown") // for make generate
	return cmd
}

// CompletionCommand is the command "completion". It replaces cobra's, whose texts mention other operating systems.
func CompletionCommand(program string, usage Usage, stdout io.Writer) *cobra.Command {
	var bare bool
	cmd := &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print the script with which a shell completes commands, flags and their values",
		Long: fmt.Sprintf("Prints a script for a shell. Packages install it. For one shell by hand, in bash and zsh:\n"+
			"  source <(%s completion bash)\nand in fish:\n  %[1]s completion fish | source\n"+
			"bash needs the package bash-completion, zsh `autoload -U compinit; compinit` before.", program),
		Args:      usage(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: Shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			return Script(cmd.Root(), args[0], stdout, !bare)
		},
	}
	cmd.Flags().BoolVar(&bare, "no-descriptions", false, "complete without descriptions")
	return cmd
}

// Folders completes one argument, a folder.
func Folders(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// Files completes one argument by the names of files with a suffix.
func Files(endings ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return endings, cobra.ShellCompDirectiveFilterFileExt
	}
}

// Complete tells shells what commands take as their argument, by the command, and as values of flags, by "FLAG", or
// "COMMAND FLAG" for one command's. Names of files are offered for all others, but not as arguments of commands that
// take none and as values of flags that are numbers and times. The values of a flag are asked for with no arguments.
func Complete(root *cobra.Command, argument, flag map[string]cobra.CompletionFunc) {
	for _, cmd := range commands(root) {
		name := strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")
		if f := argument[name]; f != nil {
			cmd.ValidArgsFunction = f
		}
		if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && cmd.ValidateArgs([]string{"word"}) != nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			values := flag[name+" "+f.Name]
			if values == nil {
				values = flag[f.Name]
			}
			if values == nil && slices.Contains([]string{"int", "float64", "duration"}, f.Value.Type()) {
				values = cobra.NoFileCompletions
			}
			if values != nil { // an error where the command has done so itself
				_ = cmd.RegisterFlagCompletionFunc(f.Name, ofFlag(values))
			}
		})
	}
}

func ofFlag(values cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return values(cmd, nil, begun)
	}
}
