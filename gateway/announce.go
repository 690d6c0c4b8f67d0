package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/radius"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// Files of state_dir: that servers are to be told Accounting-On and have not confirmed it, and that they were
// told Accounting-Off since.
func onFile(cfg *config.Config) string  { return filepath.Join(cfg.StateDir, "accounting-on") }
func offFile(cfg *config.Config) string { return filepath.Join(cfg.StateDir, "accounting-off") }

// mark makes an empty file that is there after a power cut.
func mark(path string) error { return statefile.Replace(path, func(io.Writer) error { return nil }) }

// lost describes why there is no session table at path although there was one, or "". fresh: there is none.
func lost(path, boot string) (why string, fresh bool) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "is missing"
	case err == nil && info.Size() == 0:
		why = "is empty"
	default:
		return "", false
	}
	if _, err := os.Stat(boot); err != nil { // no daemon has run with this folder
		return "", true
	}
	return why, true
}

// beginAnew has RADIUS servers told that the gateway begins without the sessions that it may have had.
func (g *gateway) beginAnew() error {
	if err := mark(onFile(g.cfg)); err != nil {
		return fmt.Errorf("noting that RADIUS servers are to be told of the start: %w", err)
	}
	return nil
}

// takeBack has servers told of the start, and of all sessions once more, after they were told at detach
// that the gateway's sessions have ended.
func (g *gateway) takeBack() error {
	if _, err := os.Stat(offFile(g.cfg)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := g.beginAnew(); err != nil {
		return err
	}
	if err := g.table.StartAgain(); err != nil {
		return fmt.Errorf("telling RADIUS servers of sessions that go on after detach: %w", err)
	}
	return os.Remove(offFile(g.cfg))
}

// announce tells RADIUS servers Accounting-On, where they are to be told, before any event: they end the
// sessions that they have. A server that confirms events and not this is not waited for.
func (g *gateway) announce(ctx context.Context) error {
	if _, err := os.Stat(onFile(g.cfg)); err != nil || !g.accounts() {
		return nil
	}
	var failed budget.Seldom
	for again := false; ; again = !again {
		err := g.radius.AccountingOn(ctx)
		if err == nil {
			g.log.Info("RADIUS servers were told that the gateway begins without sessions (Accounting-On)")
			return os.Remove(onFile(g.cfg))
		}
		if ctx.Err() != nil {
			return nil
		}
		failed.Do(func() { g.log.Warn("accounting; it will be sent again", "err", err) })
		alive, err := g.probe(ctx, again)
		if err != nil {
			return err
		}
		if alive {
			g.log.Warn("RADIUS servers confirm sessions and not Accounting-On: they may still count sessions of before")
			return os.Remove(onFile(g.cfg))
		}
	}
}

// probe sends an event, if there is one within a few seconds, and reports whether a server has confirmed it.
func (g *gateway) probe(ctx context.Context, again bool) (alive bool, err error) {
	some, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	e, err := g.table.Take(some, again)
	switch {
	case err != nil && some.Err() != nil:
		return false, nil
	case err != nil:
		return false, err
	}
	if g.accountOne(ctx, e) != nil {
		g.table.Later(e)
		return false, nil
	}
	return true, nil
}

// offTime bounds how long detach waits for RADIUS servers.
const offTime = 5 * time.Second

// signOff tells RADIUS servers that all sessions have ended (Accounting-Off), at detach. Where a daemon goes on
// with the sessions, or none was ever there, they are told nothing. Detach has done its work by then, so a
// server that does not answer is logged and no error.
func signOff(cfg *config.Config) error {
	if !cfg.RADIUS.Accounting || len(cfg.RADIUS.Servers()) == 0 {
		return nil
	}
	sessions := 0
	err := session.Stored(sessionsFile(cfg), func(s session.Session) {
		if s.State == session.Authenticated {
			sessions++
		}
	})
	if err != nil || sessions == 0 {
		return nil // what is damaged is told at the next start
	}
	c, err := radius.New((&gateway{cfg: cfg}).radiusConfig())
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := context.WithTimeout(context.Background(), offTime)
	defer stop()
	if err := c.AccountingOff(ctx); err != nil {
		slog.Warn("nothing is left in the kernel, but RADIUS servers do not know that the sessions have ended", "sessions", sessions, "err", err)
		return nil
	}
	if err := mark(offFile(cfg)); err != nil {
		return fmt.Errorf("noting that RADIUS servers were told of the end of all sessions: %w", err)
	}
	return nil
}
