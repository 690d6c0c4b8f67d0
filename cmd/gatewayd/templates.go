package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
)

func templatesCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "templates FOLDER",
		Short: "Write the portal's pages, style and texts to a folder, to be changed",
		Long: "Writes the built-in pages of the portal, their style and their texts in each language to a folder, and the\n" +
			"names of the files. With portal.templates = \"FOLDER\" gatewayd takes them instead; files that are deleted\n" +
			"there are the built-in ones again. docs/portal-pages.md describes them.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			paths, err := gateway.WriteTemplates(args[0], force)
			for _, p := range paths {
				fmt.Fprintln(stdout, p)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace files of former ones")
	return cmd
}
