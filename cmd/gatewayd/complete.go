package main

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/voucher"
	"github.com/gateweigh/gateweigh/gateway/voucher/sheet"
	"github.com/gateweigh/gateweigh/manual"
)

// Bounds of the clients that a shell is offered.
const (
	maxOffered   = 200             // clients
	offerTimeout = 2 * time.Second // for the daemon's answer
)

// addCompletions tells the shell, for all commands, which words to offer for their arguments and flags (see gatewayd
// completion). The clients come from the daemon, so without it, or without the right to ask it, none are offered.
func addCompletions(root *cobra.Command, socket *string) {
	client := func(text func(control.Session) string, filter control.Filter) cobra.CompletionFunc {
		return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return clients(cmd.Context(), *socket, filter, begun, text), cobra.ShellCompDirectiveNoFileComp
		}
	}
	none := cobra.NoFileCompletions
	loggedIn := control.Filter{State: control.States[len(control.States)-1]}
	user := func(s control.Session) string { return s.User }
	argument := map[string]cobra.CompletionFunc{
		"check-config": manual.Files("toml"), "templates": manual.Folders, "preview": manual.Folders,
		"whois": none, "ident-token": none,
		"voucher list": none, "voucher revoke": none, "voucher export": none, "voucher print": none,
		"import-chilli": manual.Files("conf"),
		"login": client(func(s control.Session) string {
			return s.Addr.String() + "\t" + string(s.State) + " " + s.MAC
		}, control.Filter{}),
		"logout": client(func(s control.Session) string { return s.Addr.String() + "\t" + s.User }, loggedIn),
	}
	flag := map[string]cobra.CompletionFunc{
		"config": manual.Files("toml"), "folder": manual.Folders, "state": states,
		"sessions user": client(user, control.Filter{}), "logout user": client(user, loggedIn),
		"user": none, "network": none, "mac": none, "at": none,
		"voucher list state": voucherStates, "output": manual.Files("pdf"), "lang": sheetLanguages,
		"url": none, "title": none, "listen": none,
		"import-chilli output": manual.Folders, "wan": none,
		"batch": none, "for": none, "until": none, "online": none, "data": none,
		"note":    none,
		"up-rate": none, "down-rate": none, "up-quota": none, "down-quota": none, "total-quota": none,
		"connections": none,
	}
	manual.Complete(root, argument, flag)
}

func states(*cobra.Command, []string, string) (all []string, _ cobra.ShellCompDirective) {
	for _, s := range control.States {
		all = append(all, string(s))
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

func sheetLanguages(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return sheet.Languages(), cobra.ShellCompDirectiveNoFileComp
}

func voucherStates(*cobra.Command, []string, string) (all []string, _ cobra.ShellCompDirective) {
	for _, s := range voucher.States {
		all = append(all, string(s))
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// clients asks the daemon for clients and returns the text of each that begins with begun. textOf returns a client's
// text: a word, which may be followed by a tab and a description. Texts with control characters are left out, because
// they could change the terminal.
func clients(ctx context.Context, socket string, filter control.Filter, begun string,
	textOf func(control.Session) string) (all []string) {
	ctx, stop := context.WithTimeout(ctx, offerTimeout)
	defer stop()
	c, err := control.Dial(socket)
	if err != nil {
		return nil
	}
	seen := map[string]bool{}
	_ = c.Sessions(ctx, filter, func(s control.Session) error { // after an error, those that have arrived are offered
		text := textOf(s)
		name, _, _ := strings.Cut(text, "\t")
		if name == "" || seen[name] || !strings.HasPrefix(name, begun) ||
			strings.ContainsFunc(strings.Replace(text, "\t", "", 1), unprintable) {
			return nil
		}
		seen[name] = true
		if all = append(all, text); len(all) == maxOffered {
			return errors.New("enough")
		}
		return nil
	})
	return all
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
