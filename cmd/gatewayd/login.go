package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
)

// grants are the limits of a login, as the command line has them.
type grants struct {
	session, idle                  time.Duration
	upRate, downRate               string
	upQuota, downQuota, totalQuota string
}

func loginCommand(socket *string) *cobra.Command {
	var user string
	var g grants
	cmd := &cobra.Command{
		Use:   "login ADDRESS --user USER",
		Short: "Log a client in, without asking RADIUS or the users' file",
		Long: "Logs the client that has an address in, with the limits given here and no others. A client that is\n" +
			"logged in already gets a new session.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := loginRequest(args[0], user, g)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			c, err := dial(*socket)
			if err != nil {
				return err
			}
			s, err := c.Login(cmd.Context(), req)
			if err == nil {
				fmt.Printf("%s (%s) is logged in as %s, session %s\n", s.Addr, s.MAC, plain(s.User, 80), s.ID)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&user, "user", "", "whose session it is (needed)")
	f.DurationVar(&g.session, "session-timeout", 0, "how long, such as 24h")
	f.DurationVar(&g.idle, "idle-timeout", 0, "how long without a packet, such as 30m")
	f.StringVar(&g.upRate, "up-rate", "", "bits a second the client sends, such as 10M")
	f.StringVar(&g.downRate, "down-rate", "", "bits a second it receives")
	f.StringVar(&g.upQuota, "up-quota", "", "bytes it sends, such as 1GB")
	f.StringVar(&g.downQuota, "down-quota", "", "bytes it receives")
	f.StringVar(&g.totalQuota, "quota", "", "bytes both ways together")
	return cmd
}

func loginRequest(addr, user string, g grants) (control.LoginRequest, error) {
	req := control.LoginRequest{User: user}
	var err error
	if req.Addr, err = netip.ParseAddr(addr); err != nil {
		return req, err
	}
	if user == "" {
		return req, errors.New("whose session? give --user")
	}
	if g.session < 0 || g.idle < 0 {
		return req, errors.New("time-outs cannot be negative")
	}
	req.Limits = control.Limits{SessionTimeoutSeconds: g.session.Seconds(), IdleTimeoutSeconds: g.idle.Seconds()}
	for _, v := range []struct {
		flag, text string
		parse      func(string) (uint64, error)
		place      *uint64
	}{
		{"up-rate", g.upRate, config.ParseRate, &req.Limits.UpBps},
		{"down-rate", g.downRate, config.ParseRate, &req.Limits.DownBps},
		{"up-quota", g.upQuota, config.ParseSize, &req.Limits.UpBytes},
		{"down-quota", g.downQuota, config.ParseSize, &req.Limits.DownBytes},
		{"quota", g.totalQuota, config.ParseSize, &req.Limits.TotalBytes},
	} {
		if v.text == "" {
			continue
		}
		if *v.place, err = v.parse(v.text); err != nil {
			return req, fmt.Errorf("--%s %q: %w", v.flag, v.text, err)
		}
	}
	return req, nil
}
