package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/gateway/units"
)

func whoisCommand() *cobra.Command {
	var file, folder, at string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "whois ADDRESS:PORT",
		Short: "Show who used an address and port at a time, from the flow log",
		Long: "Searches the flow log for the connections that had an address and port in the second of a time:\n" +
			"a client's own, or the one that others saw. It reads the log's files and needs no daemon. A connection\n" +
			"is found a second after it began. Of several networks the logs of all are searched, and --folder names one's.\n" +
			"With --json, one object a line.",
		Example: "  gatewayd whois 203.0.113.5:40321 --at 2026-03-01T14:05:06+01:00\n" +
			"  gatewayd whois '[2001:db8:1::5]:40321' --at 2026-03-01T14:05:06+01:00",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			endpoint, err := netip.ParseAddrPort(args[0])
			if err != nil || endpoint.Addr().Zone() != "" {
				return &exitError{exitUsage, fmt.Errorf(
					"%q is no address with a port, such as 203.0.113.5:40321 or [2001:db8::5]:40321", args[0])}
			}
			endpoint = netip.AddrPortFrom(endpoint.Addr().Unmap(), endpoint.Port())
			instant := time.Now()
			if at != "" {
				if instant, err = parseTime("at", at); err != nil {
					return &exitError{exitUsage, err}
				}
			}
			if instant.After(time.Now()) {
				return &exitError{exitUsage, fmt.Errorf("--at %s is in the future", at)}
			}
			logs := []flowlog.Search{{Folder: folder}}
			if !cmd.Flags().Changed("folder") {
				if logs, err = configuredLogs(file); err != nil {
					return err
				}
			}
			if err := flowlog.FindAll(cmd.Context(), logs, endpoint, instant); err != nil {
				return err
			}
			return showFlows(stdout, os.Stderr, logs, endpoint, instant, asJSON)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", defaultConfig, "the configuration that names the flow log")
	cmd.Flags().StringVar(&folder, "folder", "", "the flow log's folder, instead of the configuration's")
	cmd.Flags().StringVar(&at, "at", "", "the time, with its time zone: 2026-03-01T14:05:06Z (default now)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	return cmd
}

// parseTime reads a flag's time of RFC 3339. A space may stand for the T.
func parseTime(flag, s string) (time.Time, error) {
	s = strings.Replace(s, " ", "T", 1)
	t, err := time.Parse(time.RFC3339, s)
	if err == nil {
		return t, nil
	}
	if _, local := time.Parse("2006-01-02T15:04:05", s); local == nil {
		return t, fmt.Errorf("--%s %q has no time zone: append Z for UTC, or an offset such as +02:00", flag, s)
	}
	return t, fmt.Errorf("--%s %q is no time such as 2026-03-01T14:05:06Z", flag, s)
}

// configuredLogs are the logs of a configuration's networks.
func configuredLogs(file string) (logs []flowlog.Search, err error) {
	cfg, err := config.Load(file)
	if err != nil {
		err = fmt.Errorf("%w (--folder names the flow log's folder without a configuration)", err)
		return nil, &exitError{exitUsage, err}
	}
	return gateway.FlowLogs(cfg), nil
}

// showFlows writes the flows that were found to out, and warnings about incomplete results to notes.
func showFlows(out, notes io.Writer, logs []flowlog.Search, endpoint netip.AddrPort, instant time.Time,
	asJSON bool) error {
	damaged, slow, flows := 0, 0, 0
	for _, l := range logs {
		damaged, slow, flows = damaged+l.Damaged, slow+l.Slow, flows+len(l.Flows)
	}
	if damaged > 0 {
		fmt.Fprintf(notes,
			"gatewayd: %s skipped, which may have been of this address: a line is torn when the machine or the daemon dies\n",
			counted(damaged, "damaged line of the flow log was", "damaged lines of the flow log were"))
	}
	if slow > 0 {
		fmt.Fprintf(notes, "gatewayd: %s read whole\n", counted(slow,
			"file of the flow log has no usable index and was", "files of the flow log have no usable index and were"))
	}
	if flows == 0 {
		return fmt.Errorf("the flow log has no connection of %s at %s", endpoint, instant.Format(time.RFC3339))
	}
	if asJSON {
		return encodeFlows(out, logs)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%sSTART\tEND\tPROTOCOL\tCLIENT\tOUTSIDE\tPEER\tMAC\tUP\tDOWN\tSESSION\tUSER\n",
		map[bool]string{true: "NETWORK\t"}[logs[0].Network != ""])
	for _, l := range logs {
		for _, f := range l.Flows {
			if l.Network != "" {
				fmt.Fprintf(w, "%s\t", l.Network)
			}
			writeFlow(w, f)
		}
	}
	return w.Flush()
}

// encodeFlows writes flows as JSON, each with its network where there are several.
func encodeFlows(out io.Writer, logs []flowlog.Search) (err error) {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, l := range logs {
		for _, f := range l.Flows {
			err = errors.Join(err, enc.Encode(struct {
				Network string `json:"network,omitempty"`
				flowlog.Flow
			}{l.Network, f}))
		}
	}
	return err
}

// writeFlow writes a flow's columns.
func writeFlow(w io.Writer, f flowlog.Flow) {
	end, up, down, outside := "-", "-", "-", "-"
	if f.Event == flowlog.Ends {
		end, up, down = f.End.Format(time.RFC3339), units.Bytes(f.UpBytes), units.Bytes(f.DownBytes)
	}
	if f.Outside.IsValid() {
		outside = f.Outside.String()
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Start.Format(time.RFC3339), end,
		protocolName(f.Protocol),
		f.Client, outside, f.Peer, orDash(f.MAC), up, down, orDash(plain(f.Session, 64)), orDash(plain(f.User, 253)))
}

func protocolName(number uint8) string {
	if name, known := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6", 132: "sctp"}[number]; known {
		return name
	}
	return strconv.Itoa(int(number))
}
