package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/statefile"
	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// openVouchers opens the vouchers of a single network, if clients log in by them, or did so before: their sessions may
// go on. Several networks have theirs together (several.openVouchers).
func (g *gateway) openVouchers(context.Context) (o opened, err error) {
	_, missing := os.Stat(filepath.Join(g.cfg.StateDir, voucher.FileName))
	if g.vouchers != nil || !g.cfg.Auth.Has(config.MethodVoucher) && errors.Is(missing, fs.ErrNotExist) {
		return o, nil
	}
	if g.vouchers, err = openBook(g.cfg.StateDir, g.store, g.log); err != nil {
		return o, err
	}
	o = opened{run: g.vouchers.Run, close: g.vouchers.Close}
	return o, retainVouchers(g.vouchers, g.cfg)
}

// openVouchers opens the vouchers of all networks.
func (s *several) openVouchers(context.Context) (o opened, err error) {
	if err := os.MkdirAll(s.cfg.StateDir, 0o700); err != nil {
		return o, fmt.Errorf("making state_dir: %w", err)
	}
	if s.vouchers, err = openBook(s.cfg.StateDir, &s.store, s.Log); err != nil {
		return o, err
	}
	o = opened{run: s.vouchers.Run, close: s.vouchers.Close}
	s.retainVouchers(s.cfg)
	return o, nil
}

// retainVouchers closes the vouchers' sessions of networks that a configuration does not have and that left no file of
// sessions. While there is a file, the network may come back with its sessions: their places stay taken.
func retainVouchers(book *voucher.Book, cfg *config.Config) error {
	return book.Retain(func(network string) bool {
		if slices.ContainsFunc(cfg.All(), func(n *config.Config) bool { return n.Name == network }) {
			return true
		}
		_, err := os.Stat(filepath.Join(cfg.StateDir, network, sessionsName))
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// retainVouchers is the function of this name, whose error is logged.
func (s *several) retainVouchers(cfg *config.Config) {
	if err := retainVouchers(s.vouchers, cfg); err != nil {
		s.Log.Error("vouchers' sessions of a network that is gone stay open until the next start", "err", err)
	}
}

// endsAtStart takes a session up again that the table had before, and returns why it ends now instead; empty: it goes
// on.
func (g *gateway) endsAtStart(s session.Session) session.Cause {
	if g.vouchers == nil {
		return ""
	}
	return g.vouchers.TakeUp(g.cfg.Name, s)
}

// openBook opens the vouchers in a state folder, which all gateways have together that have a store. A damaged file is
// set aside.
func openBook(folder string, store *sharedStore, log *slog.Logger) (*voucher.Book, error) {
	open := func() (*voucher.Book, error) {
		if store.Store == nil {
			return voucher.Open(folder, log)
		}
		return voucher.OpenShared(folder, store.Store, store.sessionOf, log)
	}
	book, err := open()
	if !errors.Is(err, statefile.ErrDamaged) {
		return book, err
	}
	path := filepath.Join(folder, voucher.FileName)
	movedTo, failed := statefile.SetAside(path)
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	log.Error("the vouchers' file is damaged and was set aside: no voucher is known until a copy of it is put back",
		"file", path, "now", movedTo, "err", err)
	return open()
}

// LoginURL is the URL of the portal's login page.
func LoginURL(cfg *config.Config) string {
	return (&gateway{cfg: cfg}).portalConfig(nil).LoginURL()
}

// serveVouchers has the vouchers look after this network's sessions.
func (g *gateway) serveVouchers(context.Context) (o opened, err error) {
	if g.vouchers == nil {
		return o, nil
	}
	o.close = func() error { g.vouchers.Leave(g.cfg.Name); return nil }
	return o, g.vouchers.Serve(g.cfg.Name, g.table)
}

// lesser returns the lesser of two limits, of which 0 is none.
func lesser[T time.Duration | uint64](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// takePlace takes a place of the voucher that admits a client, if one does. giveBack undoes it.
func (g *gateway) takePlace(login *session.Login) (giveBack func(), err error) {
	if login.Voucher == "" {
		return func() {}, nil
	}
	rest := login.Limits
	if err := g.vouchers.Begin(login, login.For, g.cfg.Name); err != nil {
		return nil, err
	}
	if login.Former != (session.Former{}) { // what it used at the other gateway may not count yet
		l := &login.Limits
		l.SessionTimeout = lesser(l.SessionTimeout, rest.SessionTimeout)
		l.TotalBytes = lesser(l.TotalBytes, rest.TotalBytes)
	}
	taken := *login
	return func() {
		if err := g.vouchers.Undo(taken); err != nil {
			g.log.Error("a voucher's place stays taken until the next start, by a login that failed", "user", taken.User,
				"err", err)
		}
	}, nil
}

// sharePlace tells the other sessions of a voucher that one more has begun. It fails where the voucher was revoked
// meanwhile, so that the session has ended.
func (g *gateway) sharePlace(login session.Login) error {
	if login.Voucher == "" {
		return nil
	}
	err := g.vouchers.Began(login)
	if err != nil && !errors.Is(err, session.ErrRejected) {
		g.log.Warn("the other sessions of a voucher may go on for too long", "user", login.User, "err", err)
		return nil
	}
	return err
}
