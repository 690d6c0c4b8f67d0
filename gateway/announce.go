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

// Two files in state_dir record what RADIUS servers have been told. onFile exists while an Accounting-On is due that
// the servers have not confirmed. offFile exists once an Accounting-Off was sent since, which servers may have received
// although they did not confirm it.
func onFile(cfg *config.Config) string  { return filepath.Join(cfg.StateDir, "accounting-on") }
func offFile(cfg *config.Config) string { return filepath.Join(cfg.StateDir, "accounting-off") }

// mark makes an empty file that survives a power cut.
func mark(path string) error { return statefile.Replace(path, func(io.Writer) error { return nil }) }

// whyTableLost describes why there is no session table at path although there was one; "" otherwise. boot is a file
// that exists once a daemon has run with this folder. fresh: there is no table, and there never was one.
func whyTableLost(path, boot string) (reason string, fresh bool) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		reason = "is missing"
	case err == nil && info.Size() == 0:
		reason = "is empty"
	default:
		return "", false
	}
	if _, err := os.Stat(boot); err != nil { // no daemon has run with this folder
		return "", true
	}
	return reason, true
}

// beginAnew notes that RADIUS servers must be told that the gateway begins without sessions (announce).
func (g *gateway) beginAnew() error {
	if err := mark(onFile(g.cfg)); err != nil {
		return fmt.Errorf("noting that RADIUS servers are to be told of the start: %w", err)
	}
	return nil
}

// tellStart has RADIUS servers told of the table's sessions as far as they have to be. fresh: the table is a new one.
func (g *gateway) tellStart(fresh bool) error {
	switch {
	case g.pair != nil: // the site goes on
		return nil
	case fresh:
		return g.beginAnew()
	}
	return g.takeBack()
}

// takeBack does nothing unless servers were told at detach that all sessions have ended. Then it has them told that the
// gateway starts, and of the start of each session that still exists.
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

// deafMost is how often in a row a server may confirm an event, but not the Accounting-On sent before it. Then it
// counts as a server that never confirms Accounting-On: one that was away, or lost packets, would confirm it in one of
// these attempts.
const deafMost = 3

// announce sends RADIUS servers an Accounting-On before any event, if one is due (onFile), so that they end the
// sessions that they still have. It gives up if servers confirm events but never Accounting-On. To find that out it
// sends an event, which is sent again after a confirmed Accounting-On.
func (g *gateway) announce(ctx context.Context) error {
	if _, err := os.Stat(onFile(g.cfg)); err != nil || !g.accounts() || g.pair != nil {
		return nil
	}
	var failed budget.OncePerMinute
	var held *session.Event // the event that was confirmed although Accounting-On was not; it is not marked as done yet
	for again, deaf := false, 0; deaf < deafMost; again = !again {
		err := g.radius.AccountingOn(ctx)
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err == nil {
			g.log.Info("RADIUS servers were told that the gateway begins without sessions (Accounting-On)")
			if held != nil && g.accountOne(ctx, *held) != nil {
				g.table.Later(*held)
			}
			return os.Remove(onFile(g.cfg))
		}
		failed.Do(func() { g.log.Warn("accounting; it will be sent again", "err", err) })
		if held == nil {
			if held, err = g.probe(ctx, again); err != nil {
				return err
			}
		}
		switch {
		case held == nil: // nothing shows whether a server is there
		case g.radius.Account(ctx, *held) == nil:
			deaf++
		default:
			g.table.Later(*held)
			held, deaf = nil, 0
		}
	}
	g.log.Warn("RADIUS servers confirm sessions and not Accounting-On: they may still count sessions of before")
	return errors.Join(os.Remove(onFile(g.cfg)), g.table.Done(*held))
}

// probe returns an event to try servers with, if there is one within a few seconds.
func (g *gateway) probe(ctx context.Context, again bool) (*session.Event, error) {
	probeCtx, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	e, err := g.table.Take(probeCtx, again)
	switch {
	case err != nil && probeCtx.Err() != nil:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &e, nil
}

// offTime bounds how long detach waits for RADIUS servers.
const offTime = 5 * time.Second

// signOff tells RADIUS servers at detach that all sessions have ended (Accounting-Off). It tells them nothing if the
// table has no sessions or cannot be read. Detach has done its work by then, so signOff logs a server that does not
// answer, and returns no error.
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
		return nil // the next start reports a damaged table
	}
	c, err := radius.New((&gateway{cfg: cfg}).radiusConfig())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := mark(offFile(cfg)); err != nil { // before sending: servers may receive what they do not confirm
		return fmt.Errorf("noting that RADIUS servers are told of the end of all sessions: %w", err)
	}
	ctx, stop := context.WithTimeout(context.Background(), offTime)
	defer stop()
	if err := c.AccountingOff(ctx); err != nil {
		slog.Warn("nothing is left in the kernel, but RADIUS servers do not know that the sessions have ended", "sessions",
			sessions, "err", err)
	}
	return nil
}
