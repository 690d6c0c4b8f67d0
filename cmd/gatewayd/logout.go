package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/control"
)

func logoutCommand(socket *string) *cobra.Command {
	var req control.LogoutRequest
	cmd := &cobra.Command{
		Use:   "logout ADDRESS | --user USER | --all",
		Short: "End sessions: one client's, a user's, or all",
		Long:  "Ends sessions. The clients keep their addresses and get the login page again.",
		Args:  usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := chooseSessions(&req, args, cmd.Flags().Changed("user")); err != nil {
				return &exitError{exitUsage, err}
			}
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			reply, err := c.Logout(cmd.Context(), req)
			if err != nil {
				return err
			}
			notSaved := "" // of sessions whose end cannot be written to disk yet
			if reply.Later > 0 {
				notSaved = fmt.Sprintf("; %d blocked; not on the disk yet: free space at state_dir", reply.Later)
			}
			fmt.Fprintf(stdout, "%s ended%s\n", counted(reply.Ended, "session", "sessions"), notSaved)
			return nil
		},
	}
	cmd.Flags().StringVar(&req.User, "user", "", "all sessions of this user")
	cmd.Flags().BoolVar(&req.All, "all", false, "all sessions of all users")
	return cmd
}

// chooseSessions accepts exactly one of an address, --user and --all, so that a typing mistake cannot log out all
// users. args has the address; user reports that --user is given.
func chooseSessions(req *control.LogoutRequest, args []string, user bool) error {
	given := len(args)
	for _, set := range []bool{user, req.All} {
		if set {
			given++
		}
	}
	if given != 1 || user && req.User == "" {
		return errors.New("whose sessions? give one of ADDRESS, --user USER and --all")
	}
	var err error
	if len(args) == 1 {
		req.Addr, err = clientAddress(args[0])
	}
	return err
}
