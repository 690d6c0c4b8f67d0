package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/manual"
)

//go:generate go run . manual --markdown ../../docs/reference/gatewayd-commands.md

// manualBook is the manual that "gatewayd manual" writes.
func manualBook(root *cobra.Command) manual.Book {
	status := func(code int, text string, commands ...string) manual.Entry { // without commands: of all
		return manual.Entry{Name: strconv.Itoa(code), Text: text, Commands: commands}
	}
	return manual.Book{
		Root: root, Section: 8, Title: "gatewayd", Version: version,
		Exit: []manual.Entry{
			status(exitFailed, "an operation failed"),
			status(exitFailed, "the machine lacks what the daemon needs; warnings change nothing", "check-config"),
			status(exitFailed, "the flow log has no such connection, or is younger, or there is none", "whois"),
			status(exitUsage, "bad command line; or a configuration that cannot be read, has mistakes, or names files "+
				"with mistakes"),
			status(exitNotRunning, "no daemon is running", "sessions", "login", "logout", "status"),
		},
		Environment: []manual.Entry{
			{Name: "SOURCE_DATE_EPOCH", Text: "the date of the man pages, seconds since 1970; without it they have none",
				Commands: []string{"manual"}},
		},
		Files: []manual.Entry{
			{Name: defaultConfig, Text: "the configuration; `gatewayd example-config` prints one with every key",
				Commands: []string{"run", "guard", "detach", "whois", "ident-token", "check-config", "example-config"}},
			{Name: defaultSocket, Text: "the daemon's control socket, which speaks HTTP and is for root and the daemon's group",
				Commands: []string{"run", "sessions", "login", "logout", "status", "detach"}},
			{Name: "/var/lib/gatewayd/", Text: "leases, sessions and keys (state_dir)",
				Commands: []string{"run", "ident-token"}},
			{Name: "/sys/fs/bpf/gatewayd/", Text: "programs and tables that outlive the daemon (datapath.pin_dir)",
				Commands: []string{"run", "detach"}},
		},
		SeeAlso: []string{"gateweigh(1)"},
	}
}
