// Package meant adds suggestions to the errors of programs made with cobra: for a misspelt command or flag it names the
// one that the user probably meant.
package meant

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gateweigh/gateweigh/internal/near"
)

// Arguments wraps a check of a command's arguments (cobra.Command.Args), so that its error shows how the command is
// called, or, for a command with subcommands, suggests the subcommand that was meant. as turns the error into the
// program's own type of usage error.
func Arguments(check cobra.PositionalArgs, as func(error) error) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := suggestCommand(cmd, check(cmd, args), args)
		if err == nil {
			return nil
		}
		if cmd.HasParent() {
			err = fmt.Errorf("want %s: %w", strings.TrimSuffix(cmd.UseLine(), " [flags]"), err)
		}
		return as(err)
	}
}

// suggestCommand adds the most similar subcommand to the error of a command that got an unknown one as its first
// argument. Other errors are returned as they are.
func suggestCommand(cmd *cobra.Command, err error, args []string) error {
	if err == nil || !cmd.HasAvailableSubCommands() || len(args) == 0 {
		return err
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return fmt.Errorf("%w%s", err, near.Suggestion(args[0], known))
}

// Flag adds the most similar flag to the error for an unknown flag. Other errors are returned as they are.
func Flag(cmd *cobra.Command, err error) error {
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, "--"+f.Name)
		}
	})
	return fmt.Errorf("%w%s", err, near.Suggestion("--"+unknown.GetSpecifiedName(), known))
}
