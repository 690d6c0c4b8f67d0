package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/textfile"
)

// maxPasswordBytes is the longest password, as in the portal's form.
const maxPasswordBytes = 1024

func hashPasswordCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hash-password",
		Short: "Read a password and print its hash for the users' file",
		Long: "Reads a password, twice and without echo from a terminal, else the first line of standard input, " +
			"and\nprints its hash for a line name:HASH of the users' file.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			password, err := askPassword(cmd.Context(), os.Stdin, os.Stderr)
			if err != nil {
				return err
			}
			fmt.Fprintln(stdout, gateway.HashPassword(password))
			return nil
		},
	}
}

// askPassword reads a password. On a terminal it asks twice, without echo, and restores the terminal afterwards, also
// when ctx ends.
func askPassword(ctx context.Context, in *os.File, out io.Writer) (string, error) {
	lines := bufio.NewReader(io.LimitReader(in, 4*maxPasswordBytes))
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return readPassword(ctx, lines) // no terminal
	}
	silent := *before
	silent.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &silent); err != nil {
		return "", fmt.Errorf("turning the terminal's echo off: %w", err)
	}
	defer unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, before)
	var given [2]string
	for i, prompt := range []string{"Password: ", "Once more: "} {
		fmt.Fprint(out, prompt)
		given[i], err = readPassword(ctx, lines)
		fmt.Fprintln(out)
		if err != nil {
			return "", err
		}
	}
	if given[0] != given[1] {
		return "", errors.New("the two passwords differ: nothing was hashed")
	}
	return given[0], nil
}

// readPassword reads a line. A read that waits cannot be interrupted. So it runs in a goroutine, which is left waiting
// when ctx ends.
func readPassword(ctx context.Context, lines *bufio.Reader) (string, error) {
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := lines.ReadString('\n')
		read <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", errors.New("interrupted")
	case r := <-read:
		password := strings.TrimRight(textfile.Trim(r.line), "\r\n")
		switch {
		case r.err != nil && r.err != io.EOF:
			return "", fmt.Errorf("reading the password: %w", r.err)
		case password == "":
			return "", errors.New("an empty password protects nothing")
		case len(password) > maxPasswordBytes:
			return "", fmt.Errorf("a password has at most %d bytes", maxPasswordBytes)
		}
		return password, nil
	}
}
