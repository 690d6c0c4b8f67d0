package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/units"
)

func sessionsCommand(socket *string) *cobra.Command {
	var asJSON, measure bool
	var user, state, network string
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List clients: user, start, bytes sent and received",
		Long: "Lists clients by address, of several networks one after the other; where they are attached (DHCP's\n" +
			"option 82), and further addresses, of IPv6, are in lines of their own below. UP is what a client has\n" +
			"sent, DOWN what it has received, IDLE the time since its last packet, LEFT the rest of its session time, and\n" +
			"DATA LEFT that of the quota that is used up first.\n" +
			"RATE is what it may send and receive, bits a second. A client whose session has ended shows why in place of\n" +
			"its user, and a device that came in without a login how it did in brackets: mac, list or remembered.\n" +
			"With --rates it takes a second, and NOW is what the client sent and received in that, bits a second.\n" +
			"With --json, one object a line, with all limits, what is left of each, and with --rates what was sent and received.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter := control.Filter{User: user, State: control.State(state), Network: network}
			if err := filter.Check(); err != nil {
				return &exitError{exitUsage, err}
			}
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			var rates func(control.Session) *rate
			if measure {
				if rates, err = measureRates(cmd.Context(), c, filter); err != nil {
					return err
				}
			}
			rows, err := listSessions(cmd.Context(), c, filter, asJSON, rates)
			if err == nil && rows == 0 && !asJSON {
				fmt.Fprintln(cmd.ErrOrStderr(), "no client is known, or none of these")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	cmd.Flags().BoolVar(&measure, "rates", false, "measure for a second what clients send and receive")
	cmd.Flags().StringVar(&user, "user", "", "only this user's")
	cmd.Flags().StringVar(&network, "network", "", "only this network's, of several")
	cmd.Flags().StringVar(&state, "state", "", "only clients that are leased, preauth or authenticated")
	return cmd
}

// listSessions prints the clients that match a filter, and returns how many it has printed, also with an error.
func listSessions(ctx context.Context, c *control.Client, filter control.Filter, asJSON bool,
	rates func(control.Session) *rate) (rows int, err error) {
	out := bufio.NewWriter(stdout)
	show := tableWriter(out, time.Now(), rates)
	if asJSON {
		show = jsonWriter(out, rates)
	}
	err = c.Sessions(ctx, filter, func(s control.Session) error { rows++; return show(s) })
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	return rows, err
}

// rowFormat has columns of fixed width, so that rows can be written as they arrive. Each %s without a width is a column
// with its own padding, or empty: the network, where there are several, and measured rates.
const rowFormat = "%s%-15s  %-17s  %-13s  %9s  %9s  %9s  %9s  %9s  %9s  %11s%s  %-20s  %s\n"

// tableWriter returns a function that writes a client's row, and the table's head before the first row. Without clients
// nothing is written.
func tableWriter(w io.Writer, now time.Time, measured func(control.Session) *rate) func(control.Session) error {
	column := func(func() string) string { return "" }
	if measured != nil {
		column = func(text func() string) string { return fmt.Sprintf("  %11s", text()) }
	}
	// The first row shows whether there are several networks.
	inNetwork := func(name string) string { return fmt.Sprintf("%-15s  ", name) }
	var first sync.Once
	head := func(network string) {
		fmt.Fprintf(w, rowFormat, network, "ADDRESS", "MAC", "STATE", "TIME", "IDLE", "LEFT", "UP", "DOWN", "DATA LEFT",
			"RATE", column(func() string { return "NOW" }), "USER", "HOST")
	}
	return func(s control.Session) error {
		title, network, indent := "", "", "  "
		if s.Network != "" {
			title, network, indent = inNetwork("NETWORK"), inNetwork(s.Network), inNetwork("")+"  "
		}
		first.Do(func() { head(title) })
		began, idle, up, down := "-", "-", "-", "-"
		if !s.Began.IsZero() {
			began, idle = units.Duration(now.Sub(s.Began)), units.Duration(now.Sub(s.Seen))
			up, down = units.Bytes(s.UpBytes), units.Bytes(s.DownBytes)
		}
		user := orDash(plain(s.User, 40))
		if s.Way != "" {
			user += " [" + string(s.Way) + "]"
		}
		if g := s.Guest; g != nil && cmp.Or(g.Name, g.LastName, g.Email) != "" {
			user += " (" + plain(cmp.Or(g.Name, g.LastName, g.Email), 40) + ")"
		}
		if s.LastEnd.Cause != "" {
			user = "(" + plain(cmp.Or(s.LastEnd.Quota, string(s.LastEnd.Cause)), 40) + ")"
		}
		_, err := fmt.Fprintf(w, rowFormat, network, s.Addr, s.MAC, s.State, began, idle, timeLeft(s.Left), up, down,
			dataLeft(s.Left), rates(s.Limits),
			column(func() string { return measured(s).String() }), user, orDash(plain(s.Hostname, 63)))
		for _, line := range below(s) {
			if err == nil {
				_, err = fmt.Fprintf(w, "%s%s\n", indent, line)
			}
		}
		return err
	}
}

// below returns the lines below a client's row.
func below(s control.Session) (lines []string) {
	if place := attachment(s); place != "" {
		lines = append(lines, place)
	}
	for _, addr := range s.Further {
		lines = append(lines, addr.String())
	}
	for _, network := range s.Delegated {
		lines = append(lines, network.String())
	}
	return lines
}

// attachment returns where a client is attached; empty: it is not known.
func attachment(s control.Session) string {
	var parts []string
	for _, p := range [][2]string{{"circuit", s.Circuit}, {"remote", s.Remote}, {"via", s.Via}, {"vlan", s.VLANs}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+plain(p[1], 64))
		}
	}
	return strings.Join(parts, ", ")
}

// timeLeft returns the rest of a session's time; "-" where it has no limit.
func timeLeft(l control.Left) string {
	if l.SessionSeconds == nil {
		return "-"
	}
	return units.Duration(time.Duration(*l.SessionSeconds * float64(time.Second)))
}

// dataLeft returns the rest of the quota that has the least left; "-" without a quota.
func dataLeft(l control.Left) string {
	least := "-"
	rest := uint64(math.MaxUint64)
	for _, q := range []*uint64{l.UpBytes, l.DownBytes, l.TotalBytes} {
		if q != nil && *q <= rest {
			least, rest = units.Bytes(*q), *q
		}
	}
	return least
}

// rates returns the limits up and down, such as "5M/20M"; "-" without any.
func rates(l control.Limits) string {
	if l.UpBps == 0 && l.DownBps == 0 {
		return "-"
	}
	return units.Rate(l.UpBps) + "/" + units.Rate(l.DownBps)
}
