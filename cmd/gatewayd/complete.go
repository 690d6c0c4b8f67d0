package main

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/manual"
)

// What a shell completes: see gatewayd completion. What clients there are only the daemon knows; without it, or without
// the right to ask it, nothing is offered.

const (
	mostOffered  = 200             // clients
	longestOffer = 2 * time.Second // that a shell waits for the daemon
)

// completes adds shell completion of arguments and flags to all commands.
func completes(root *cobra.Command, socket *string) {
	client := func(of func(control.Session) string, filter control.Filter) cobra.CompletionFunc {
		return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return clients(cmd.Context(), *socket, filter, begun, of), cobra.ShellCompDirectiveNoFileComp
		}
	}
	none := cobra.NoFileCompletions
	loggedIn := control.Filter{State: control.States[len(control.States)-1]}
	user := func(s control.Session) string { return s.User }
	argument := map[string]cobra.CompletionFunc{
		"check-config": manual.Files("toml"), "templates": manual.Folders, "whois": none, "ident-token": none,
		"login": client(func(s control.Session) string {
			return s.Addr.String() + "\t" + string(s.State) + " " + s.MAC
		}, control.Filter{}),
		"logout": client(func(s control.Session) string { return s.Addr.String() + "\t" + s.User }, loggedIn),
	}
	flag := map[string]cobra.CompletionFunc{
		"config": manual.Files("toml"), "folder": manual.Folders, "state": states,
		"sessions user": client(user, control.Filter{}), "logout user": client(user, loggedIn),
		"user": none, "mac": none, "at": none,
		"up-rate": none, "down-rate": none, "up-quota": none, "down-quota": none, "total-quota": none,
	}
	manual.Complete(root, argument, flag)
}

func states(*cobra.Command, []string, string) (all []string, _ cobra.ShellCompDirective) {
	for _, s := range control.States {
		all = append(all, string(s))
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// clients are those that begin so, without names that a shell or a terminal would take for something else.
func clients(ctx context.Context, socket string, filter control.Filter, begun string, of func(control.Session) string) (
	all []string,
) {
	ctx, stop := context.WithTimeout(ctx, longestOffer)
	defer stop()
	c, err := control.Dial(socket)
	if err != nil {
		return nil
	}
	seen := map[string]bool{}
	_ = c.Sessions(ctx, filter, func(s control.Session) error { // what has arrived is offered
		text := of(s)
		name, _, _ := strings.Cut(text, "\t")
		if name == "" || seen[name] || !strings.HasPrefix(name, begun) ||
			strings.ContainsFunc(strings.Replace(text, "\t", "", 1), unprintable) {
			return nil
		}
		seen[name] = true
		if all = append(all, text); len(all) == mostOffered {
			return errors.New("enough")
		}
		return nil
	})
	return all
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
