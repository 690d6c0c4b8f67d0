// When devices are asked about again.

package device

import (
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Sweep asks again about devices whose answer no longer holds: those that are outside, and those that are inside by an
// answer. An answer about a device that is neither is forgotten.
func (d *Desk) Sweep() {
	now := time.Now()
	var over []datapath.MAC
	d.mu.Lock()
	for mac, a := range d.answers {
		if !a.queued && !now.Before(a.until) {
			over = append(over, mac)
		}
	}
	d.mu.Unlock()
	for _, mac := range over {
		outside, inside := d.clients(mac)
		d.mu.Lock()
		a := d.answers[mac]
		switch {
		case a == nil || a.queued:
		case len(inside) > 0, len(outside) > 0 && a.verdict != yes:
			a.held = false
			d.enqueue(mac, true)
		default: // it was let in, and is silent: it is asked about when it is seen
			delete(d.answers, mac)
		}
		d.mu.Unlock()
	}
}

// Recheck asks again about the devices of which changed says that the answer may be another now. way is how a device
// was let in; empty: it was not.
func (d *Desk) Recheck(changed func(mac datapath.MAC, way session.Way) bool) {
	d.mu.Lock()
	for mac, a := range d.answers {
		var way session.Way
		if a.verdict == yes {
			way = a.login.Way
		}
		if !a.held && changed(mac, way) {
			a.until = time.Time{}
			a.changed = a.queued
		}
	}
	d.mu.Unlock()
	d.Sweep()
}

// Renew tells that the sources may have another answer about a device now. It is asked for when the device is seen.
func (d *Desk) Renew(mac datapath.MAC) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch a := d.answers[mac]; {
	case a == nil:
	case a.queued:
		a.changed = true
	default:
		delete(d.answers, mac)
	}
}

// Hold keeps a device outside, although sources may let it in, for as long as an answer holds: somebody logged it out.
func (d *Desk) Hold(mac datapath.MAC) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hold(mac)
}

func (d *Desk) hold(mac datapath.MAC) {
	a := d.answers[mac]
	if a == nil {
		d.makeRoom()
		a = &answer{}
		d.answers[mac] = a
	}
	a.verdict, a.login, a.held, a.until = no, session.Login{}, true, time.Now().Add(d.cfg.Keep)
}

// Ended tells that a device's session has ended, with a cause. Whether the device comes in again at once depends on the
// cause:
//
//	silence, lease      by the answer, while it holds
//	time                the sources are asked
//	bytes               no, until an answer would no longer hold; the same after a logout, see Hold
//	by a server         the sources are asked when the device is seen
func (d *Desk) Ended(s session.Session, cause session.Cause) {
	if s.Way == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.answers[s.MAC]
	switch {
	case a != nil && a.held:
	case cause == session.Quota:
		d.hold(s.MAC)
	case a == nil, a.queued:
	case cause == session.SessionTimeout && time.Since(s.Seen) < lively:
		a.verdict, a.until = unknown, time.Time{} // Sweep has the sources asked, once the session has ended
	case cause == session.SessionTimeout, cause == session.AdminReset, a.verdict == unknown:
		delete(d.answers, s.MAC)
	}
}

// Resume takes up a device whose session a former daemon began: its answer holds as if it had been given now.
func (d *Desk) Resume(s session.Session) {
	if s.Way == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	login := s.Login
	login.Explicit = session.ExplicitLimits{SessionTimeout: true, IdleTimeout: true, UpBytes: true, DownBytes: true,
		TotalBytes: true, UpBps: true, DownBps: true, Connections: true}
	a := d.answers[s.MAC]
	if a == nil {
		d.makeRoom()
		a = &answer{}
		d.answers[s.MAC] = a
	}
	a.verdict, a.login, a.line, a.until = yes, login, lineOf(s), time.Now().Add(d.cfg.Keep)
}
