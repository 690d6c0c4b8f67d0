package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/voucher"
	"github.com/gateweigh/gateweigh/gateway/voucher/sheet"
	"github.com/gateweigh/gateweigh/textfile"
)

func voucherPrintCommand(place *voucherPlace) *cobra.Command {
	var output, network, link, title string
	var all bool
	page := sheet.Page{Lang: "en"}
	cmd := &cobra.Command{
		Use:   "print BATCH | VOUCHER --output FILE.pdf",
		Short: "Write vouchers as PDF, to print them on A4",
		Long: "Writes new vouchers, ten a page, each with its code and a QR code: the link to the portal's login page,\n" +
			"which fills the code in. The configuration names the portal; of several networks --network does.",
		Example: "  gatewayd voucher print lobby --output lobby.pdf",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == "" {
				return &exitError{exitUsage, errors.New("where to? give --output FILE.pdf")}
			}
			err := checkLink(link)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if page.Title, page.Link, err = portalOf(place.file, network, title, link); err != nil {
				return &exitError{exitUsage, err}
			}
			place.warnUnused()
			list, err := place.list(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			list = slices.DeleteFunc(list, func(v voucher.Voucher) bool { return !all && v.State != voucher.New })
			if len(list) == 0 {
				return fmt.Errorf("no voucher of %s is new: --all prints those that were used too", args[0])
			}
			if lacking := sheet.Lacking(page.Title, list[0].Terms.Note); len(lacking) > 0 {
				fmt.Fprintf(os.Stderr, "warning: the sheet's font lacks %q: each is printed as \"?\"\n", string(lacking))
			}
			return writeSheet(cmd.Context(), output, page, list)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "", "the PDF file (required)")
	f.StringVar(&network, "network", "", "of several networks, the one whose portal the QR codes lead to")
	f.StringVar(&link, "url", "", "the login page's URL, instead of the configuration's")
	f.StringVar(&title, "title", "", "the network's name, instead of portal.title")
	f.StringVar(&page.Lang, "lang", "en", "language: "+strings.Join(sheet.Languages(), ", "))
	f.BoolVar(&all, "all", false, "print vouchers too that are in use, expired, used up or revoked")
	return cmd
}

// portalOf returns the title and the login page of a configuration's network, unless both are given.
func portalOf(file, network, title, link string) (string, string, error) {
	if title != "" && link != "" {
		return title, link, nil
	}
	cfg, err := config.Load(file)
	if err != nil {
		return "", "", err
	}
	var found []*config.Config
	for _, n := range cfg.All() {
		if n.Name == network || network == "" && n.Auth.Has(config.MethodVoucher) {
			found = append(found, n)
		}
	}
	switch {
	case len(found) == 0 && network != "":
		return "", "", fmt.Errorf("%s has no network %q", file, network)
	case len(found) == 0:
		return "", "", fmt.Errorf(`%s: auth.methods has no "voucher", so that no code is taken: add it`, file)
	case len(found) > 1:
		return "", "", fmt.Errorf("%s has %d networks that take vouchers: choose one by --network", file, len(found))
	}
	if title == "" {
		title = found[0].Portal.Title
	}
	if link == "" {
		link = gateway.LoginURL(found[0])
	}
	return title, link, nil
}

// checkLink refuses a --url to which no code can be added.
func checkLink(link string) error {
	if link == "" {
		return nil
	}
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.Contains(link, "#") {
		return fmt.Errorf("--url %q: give the login page's URL, such as https://portal.example/login, with http or https "+
			"and without a fragment (#): the code is added as one", link)
	}
	return nil
}

// writeSheet writes vouchers into a file that only its owner reads, because it has their codes. An unfinished file is
// removed.
func writeSheet(ctx context.Context, path string, page sheet.Page, list []voucher.Voucher) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return textfile.Plain(err)
	}
	line := func(string, ...any) {}
	if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err == nil { // a terminal
		line = func(text string, values ...any) { fmt.Fprintf(os.Stderr, "\r\x1b[K"+text, values...) }
	}
	page.Progress = func(done int) {
		if done%1000 == 0 && done > 0 {
			line("%d of %d vouchers", done, len(list))
		}
	}
	err = errors.Join(sheet.Write(ctx, f, page, list), f.Close())
	line("")
	if err == nil {
		fmt.Fprintf(stdout, "%s in %s\n", counted(len(list), "voucher", "vouchers"), path)
		return nil
	}
	if info, failed := os.Lstat(path); failed == nil && info.Mode().IsRegular() {
		err = errors.Join(err, os.Remove(path))
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s is not written: a signal ended the command", path)
	}
	return fmt.Errorf("writing %s: %w", path, err)
}
