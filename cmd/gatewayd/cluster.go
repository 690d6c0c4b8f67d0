package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/units"
)

func clusterCommand(socket *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Show the gateways that share a store",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(clusterStatusCommand(socket), clusterSessionsCommand(socket), clusterForgetCommand(socket),
		clusterBecomeCommand(socket), clusterKeepalivedCommand())
	return cmd
}

func clusterStatusCommand(socket *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which gateways use the store, their versions, sessions and how far behind the store is",
		Long: "Shows the gateways that use the store, as each has said itself there. It says so every two seconds, as far\n" +
			"as it reaches the store; one that has not for ten seconds counts as away, with what it said last. WAITING is\n" +
			"how many changes of its records were not in the store yet, and BEHIND how long the oldest of them had waited.\n" +
			"FORMAT is the newest format of sessions' records that it reads. The daemon asks the store, with\n" +
			"store.kind = \"redis\".",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			all, err := c.Members(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(stdout)
				for _, m := range all {
					if err := enc.Encode(m); err != nil {
						return err
					}
				}
				return nil
			}
			return writeMembers(stdout, all, time.Now())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	return cmd
}

func clusterSessionsCommand(socket *string) *cobra.Command {
	var asJSON bool
	var user string
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List the clients of all gateways that share the store",
		Long: "Lists the clients of all gateways, as the store has them: with counts of the last minute. Those of a\n" +
			"gateway that is away are marked, and shown as they were when it was last there, TIME too. A record of a newer\n" +
			"gatewayd is unreadable. With --json, one object a line, as gatewayd sessions has them, with the gateway,\n" +
			"whether that is away, and as of when.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			out := bufio.NewWriter(stdout)
			show := clusterTable(out)
			if asJSON {
				encoder := json.NewEncoder(out)
				show = func(s control.ClusterSession) error { return encoder.Encode(s) }
			}
			err = c.ClusterSessions(cmd.Context(), user, show)
			if flushed := out.Flush(); err == nil {
				err = flushed
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	cmd.Flags().StringVar(&user, "user", "", "only this user's")
	return cmd
}

func clusterForgetCommand(socket *string) *cobra.Command {
	return &cobra.Command{
		Use:   "forget GATEWAY",
		Short: "Delete a gateway that is gone for good from the store, with what it kept there",
		Long: "Deletes a gateway, and all that the store has of it, so that it is no longer listed. It is refused while\n" +
			"that gateway is there. If it comes back later, it writes its sessions to the store again.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			if err := c.ForgetGateway(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(stdout, "the store has nothing of %s any more\n", plain(args[0], 63))
			return nil
		},
	}
}

// clusterTable returns a function that writes a client's row, and the table's head before the first row.
func clusterTable(w io.Writer) func(control.ClusterSession) error {
	const row = "%-16s  %-15s  %-15s  %-17s  %-13s  %9s  %9s  %9s  %s\n"
	first := true
	return func(s control.ClusterSession) error {
		if first {
			first = false
			fmt.Fprintf(w, row, "GATEWAY", "NETWORK", "ADDRESS", "MAC", "STATE", "TIME", "UP", "DOWN", "USER")
		}
		began, up, down := "-", "-", "-"
		gateway := plain(s.Gateway, 63)
		if s.Away {
			gateway += " (away)"
		}
		if !s.Began.IsZero() {
			began, up, down = units.Duration(max(0, s.AsOf.Sub(s.Began))), units.Bytes(s.UpBytes), units.Bytes(s.DownBytes)
		}
		_, err := fmt.Fprintf(w, row, gateway, orDash(plain(s.Network, 15)), s.Addr, s.MAC, s.State, began, up,
			down, orDash(plain(s.User, 40)))
		return err
	}
}

// writeMembers prints gateways as a table.
func writeMembers(w io.Writer, all []control.Member, now time.Time) error {
	out := bufio.NewWriter(w)
	const row = "%-16s  %-24s  %8s  %7s  %8s  %-16s  %6s  %s\n"
	fmt.Fprintf(out, row, "GATEWAY", "STATE", "SESSIONS", "WAITING", "BEHIND", "SINCE", "FORMAT", "VERSION")
	for _, m := range all {
		state := "there"
		if !m.There {
			state = "away for " + units.Duration(max(0, now.Sub(m.Said)))
		}
		fmt.Fprintf(out, row, plain(m.Name, 63), state, fmt.Sprint(m.Sessions), fmt.Sprint(m.Waiting),
			fmt.Sprintf("%.1f s", float64(m.BehindMS)/1000), m.Since.Local().Format("2006-01-02 15:04"),
			formatOf(m), plain(m.Version, 40))
	}
	out.WriteString(distrusted(all) + differences(all))
	return out.Flush()
}

// formatOf is the newest format of records that a gateway reads, as it is shown.
func formatOf(m control.Member) string {
	if m.Format == 0 {
		return "-"
	}
	return fmt.Sprint(m.Format)
}

// distrusted says of which gateways nothing is used, and why; "": there are none.
func distrusted(all []control.Member) (text string) {
	for _, m := range all {
		if m.Distrust != "" {
			text += fmt.Sprintf("\nNothing of %s is used: %s.\n", plain(m.Name, 63), plain(m.Distrust, 200))
		}
	}
	return text
}

// differences says that gateways which are there run other versions, and which of them reads not all records of others;
// "": they do not.
func differences(all []control.Member) (text string) {
	versions, newest := map[string]bool{}, control.Member{}
	for _, m := range all {
		if !m.There {
			continue
		}
		if versions[m.Version] = true; m.Format > newest.Format {
			newest = m
		}
	}
	if len(versions) > 1 {
		text = "\nVersions differ: update one gateway after the other, as docs/cluster.md says.\n"
	}
	for _, m := range all {
		if m.There && m.Format > 0 && m.Format < newest.Format {
			text += fmt.Sprintf("%s reads records up to format %d, and %s writes format %d: until %[1]s is updated, it shows "+
				"some sessions of others as unreadable, and takes none of these over.\n",
				plain(m.Name, 63), m.Format, plain(newest.Name, 63), newest.Format)
		}
	}
	return text
}

// storeState describes the store that several gateways share.
func storeState(s control.Store, now time.Time) string {
	text := fmt.Sprintf("as %s: ", plain(s.Name, 63))
	switch {
	case s.Up:
		text += "up to date"
		if s.Waiting > 0 {
			text += fmt.Sprintf(", but for %s", counted(s.Waiting, "change", "changes"))
		}
	case s.Since.IsZero():
		text += "not reached yet"
	default:
		text += fmt.Sprintf("away for %s: %s; %s", units.Duration(now.Sub(s.Since)), plain(s.Why, 400),
			counted(s.Waiting, "change waits", "changes wait"))
	}
	if s.Foreign > 0 {
		text += fmt.Sprintf("; another gateway has %s of it", counted(s.Foreign, "record", "records"))
	}
	if s.Refused > 0 {
		text += fmt.Sprintf("; %s not used, as they are not signed by store.key_file: see the log and cluster status",
			counted(s.Refused, "record or message was", "records and messages were"))
	}
	if s.Newer > 0 {
		text += fmt.Sprintf("; %s of a newer gatewayd, and kept for it", counted(s.Newer, "record is", "records are"))
	}
	return text
}
