package dhcp6

import (
	"errors"
	"net"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// refusal is a reason for which a device gets no answer, or not all that it asks for.
type refusal struct {
	mac  MAC
	kind error
}

// refuse counts and logs a message without an answer.
func (s *Server) refuse(mac MAC, err error) {
	for kind, count := range map[error]interface{ Add(uint64) uint64 }{
		errMalformed: &s.stats.malformed, errSource: &s.stats.spoofed, errRelayed: &s.stats.relayed,
		errRogue: &s.stats.rogue, errOther: &s.stats.other, errOverloaded: &s.stats.overloaded,
	} {
		if errors.Is(err, kind) {
			count.Add(1)
		}
	}
	s.note(mac, err)
}

// note writes to the log what a device does not get: once a minute of each device and reason. A message for another
// server, and a busy disk, are not the device's fault.
func (s *Server) note(mac MAC, err error) {
	for _, kind := range []error{
		errMalformed, errSource, errRelayed, errRogue, errFlood, errLong, errUnread, errTooMany, errNotYours, errElsewhere,
	} {
		if errors.Is(err, kind) && s.logBudgets.Spend(refusal{mac, kind}, false, budget.Now()) {
			s.log.Warn("a DHCPv6 message gets no answer, or not all that it asks for", "mac", hardware(mac), "reason", err)
		}
	}
}

func hardware(mac MAC) string { return net.HardwareAddr(mac[:]).String() }
