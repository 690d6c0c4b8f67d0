package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/vm"
)

func kernelExec() *cobra.Command {
	var flags guestFlags
	var shares []string
	cmd := &cobra.Command{
		Use:   "exec KERNEL [--share DIR]… -- COMMAND…",
		Short: "Run a command under another kernel",
		Long: "Boots a kernel and runs a command of this machine there, in this folder. Output, exit code and Ctrl-C are " +
			"the command's;\n" +
			"standard input is empty. What it writes is forgotten, except in folders given with --share.",
		Example: "  gateweigh kernel exec debian -- uname -r\n  go test -exec 'gateweigh kernel exec debian --' ./...",
		Args: usage(func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return errors.New("want KERNEL -- COMMAND")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.kernel = args[0]
			cfg, err := commandInGuest(args[1:], shares)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			code, err := flags.start(cmd.Context(), cfg)
			return withGuestsCode(code, err)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringArrayVar(&shares, "share", nil, "`folder` that the command may write, repeatable")
	return cmd
}

// commandInGuest returns the configuration of a guest that runs a command, with the folders that the command may write.
func commandInGuest(command, shares []string) (cfg vm.Config, err error) {
	program, err := exec.LookPath(command[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if folder := filepath.Dir(program); err == nil && (folder == "/tmp" || folder == "/run") {
		err = fmt.Errorf("%s: the guest has a %s of its own: put the program into a folder of its own below it, or elsewhere",
			program, folder)
	}
	if err != nil {
		return cfg, fmt.Errorf("the command for the guest: %w", err)
	}
	cfg.Command = append([]string{program}, command[1:]...)
	for _, folder := range shares {
		info, err := os.Stat(folder)
		if err == nil && !info.IsDir() {
			err = errors.New("it is no folder")
		}
		if err == nil {
			folder, err = filepath.Abs(folder)
		}
		if err != nil {
			return cfg, fmt.Errorf("--share %s: %w", folder, err)
		}
		cfg.Shares = append(cfg.Shares, folder)
	}
	return cfg, nil
}
