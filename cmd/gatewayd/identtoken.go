package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
)

func identTokenCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "ident-token TOKEN",
		Short: "Print the user that a token of ident.answer = \"token\" stands for",
		Long: "Prints the user, the client's address and the time of the query that a token was the answer to. The key " +
			"is\nin state_dir of the configuration.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := config.Load(file)
			if err != nil {
				return err
			}
			for _, n := range cfg.All() {
				if n.Ident.Enabled { // of several networks one at most
					cfg = n
				}
			}
			a, err := gateway.IdentToken(cfg, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(stdout, a.User, a.Client, a.At.UTC().Format(time.RFC3339))
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", defaultConfig, "configuration")
	return cmd
}
