package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/units"
	"github.com/gateweigh/gateweigh/gateway/voucher"
	"github.com/gateweigh/gateweigh/quote"
)

// voucherPlace is where the commands find vouchers: a daemon, or the file in state_dir where none has it.
type voucherPlace struct {
	socket *string
	file   string // the configuration
}

// vouchers are those of a daemon, or of a file.
type vouchers struct {
	control.Vouchers
	close func() error
	file  bool // of a file
}

func voucherCommand(socket *string) *cobra.Command {
	place := &voucherPlace{socket: socket}
	cmd := &cobra.Command{
		Use:   "voucher",
		Short: "Make vouchers, list, print and revoke them",
		Long: "Vouchers are codes that admit devices at the portal, with \"voucher\" in auth.methods. A batch has a name,\n" +
			"such as lobby, and its vouchers have numbers: lobby-17. The commands ask the running daemon; without one\n" +
			"they work on the file in state_dir, which the configuration names.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVarP(&place.file, "config", "c", defaultConfig,
		"the configuration that names state_dir and the portal")
	cmd.AddCommand(voucherCreateCommand(place), voucherListCommand(place), voucherRevokeCommand(place),
		voucherExportCommand(place), voucherPrintCommand(place))
	return cmd
}

// open connects to the daemon, or opens the file where no daemon has it.
func (p *voucherPlace) open(ctx context.Context) (*vouchers, error) {
	c, err := control.Dial(*p.socket)
	if err == nil {
		return &vouchers{remoteVouchers{ctx, c}, func() error { return nil }, false}, nil
	}
	if !errors.Is(err, control.ErrNotRunning) {
		return nil, err
	}
	cfg, bad := config.Load(p.file)
	if bad != nil {
		return nil, &exitError{exitUsage, bad}
	}
	if own := cfg.ControlSocket(); own != *p.socket {
		return (&voucherPlace{&own, p.file}).open(ctx)
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("making state_dir: %w", err)
	}
	book, err := voucher.Open(cfg.StateDir, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{
		Level: slog.LevelWarn})))
	switch {
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return nil, fmt.Errorf("%w: no daemon answers, and only root reads the file: sudo %s", err, quote.Command(os.Args...))
	case errors.Is(err, voucher.ErrDamaged):
		return nil, fmt.Errorf("%w: put a copy of it back, or start gatewayd, which sets it aside and begins a new one", err)
	case err != nil:
		return nil, err
	}
	return &vouchers{book, book.Close, true}, nil
}

// remoteVouchers are a daemon's.
type remoteVouchers struct {
	ctx    context.Context
	client *control.Client
}

// Create implements control.Vouchers.
func (r remoteVouchers) Create(batch string, count int, terms voucher.Terms) (all []voucher.Voucher, err error) {
	req := control.VouchersRequest{Batch: batch, Count: count, Terms: terms}
	err = r.client.CreateVouchers(r.ctx, req, func(v voucher.Voucher) error { all = append(all, v); return nil })
	return all, err
}

