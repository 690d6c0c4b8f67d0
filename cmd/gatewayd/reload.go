package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func reloadCommand(socket *string) *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Have the daemon read its configuration again: networks come, change and go, others go on",
		Long: "Has the daemon read its configuration again, as SIGHUP does, and waits for the end. It applies log_level,\n" +
			"and of several networks adds, changes and removes those that the file says, while clients of the others go on\n" +
			"undisturbed. Clients of a network that is removed are cut off. Other changed keys wait for a restart: they\n" +
			"are named, and then no network changes, and the exit status is 1 if one should. A file with mistakes changes\n" +
			"nothing. Mistakes in files that it names, as that of the users, are named too. The files of store.password_file\n" +
			"and store.ca_file need no reload: each new connection with the store reads them.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			r, err := c.Reload(cmd.Context())
			if err != nil {
				return err
			}
			for _, line := range r.Networks {
				fmt.Fprintln(stdout, plain(line, 400))
			}
			if len(r.Waiting) > 0 {
				fmt.Fprintf(os.Stderr, "changed keys take effect when gatewayd is restarted: %s\n", strings.Join(r.Waiting, " "))
			}
			if len(r.Problems) > 0 {
				return &exitError{exitUsage, errors.New("nothing has changed:\n" + strings.Join(r.Problems, "\n"))}
			}
			if r.Held {
				return &exitError{exitFailed, fmt.Errorf("no network has changed, because of %s, which all networks have in "+
					"common: restart gatewayd, which applies the whole file, or set that as it was and reload",
					strings.Join(r.Waiting, ", "))}
			}
			if len(r.Files) > 0 {
				return &exitError{exitUsage, errors.New("files that the configuration names have mistakes, so what was read " +
					"before stays:\n" + strings.Join(r.Files, "\n"))}
			}
			if r.Failed {
				return &exitError{exitFailed, errors.New("not all networks are as the file says; gatewayd tries again")}
			}
			return nil
		},
	}
}
