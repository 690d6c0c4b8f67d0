package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/chilliconf"
	"github.com/gateweigh/gateweigh/gateway/config"
)

func importChilliCommand() *cobra.Command {
	var folder, wan string
	cmd := &cobra.Command{
		Use:   "import-chilli FILE",
		Short: "Turn a configuration of CoovaChilli into one of gatewayd, and list what has no counterpart",
		Long: "Reads chilli.conf, main.conf, or the shell variables of /etc/chilli/defaults and config, and what they\n" +
			"include. Writes gatewayd.toml, and secrets to files that only their owner may read. It replaces no file. It\n" +
			"prints each option that has no counterpart, with its file and line and what to do instead, and what is\n" +
			"missing. docs/uam.md has the protocol of the portal.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error { return importChilli(args[0], folder, wan) },
	}
	cmd.Flags().StringVar(&folder, "output", ".", "`folder` of the new files")
	cmd.Flags().StringVar(&wan, "wan", "", "`interface` towards the Internet, which chilli.conf does not name")
	return cmd
}

// importChilli writes the configuration, and checks that it is one.
func importChilli(path, folder, wan string) error {
	result, err := chilliconf.Convert(path, wan)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	target := filepath.Join(folder, "gatewayd.toml")
	files := append(result.Secrets, chilliconf.Secret{Name: "gatewayd.toml", Text: result.TOML})
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(folder, f.Name)); err == nil {
			return &exitError{exitUsage, fmt.Errorf("%s is there already: move it away, or choose another folder by --output",
				filepath.Join(folder, f.Name))}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return &exitError{exitUsage, err}
		}
	}
	if err := writeAll(folder, files); err != nil {
		return err
	}
	for _, n := range result.Notes {
		fmt.Fprintln(stdout, plain(n.String(), 400))
	}
	if _, err := config.Load(target); err != nil {
		return &exitError{exitUsage, fmt.Errorf("%s needs your hand:\n%w", target, err)}
	}
	fmt.Fprintf(stdout, "%s is written; gatewayd check-config %s checks it on this machine\n", target, target)
	return nil
}

// writeAll writes files that are not there yet, in this order: gatewayd.toml last, so that it is there when all that it
// names is. After an error none of them is left, so that the next run is not refused.
func writeAll(folder string, files []chilliconf.Secret) error {
	for i, f := range files {
		err := writeNew(filepath.Join(folder, f.Name), f.Text)
		if err == nil {
			continue
		}
		for _, written := range files[:i] {
			err = errors.Join(err, os.Remove(filepath.Join(folder, written.Name)))
		}
		return err
	}
	return nil
}

// writeNew writes a file that is not there yet, for its owner alone. After an error it is not there.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
