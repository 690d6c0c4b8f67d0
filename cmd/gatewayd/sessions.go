package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/control"
)

func sessionsCommand(socket *string) *cobra.Command {
	var asJSON bool
	var user, state string
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List clients: user, start, bytes sent and received",
		Long: "Lists clients by address. UP is what a client has sent, DOWN what it has received, IDLE the time since\n" +
			"its last packet, LEFT the rest of its session time. With --json, one object a line.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter := control.Filter{User: user, State: control.State(state)}
			if err := filter.Check(); err != nil {
				return &exitError{exitUsage, err}
			}
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			out := bufio.NewWriter(stdout)
			show := tableWriter(out, time.Now())
			if asJSON {
				enc := json.NewEncoder(out)
				enc.SetEscapeHTML(false)
				show = func(s control.Session) error { return enc.Encode(s) }
			}
			err = c.Sessions(cmd.Context(), filter, show)
			// Print the rows that have arrived, also after an error.
			if flushed := out.Flush(); err == nil {
				err = flushed
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	cmd.Flags().StringVar(&user, "user", "", "only this user's")
	cmd.Flags().StringVar(&state, "state", "", "only clients that are leased, preauth or authenticated")
	return cmd
}

// rowFormat has fixed columns, so that rows can be written as they arrive. The last two
// columns are not padded.
const rowFormat = "%-15s  %-17s  %-13s  %9s  %9s  %9s  %9s  %9s  %-20s  %s\n"

// tableWriter returns a function that writes a client's row, and the table's head before
// the first row. Without clients nothing is written.
func tableWriter(w io.Writer, now time.Time) func(control.Session) error {
	head := sync.OnceFunc(func() {
		fmt.Fprintf(w, rowFormat, "ADDRESS", "MAC", "STATE", "TIME", "IDLE", "LEFT", "UP", "DOWN", "USER", "HOST")
	})
	return func(s control.Session) error {
		head()
		began, idle, left, up, down := "-", "-", "-", "-", "-"
		if !s.Began.IsZero() {
			began, idle = humanDuration(now.Sub(s.Began)), humanDuration(now.Sub(s.Seen))
			up, down = humanBytes(s.UpBytes), humanBytes(s.DownBytes)
			if limit := s.Limits.SessionTimeoutSeconds; limit > 0 {
				left = humanDuration(time.Duration(limit*float64(time.Second)) - now.Sub(s.Began))
			}
		}
		_, err := fmt.Fprintf(w, rowFormat, s.Addr, s.MAC, s.State, began, idle, left, up, down, orDash(plain(s.User, 40)), orDash(plain(s.Hostname, 63)))
		return err
	}
}
