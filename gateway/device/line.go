package device

import (
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// line is where a device is attached, as far as servers know it by that. The zero value is not known.
type line struct {
	circuit, remote string
	vlans           session.VLANs
}

func lineOf(s session.Session) line {
	return line{s.Attachment.Circuit, s.Attachment.Remote, s.Attachment.VLANs}
}

// isOfAnother reports whether an answer is about a device at another line than a client of it has. Where that is not
// known, it is the same. What this machine says of a device holds at all lines.
func (a answer) isOfAnother(c session.Session) bool {
	at := lineOf(c)
	return at != (line{}) && at != a.line && (a.verdict == no || a.verdict == yes && a.login.Way == session.ByMAC)
}

// expelOthers ends sessions of a device that moved to another line, where it comes in as another user, and has it let
// in as that one.
func (d *Desk) expelOthers(mac datapath.MAC, inside []session.Session, user string) {
	for _, s := range inside {
		if s.Way != session.ByMAC || session.SameUser(s.User, user) {
			continue
		}
		d.expel(s)
		d.mu.Lock()
		if a := d.answers[mac]; a != nil {
			a.again = true
		}
		d.mu.Unlock()
	}
}
