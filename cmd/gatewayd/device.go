package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/control"
)

func deviceCommand(socket *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "device",
		Short: "List and forget devices that need not log in again",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(deviceListCommand(socket), deviceForgetCommand(socket))
	return cmd
}

func deviceListCommand(socket *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the devices that are remembered after a login",
		Long: "Lists the devices that are remembered after a login (devices.remember), by MAC address, of several\n" +
			"networks one after the other, with who logged in, and until when they need not log in again.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			all, err := c.Devices(cmd.Context())
			if err != nil {
				return err
			}
			if len(all) == 0 && !asJSON {
				fmt.Fprintln(cmd.ErrOrStderr(), "no device is remembered")
			}
			return writeDevices(all, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	return cmd
}

// writeDevices prints devices: a table, or JSON.
func writeDevices(all []control.Device, asJSON bool) error {
	out := bufio.NewWriter(stdout)
	enc := json.NewEncoder(out)
	for i, d := range all {
		if asJSON {
			if err := enc.Encode(d); err != nil {
				return err
			}
			continue
		}
		network, title := "", ""
		if d.Network != "" {
			network, title = fmt.Sprintf("%-15s  ", d.Network), fmt.Sprintf("%-15s  ", "NETWORK")
		}
		const row = "%s%-17s  %-16s  %-16s  %s\n"
		if i == 0 {
			fmt.Fprintf(out, row, title, "MAC", "SINCE", "UNTIL", "USER")
		}
		at := func(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }
		fmt.Fprintf(out, row, network, d.MAC, at(d.Since), at(d.Until), orDash(plain(d.User, 40)))
	}
	return out.Flush()
}

func deviceForgetCommand(socket *string) *cobra.Command {
	var req control.ForgetRequest
	cmd := &cobra.Command{
		Use:   "forget MAC | --user USER | --all",
		Short: "Forget remembered devices: one, a user's, or all",
		Long: "Forgets devices that are remembered after a login. Their sessions end if they came in without a login, and\n" +
			"they get the login page again.",
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := len(args)
			for _, set := range []bool{cmd.Flags().Changed("user"), req.All} {
				if set {
					given++
				}
			}
			if given != 1 || cmd.Flags().Changed("user") && req.User == "" {
				return &exitError{exitUsage, errors.New("which devices? give one of MAC, --user USER and --all")}
			}
			if len(args) == 1 {
				req.MAC = args[0]
			}
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			done, err := c.Forget(cmd.Context(), req)
			if err == nil {
				fmt.Fprintf(stdout, "%s forgotten\n", counted(done.Forgotten, "device", "devices"))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&req.User, "user", "", "all devices of this user")
	cmd.Flags().BoolVar(&req.All, "all", false, "all devices of all users")
	return cmd
}
