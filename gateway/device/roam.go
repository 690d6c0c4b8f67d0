// Devices that have a session at another gateway.

package device

import (
	"errors"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Roaming takes the sessions of other gateways over. Its answer begins one session alone.
type Roaming interface {
	Source
	// Elsewhere reports whether a device has a session that can be taken over. It returns at once.
	Elsewhere(datapath.MAC) bool
}

// expectRoam has a device asked about whose session is at another gateway, whatever was answered before: it has logged
// in there since. d.mu is held.
func (d *Desk) expectRoam(a *answer, mac datapath.MAC) {
	now := time.Now()
	if a == nil || a.queued || d.cfg.Roaming == nil || now.Before(a.roamAfter) || !d.cfg.Roaming.Elsewhere(mac) {
		return
	}
	a.verdict, a.login, a.held, a.until = unknown, session.Login{}, false, now
}

// roam takes a device's session of another gateway over, and returns the answer; nil: others are to be asked. Only a
// device that was seen outside has come here.
func (d *Desk) roam(l *lane, outside []session.Session, before answer) *answer {
	if l != &d.here || !before.seen || len(outside) == 0 || d.cfg.Roaming == nil ||
		!d.cfg.Roaming.Elsewhere(outside[0].MAC) {
		return nil
	}
	for _, s := range outside {
		id := session.NewID()
		login, err := d.cfg.Roaming.Ask(d.ctx, session.Credentials{Key: s.Key, FurtherAddrs: s.FurtherAddrs,
			SessionID: id, CallCheck: true})
		if err == nil {
			v, until := d.admit(s, login, id)
			if v == yes {
				until = time.Now().Add(d.cfg.Keep)
			}
			return &answer{verdict: v, login: login, line: lineOf(s), until: until}
		}
		if errors.Is(err, session.ErrRejected) {
			continue
		}
		d.undecided.Do(func() {
			d.cfg.Log.Warn("a device's session at another gateway cannot be taken over now: it sees the portal", "client",
				s.Key.String(), "err", err)
		})
		d.mu.Lock()
		if a := d.answers[s.MAC]; a != nil {
			a.roamAfter = time.Now().Add(time.Second)
		}
		d.mu.Unlock()
	}
	return nil
}
