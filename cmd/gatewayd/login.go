package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/textfile"
)

// grants are the limits that an operator gives a login on the command line.
type grants struct {
	session, idle                  time.Duration
	upRate, downRate               string
	upQuota, downQuota, totalQuota string
	connections                    uint32
}

func loginCommand(socket *string) *cobra.Command {
	var user, mac, list string
	var g grants
	cmd := &cobra.Command{
		Use:   "login ADDRESS --user USER [--mac MAC] | --list FILE",
		Short: "Log clients in, without asking RADIUS or the users' file",
		Long: "Logs in the client with this address, with the limits given here and no others: those of [limits] in the\n" +
			"configuration are for users who log in themselves. A client that is already logged in gets a new session.\n" +
			"With --mac the client needs no lease, such as a printer with a static address, which should lie outside\n" +
			"dhcp.pools; the gateway forgets it when its session ends. A client with an IPv6 address must be on: it has\n" +
			"the address as long as it answers for it.\n\n" +
			"--list reads \"ADDRESS USER\" or \"ADDRESS USER MAC\" from each line of a file, or with - from standard\n" +
			"input; empty lines and lines that begin with # are ignored. The limits given here are each one's.",
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("list") {
				return loginList(cmd, *socket, list, len(args) > 0 || user != "" || mac != "", g)
			}
			if len(args) == 0 {
				return &exitError{exitUsage, errors.New("no client named: give ADDRESS, or --list FILE")}
			}
			req, err := loginRequest(args[0], user, mac, g)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			s, err := c.Login(cmd.Context(), req)
			if err == nil {
				fmt.Fprintf(stdout, "%s (%s) is logged in as %s, session %s\n", s.Addr, s.MAC, plain(s.User, 80), s.ID)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&user, "user", "", "user of the session (required)")
	f.StringVar(&mac, "mac", "", "the client's Ethernet address, when it has no lease")
	f.StringVar(&list, "list", "", "a file of clients to log in")
	g.add(f)
	return cmd
}

// add adds the flags that set the limits to a command.
func (g *grants) add(f *pflag.FlagSet) {
	f.DurationVar(&g.session, "session-timeout", 0, "length of the session, such as 24h")
	f.DurationVar(&g.idle, "idle-timeout", 0, "time without a packet that ends the session, such as 30m")
	f.StringVar(&g.upRate, "up-rate", "", "limit of what the client sends, bits a second, such as 10M")
	f.StringVar(&g.downRate, "down-rate", "", "limit of what the client receives, bits a second")
	f.StringVar(&g.upQuota, "up-quota", "", "bytes the client may send, such as 1GB")
	f.StringVar(&g.downQuota, "down-quota", "", "bytes the client may receive")
	f.StringVar(&g.totalQuota, "total-quota", "", "bytes in both directions together")
	f.Uint32Var(&g.connections, "connections", 0, "connections of the client at once, where limits.connections is set")
	f.StringVar(&g.totalQuota, "quota", "", "")
	_ = f.MarkHidden("quota") // its former name
}

// loginList logs in the clients of a file. single is true when the command line also has an argument or flag for a
// single client, which is an error.
func loginList(cmd *cobra.Command, socket, file string, single bool, g grants) error {
	if single {
		return &exitError{exitUsage, errors.New("--list has addresses, users and MACs of its own: give it without them")}
	}
	list, err := readLogins(cmd.InOrStdin(), file, g)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	c, err := dial(socket)
	if err != nil {
		return err
	}
	n, err := c.LoginAll(cmd.Context(), list)
	if err != nil {
		return fmt.Errorf("logging the clients of %s in: %w", file, err)
	}
	fmt.Fprintf(stdout, "%s logged in\n", counted(n, "client is", "clients are"))
	return nil
}

// readLogins reads a list of clients. Its error has every line with a mistake, so that no client is logged in then.
func readLogins(stdin io.Reader, file string, g grants) ([]control.LoginRequest, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, textfile.Plain(err)
		}
		defer f.Close()
		in = f
	}
	var list []control.LoginRequest
	var problems []error
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(textfile.Trim(lines.Text()))
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) < 2 || len(words) > 3 {
			problems = append(problems, fmt.Errorf("%s:%d: want ADDRESS USER [MAC]", file, n))
			continue
		}
		req, err := loginRequest(words[0], words[1], strings.Join(words[2:], ""), g)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: %w", file, n, err))
		}
		list = append(list, req)
	}
	return list, errors.Join(append(problems, textfile.Plain(lines.Err()))...)
}

// clientAddress reads the address of a client.
func clientAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, fmt.Errorf("%q is no IP address: give a client's, such as 10.1.0.9 (gatewayd sessions lists them)", s)
	}
	return a, nil
}

// loginRequest makes the request for one client from the texts of the command line or of a line of the list.
func loginRequest(addr, user, mac string, g grants) (control.LoginRequest, error) {
	req := control.LoginRequest{User: user, MAC: mac}
	var err error
	if req.Addr, err = clientAddress(addr); err != nil {
		return req, err
	}
	if user == "" {
		return req, errors.New("whose session? give --user")
	}
	if g.session < 0 || g.idle < 0 {
		return req, errors.New("time-outs cannot be negative")
	}
	req.Limits = control.Limits{SessionTimeoutSeconds: g.session.Seconds(), IdleTimeoutSeconds: g.idle.Seconds(),
		Connections: g.connections}
	for _, v := range []struct {
		flag, text string
		parse      func(string) (uint64, error)
		value      *uint64
	}{
		{"up-rate", g.upRate, config.ParseRate, &req.Limits.UpBps},
		{"down-rate", g.downRate, config.ParseRate, &req.Limits.DownBps},
		{"up-quota", g.upQuota, config.ParseSize, &req.Limits.UpBytes},
		{"down-quota", g.downQuota, config.ParseSize, &req.Limits.DownBytes},
		{"total-quota", g.totalQuota, config.ParseSize, &req.Limits.TotalBytes},
	} {
		if v.text == "" {
			continue
		}
		if *v.value, err = v.parse(v.text); err != nil {
			return req, fmt.Errorf("--%s %q: %w", v.flag, v.text, err)
		}
	}
	return req, req.Check()
}