// Each implements control.Vouchers.
func (r remoteVouchers) Each(name string, yield func(voucher.Voucher) bool) error {
	enough := errors.New("enough")
	err := r.client.Vouchers(r.ctx, name, func(v voucher.Voucher) error {
		if !yield(v) {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		return nil
	}
	return err
}

// Revoke implements control.Vouchers.
func (r remoteVouchers) Revoke(ctx context.Context, name string) (voucher.Revocation, error) {
	return r.client.RevokeVouchers(ctx, name)
}

// with calls f with the vouchers.
func (p *voucherPlace) with(ctx context.Context, f func(*vouchers) error) error {
	v, err := p.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(v), v.close())
}

// list returns the vouchers that a name means, or all. A slow reader of the output does not keep the file from a daemon
// that starts.
func (p *voucherPlace) list(ctx context.Context, name string) (all []voucher.Voucher, err error) {
	return all, p.with(ctx, func(v *vouchers) error {
		return v.Each(name, func(v voucher.Voucher) bool { all = append(all, v); return true })
	})
}

// voucherTerms are the texts of create's flags.
type voucherTerms struct {
	length, until, online, data, upRate, downRate string
}

func voucherCreateCommand(place *voucherPlace) *cobra.Command {
	req := control.VouchersRequest{Terms: voucher.Terms{Devices: 1}}
	var texts voucherTerms
	cmd := &cobra.Command{
		Use:   "create --for 24h [--count 200]",
		Short: "Make a batch of vouchers, and print their codes",
		Long: "Makes vouchers and prints the name and the code of each. A voucher is valid for a time from its first use\n" +
			"(--for), until a date (--until), or as long as time online (--online) or data (--data) is left, which count\n" +
			"over all of its sessions. --until 2026-12-31 is until the end of that day here.",
		Example: "  gatewayd voucher create --count 200 --for 24h --devices 2 --batch lobby\n" +
			"  gatewayd voucher create --until 2026-12-31 --data 10GB --down-rate 20M --note 'Room 12'",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := texts.read(&req.Terms, time.Now())
			if err == nil {
				err = voucher.Check(req.Batch, req.Count, req.Terms)
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return place.create(cmd.Context(), req)
		},
	}
	texts.add(cmd.Flags(), &req)
	return cmd
}

// create makes a batch and prints its codes.
func (p *voucherPlace) create(ctx context.Context, req control.VouchersRequest) error {
	p.warnUnused()
	var all []voucher.Voucher
	err := p.with(ctx, func(v *vouchers) (err error) {
		all, err = v.Create(req.Batch, req.Count, req.Terms)
		return err
	})
	if errors.Is(err, control.ErrUncertain) {
		return uncertain(req.Batch, err)
	}
	if err != nil {
		return err
	}
	for _, v := range all {
		if _, err := fmt.Fprintf(stdout, "%s\t%s\n", v.Name, v.Code); err != nil {
			return fmt.Errorf("the batch %[1]s is made, but its codes could not be written: `gatewayd voucher export %[1]s` "+
				"writes them: %[2]w", v.Batch, err)
		}
	}
	return nil
}

// warnUnused says that no network of the configuration takes vouchers. Without a readable configuration it says
// nothing.
func (p *voucherPlace) warnUnused() {
	cfg, bad := config.Load(p.file)
	takes := func(n *config.Config) bool { return n.Auth.Has(config.MethodVoucher) }
	if bad != nil || slices.ContainsFunc(cfg.All(), takes) {
		return
	}
	fmt.Fprintf(os.Stderr, "warning: no portal takes vouchers: add \"voucher\" to auth.methods in %s\n", p.file)
}

// uncertain is the error where gatewayd's answer about a new batch broke off.
func uncertain(batch string, err error) error {
	if batch == "" {
		return fmt.Errorf("the batch may have been made nevertheless: look at the last of `gatewayd voucher list` before "+
			"you make another; `gatewayd voucher export BATCH` writes its codes: %w", err)
	}
	return fmt.Errorf("the batch %[1]s may have been made nevertheless: `gatewayd voucher list %[1]s` shows it then, "+
		"and `gatewayd voucher export %[1]s` writes its codes: %[2]w", batch, err)
}

// add adds create's flags.
func (v *voucherTerms) add(f *pflag.FlagSet, req *control.VouchersRequest) {
	f.StringVar(&req.Batch, "batch", "", "name of the batch (default the first number that is free)")
	f.IntVar(&req.Count, "count", 1, "number of vouchers")
	f.StringVar(&v.length, "for", "", "valid for so long from the first use, such as 90m, 24h or 7d")
	f.StringVar(&v.until, "until", "", "valid until a date or time, such as 2026-12-31 or 2026-12-31T12:00:00+01:00")
	f.StringVar(&v.online, "online", "", "time online of all sessions together, such as 5h")
	f.StringVar(&v.data, "data", "", "bytes of both directions and all sessions together, such as 10GB")
	f.IntVar(&req.Terms.Devices, "devices", 1, "devices at once")
	f.StringVar(&v.upRate, "up-rate", "", "limit of what each device sends, bits a second, such as 10M")
	f.StringVar(&v.downRate, "down-rate", "", "limit of what each device receives, bits a second")
	f.Uint32Var(&req.Terms.Connections, "connections", 0, "connections of each device at once, where limits.connections "+
		"is set")
	f.StringVar(&req.Terms.Note, "note", "", "a line of text, which is printed too")
}

// read reads the texts into terms.
func (v voucherTerms) read(terms *voucher.Terms, now time.Time) error {
	if v.length == "" && v.until == "" && v.online == "" && v.data == "" {
		return errors.New("how long is a voucher valid? give --for, --until, --online or --data")
	}
	for _, t := range []struct {
		flag, text string
		seconds    *int64
	}{{"for", v.length, &terms.ForSeconds}, {"online", v.online, &terms.OnlineSeconds}} {
		if t.text == "" {
			continue
		}
		d, err := parseLength(t.text)
		if err != nil {
			return fmt.Errorf("--%s %q: %w", t.flag, t.text, err)
		}
		*t.seconds = int64(d / time.Second)
	}
	for _, t := range []struct {
		flag, text string
		parse      func(string) (uint64, error)
		value      *uint64
	}{{"data", v.data, config.ParseSize, &terms.Bytes}, {"up-rate", v.upRate, config.ParseRate, &terms.UpBps},
		{"down-rate", v.downRate, config.ParseRate, &terms.DownBps}} {
		if t.text == "" {
			continue
		}
		n, err := t.parse(t.text)
		if err != nil {
			return fmt.Errorf("--%s %q: %w", t.flag, t.text, err)
		}
		*t.value = n
	}
	if v.until == "" {
		return nil
	}
	day, err := time.ParseInLocation("2006-01-02", v.until, time.Local)
	if terms.Until = day.AddDate(0, 0, 1); err != nil {
		if terms.Until, err = parseTime("until", v.until); err != nil {
			return fmt.Errorf("%w, or a date such as 2026-12-31", err)
		}
	}
	if !terms.Until.After(now) {
		return fmt.Errorf("--until %s is over", v.until)
	}
	return nil
}

// parseLength reads a duration of at least a second, such as "90m", "24h" or "7d".
func parseLength(s string) (time.Duration, error) {
	bad := errors.New("must be a duration such as 90m, 24h or 7d, from 1s to 3650d")
	d, err := config.ParseDuration(s)
	if err != nil || d < time.Second || d > 3650*24*time.Hour {
		return 0, bad
	}
	return d, nil
}

func voucherListCommand(place *voucherPlace) *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "list [BATCH | VOUCHER]",
		Short: "List vouchers: their states, and what they have used",
		Long: "Lists vouchers without their codes, which `gatewayd voucher export` has: all, those of a batch (lobby), or\n" +
			"one (lobby-17).",
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if state != "" && !slices.Contains(voucher.States, voucher.State(state)) {
				return &exitError{exitUsage, fmt.Errorf("no state is called %q: there are %v", state, voucher.States)}
			}
			all, err := place.list(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "VOUCHER\tSTATE\tDEVICES\tFIRST USE\tEND\tONLINE\tDATA\tNOTE")
			for _, v := range all {
				if state == "" || string(v.State) == state {
					writeVoucher(w, v)
				}
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "only those in this state: new, in-use, expired, used-up, revoked")
	return cmd
}

