// Package meant names the command or flag that a misspelt one is near to, for any program made with cobra.
package meant

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gateweigh/gateweigh/internal/near"
)

// Arguments has errors of a check name the command's arguments, or the command that was meant. as makes usage errors of
// them.
func Arguments(check cobra.PositionalArgs, as func(error) error) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := command(cmd, check(cmd, args), args)
		if err == nil {
			return nil
		}
		if cmd.HasParent() {
			err = fmt.Errorf("want %s: %w", strings.TrimSuffix(cmd.UseLine(), " [flags]"), err)
		}
		return as(err)
	}
}

// command adds to the error of a command that takes no such argument which of its commands was meant.
func command(cmd *cobra.Command, err error, args []string) error {
	if err == nil || !cmd.HasAvailableSubCommands() || len(args) == 0 {
		return err
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return fmt.Errorf("%w%s", err, near.Meant(args[0], known))
}

// Flag adds to an error of a command's flags which flag was meant.
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
	return fmt.Errorf("%w%s", err, near.Meant("--"+unknown.GetSpecifiedName(), known))
}
