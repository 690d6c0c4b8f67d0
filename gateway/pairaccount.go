package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// errNotSynced means that it is not known yet whether the other gateway has a session.
var errNotSynced = errors.New("the end of a session waits until the store says whether the other gateway has it")

// leavesOut reports whether an event of a standby is of no use: it is left of when this gateway served. The other one
// tells newer counts, and goes on with sessions of whose end it never heard.
func (l *pairLife) leavesOut(e session.Event) (bool, error) {
	if l.serves.Load() {
		return false, nil
	}
	switch e.Kind {
	case session.Updated:
		return true, nil
	case session.Ended:
		if !l.isSynced() {
			return false, errNotSynced
		}
		s, known := l.g.table.Get(e.Addr)
		return known && s.State == session.Authenticated && s.ID == e.ID, nil
	}
	return false, nil
}

// takeUpVouchers has the vouchers know the sessions that the other gateway began, and ends those that no voucher
// admits.
func (l *pairLife) takeUpVouchers() error {
	if l.g.vouchers == nil {
		return nil
	}
	var failed error
	l.g.table.Each(func(s session.Session) bool {
		if s.State != session.Authenticated {
			return true
		}
		if cause := l.g.endsAtStart(s); cause != "" {
			if err := l.g.table.Kick(s.Addr, s.ID, cause); err != nil && !errors.Is(err, session.ErrNoSession) {
				failed = err
			}
		}
		return true
	})
	return failed
}

// renewingFile has the time before which sessions began that are to be renewed, until that is done.
func renewingFile(cfg *config.Config) string { return filepath.Join(cfg.StateDir, "renewing") }

// openRenewal ends the other gateway's sessions for RADIUS servers and begins others in their places, if they are to be
// told so. What a crash leaves undone is done by the next takeover that is this gateway's own.
func (l *pairLife) openRenewal(context.Context) (o opened, err error) {
	if l.cfg.Pair.Accounting != config.AccountingRestart {
		return o, nil
	}
	before, err := l.renewBefore()
	if err != nil || before.IsZero() {
		return o, err
	}
	o.run = func(ctx context.Context) error {
		if err := l.g.table.Renew(before, session.NASReboot); err != nil && ctx.Err() == nil {
			return fmt.Errorf("beginning sessions in place of the other gateway's: %w", err)
		}
		if err := os.Remove(renewingFile(l.cfg)); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	return o, nil
}

// renewBefore returns before when sessions began that are to be renewed, and notes it; zero: none are.
func (l *pairLife) renewBefore() (before time.Time, err error) {
	file := renewingFile(l.cfg)
	lead := l.former
	if lead == l.g.store.Gateway || lead == "" {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return time.Time{}, nil
		}
		if err == nil {
			before, err = time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text)))
		}
		return before, err
	}
	before = time.Now().Round(0)
	return before, statefile.Replace(file, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, before.Format(time.RFC3339Nano))
		return err
	})
}
