package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/live"
	"github.com/gateweigh/gateweigh/lab/realtime"
)

// runsFolder holds the runs that were made without -o.
const runsFolder = "runs"

// defaultAddress is one that only programs of this machine can reach.
const defaultAddress = "127.0.0.1:8087"

type serveFlags struct {
	listen, tokenFile, certificate, key string
}

func serveCommand() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "serve [RUNS]",
		Short: "Show runs in a browser, also one that goes on as it grows",
		Long: "Serves pages of the runs in a folder (default " + runsFolder + "): the list, the report of a run as it " +
			"grows with\n" +
			"the time left, comparisons, courses of figures over many runs, and progress for Prometheus at /metrics.\n" +
			"It reads the folder only, takes no lock, and runs when nothing else wants the CPU. Other machines reach it\n" +
			"with --listen and --token-file.",
		Example: "  gateweigh serve\n  gateweigh serve /srv/runs --listen :8087 --token-file token --tls-cert cert.pem " +
			"--tls-key key.pem",
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := runsFolder
			if len(args) == 1 {
				dir = args[0]
			}
			return serveRuns(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), dir, flags)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.listen, "listen", defaultAddress,
		"`ADDRESS` and port; one that other machines reach wants --token-file")
	f.Var((*pathFlag)(&flags.tokenFile), "token-file",
		"file with the token that readers have to know, 16 characters or more")
	f.Var((*pathFlag)(&flags.certificate), "tls-cert", "file with a certificate, PEM: pages are served over TLS")
	f.Var((*pathFlag)(&flags.key), "tls-key", "file with the certificate's key, PEM")
	return cmd
}

// serveRuns serves the pages of the runs in dir until ctx ends. It refuses an address that other machines reach unless
// readers need a token.
func serveRuns(ctx context.Context, out, say io.Writer, dir string, flags serveFlags) error {
	here, err := loopback(flags.listen)
	switch {
	case err != nil:
		return &exitError{exitUsage, err}
	case !here && flags.tokenFile == "":
		return &exitError{exitUsage, fmt.Errorf("--listen %s is reached from other machines, and whoever reaches it would "+
			"read all runs: give a token (--token-file FILE), or listen on 127.0.0.1", flags.listen)}
	case (flags.certificate == "") != (flags.key == ""):
		return &exitError{exitUsage, errors.New("--tls-cert and --tls-key belong together: give both")}
	}
	token := ""
	if flags.tokenFile != "" {
		if token, err = readToken(flags.tokenFile); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	server, err := live.New(live.Config{Dir: dir, Token: token})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", flags.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	runtime.GOMAXPROCS(1) // leaves the other CPUs to a run
	if err := realtime.Yield(); err != nil {
		fmt.Fprintf(say, "gateweigh: this program cannot yield to runs (%v): pages that are open may disturb them\n", err)
	}
	scheme := "http"
	if flags.certificate != "" {
		scheme = "https"
	} else if !here {
		fmt.Fprintln(say, "gateweigh: token and pages cross the network as they are: give --tls-cert and --tls-key where "+
			"others can listen")
	}
	fmt.Fprintf(out, "%s://%s/\n", scheme, listener.Addr())
	ended := context.AfterFunc(ctx, func() { listener.Close() })
	defer ended()
	return server.Serve(listener, flags.certificate, flags.key)
}

// loopback reports whether an address is reached from this machine alone.
func loopback(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("--listen %s: want an address with its port, such as %s", address, defaultAddress)
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback(), nil
}

// minToken is the least length of a token, in characters; one of 16 cannot be guessed by trying.
const minToken = 16

// readToken reads the token in a file, and refuses a file that other users of the machine may read.
func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("--token-file %s does not exist; make one: (umask 077; openssl rand -hex 16 > %s)", path, path)
	case err != nil:
		return "", fmt.Errorf("--token-file: %w", err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("--token-file %s is not a regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("--token-file %s may be read by others: chmod 600 %s", path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || strings.ContainsAny(token, " \t\n\r") {
		return "", fmt.Errorf("--token-file %s: want one word of %d characters or more", path, minToken)
	}
	return token, nil
}
