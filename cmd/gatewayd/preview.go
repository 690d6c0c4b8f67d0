package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
)

func previewCommand() *cobra.Command {
	var file, listen string
	cmd := &cobra.Command{
		Use:   "preview [FOLDER]",
		Short: "Show the portal's pages in a browser, in every state and language, while they are being changed",
		Long: "Serves every page of the portal in every state and language on this machine, until it is interrupted,\n" +
			"and a page that lists them all at a phone's size. It reads FOLDER, or the folder that the configuration\n" +
			"names, at each request, and shows a mistake with its file and line. Without both there are the built-in\n" +
			"pages. It needs no root and changes nothing. docs/portal-pages.md describes the files.",
		Example: "  gatewayd preview /etc/gatewayd/pages",
		Args:    usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := netip.ParseAddrPort(listen)
			if err != nil {
				return &exitError{exitUsage, fmt.Errorf(
					"--listen %q: give an address and a port, such as 127.0.0.1:8088", listen)}
			}
			folder, err := previewFolder(args)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if cmd.Flags().Changed("config") {
				if _, err := config.Load(file); err != nil {
					return &exitError{exitUsage, err}
				}
			}
			return servePreview(cmd.Context(), addr, gateway.PreviewPages(file, folder))
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration whose title, terms, folder of pages\n"+
		"and ways to log in are shown; without it all ways are")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8088", "address and port to serve at; one of a network\n"+
		"lets a phone see the pages, and everybody else there")
	return cmd
}

// previewFolder returns the folder that the arguments name; "": none.
func previewFolder(args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	folder := args[0]
	if folder == "" {
		return "", errors.New("the folder's name is empty: name one, as gatewayd templates writes it")
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%s is no folder: gatewayd templates %s writes one", folder, folder)
	}
	return folder, nil
}

// servePreview serves a preview until ctx ends, which is no error.
func servePreview(ctx context.Context, addr netip.AddrPort, pages http.Handler) error {
	l, err := net.Listen("tcp", addr.String())
	if err != nil {
		return fmt.Errorf("serving the preview: %w: --listen names another address", err)
	}
	fmt.Fprintf(stdout, "the pages are at http://%s/\n", l.Addr())
	const timeout = 10 * time.Second // of a request
	srv := &http.Server{Handler: pages, ReadTimeout: timeout, WriteTimeout: timeout}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the preview: %w", err)
	}
	return nil
}
