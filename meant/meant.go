// Package meant names the command or flag that a misspelt one is near to, for any program made with cobra.
package meant

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// Command adds to the error of a command that takes no such argument which of its commands was meant.
func Command(cmd *cobra.Command, err error, args []string) error {
	if err == nil || !cmd.HasAvailableSubCommands() || len(args) == 0 {
		return err
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return fmt.Errorf("%w%s", err, strict.Meant(args[0], known))
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
	return fmt.Errorf("%w%s", err, strict.Meant("--"+unknown.GetSpecifiedName(), known))
}