// writeVoucher writes a voucher's columns: of what is limited, how much is used of how much.
func writeVoucher(w io.Writer, v voucher.Voucher) {
	end := shortTime(v.End)
	if v.End.IsZero() && v.Terms.ForSeconds > 0 {
		end = "after " + units.Duration(time.Duration(v.Terms.ForSeconds)*time.Second)
	}
	online, data := units.Duration(time.Duration(v.UsedSeconds)*time.Second), units.Bytes(v.UsedBytes)
	if v.Terms.OnlineSeconds > 0 {
		online += "/" + units.Duration(time.Duration(v.Terms.OnlineSeconds)*time.Second)
	}
	if v.Terms.Bytes > 0 {
		data += "/" + units.Bytes(v.Terms.Bytes)
	}
	fmt.Fprintf(w, "%s\t%s\t%d/%d\t%s\t%s\t%s\t%s\t%s\n", v.Name, v.State, v.Sessions, v.Terms.Devices,
		shortTime(v.FirstUse), end, online, data, orDash(plain(v.Terms.Note, 40)))
}

// shortTime writes a time to the minute, in this machine's time zone; "-" for none.
func shortTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04")
}

func voucherRevokeCommand(place *voucherPlace) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke BATCH | VOUCHER",
		Short: "Revoke vouchers and end their sessions",
		Long:  "Revokes a batch (lobby) or one voucher (lobby-17) for good, and ends their sessions at once.",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return place.with(cmd.Context(), func(v *vouchers) error {
				done, err := v.Revoke(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				fmt.Fprintf(stdout, "%s revoked, %s ended\n", counted(done.Vouchers, "voucher", "vouchers"),
					counted(done.Sessions, "session", "sessions"))
				if done.Later > 0 {
					when := "its network is served again"
					if v.file {
						when = "gatewayd starts"
					}
					fmt.Fprintf(stdout, "%s when %s\n", counted(done.Later, "session ends", "sessions end"), when)
				}
				return nil
			})
		},
	}
}

func voucherExportCommand(place *voucherPlace) *cobra.Command {
	return &cobra.Command{
		Use:   "export [BATCH | VOUCHER]",
		Short: "Write vouchers with their codes, as CSV",
		Long:  "Writes vouchers to standard output as CSV (RFC 4180): all, those of a batch (lobby), or one (lobby-17).",
		Args:  usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := place.list(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			return voucher.WriteCSV(stdout, all)
		},
	}
}
