package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/sink"
)

func sinkCommand() *cobra.Command {
	var cfg sink.Config
	kinds := strings.Join(sink.Kinds(), "|")
	cmd := &cobra.Command{
		Use:   "sink " + kinds,
		Short: "Capture an interface's frames and count them by size",
		Long: "Captures every frame that passes an interface, in one of the ways that Linux offers:\n" +
			"  recv  a packet socket, one system call a frame\n" +
			"  mmap  a packet socket with a ring that the kernel fills (TPACKET_V3)\n" +
			"  xdp   an AF_XDP socket; it takes the frames away, so nothing else on this machine receives them\n" +
			"  ebpf  programs at tc that count in the kernel\n" +
			"\"ready\" is printed once it captures, and the counts as a line of JSON at the end: at Ctrl-C or SIGTERM, or " +
			"when the\n" +
			"interface goes down or away (exit code 1).",
		Example: "  gateweigh sink mmap --interface eth0\n  gateweigh sink mmap --interface eth0 --snap 68 " +
			"--filter-program \"$(tcpdump -ddd udp | paste -sd,)\"",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := sink.Quiet(); err != nil {
				return err
			}
			cfg.Kind = args[0]
			err := sink.Run(cmd.Context(), cfg, cmd.OutOrStdout())
			if errors.Is(err, sink.ErrConfig) {
				return &exitError{exitUsage, err}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Interface, "interface", "", "the interface whose frames are captured")
	f.IntVar(&cfg.Snap, "snap", 0, "bytes that are kept of each frame; 0: all")
	f.IntVar(&cfg.BufferKiB, "buffer-kib", 0, "size of the kernel's buffer, KiB; 0: the kernel's (recv), 2048 (mmap, xdp)")
	f.StringVar(&cfg.Filter, "filter-program", "",
		"frames that are captured: cBPF as tcpdump -ddd prints it, lines joined by commas (recv, mmap)")
	f.StringVar(&cfg.Work, "work", "", "what is done with each frame: memcpy or gzip (not ebpf)")
	return cmd
}
