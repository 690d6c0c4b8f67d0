// Package flowlog records which client used which address and port when: every connection
// that the kernel tracks for a client of the LAN, with user, bytes and address translation.
//
//	conntrack ──events, dumps──▶ tracker ──lines──▶ flows-….ndjson ──closed──▶ .ndjson.gz, .idx
//	sessions  ──who has it────▶     └──────────────▶ IPFIX collector             Find reads all three
//
// A flow has two lines, one when it begins and one when it ends, so that a flow which is
// still open is found too, and a killed daemon leaves the beginnings behind.
package flowlog

import (
	"encoding/json"
	"net/netip"
	"time"
)

// Events of a line.
const (
	Begins = "start"
	Ends   = "end"
)

// Flow is one line of the log. The ports are those of its protocol; in ICMP both are the identifier, in GRE the
// call ID or key, and 0 where a protocol has none.
type Flow struct {
	Event string    `json:"event"` // Begins or Ends
	Start time.Time `json:"start"` // of a flow that the kernel has no time for: when it was first seen
	End   time.Time `json:"end,omitzero"`

	Protocol uint8 `json:"protocol"` // IP's number
	// of the first message: 8 is a ping. ICMP alone; 0 in lines of former versions
	ICMPType uint8          `json:"icmp_type,omitempty"`
	ICMPCode uint8          `json:"icmp_code,omitempty"`
	Client   netip.AddrPort `json:"client"`           // of the LAN
	Peer     netip.AddrPort `json:"peer"`             // that the client talks to
	Outside  netip.AddrPort `json:"outside,omitzero"` // what the peer sees in place of Client, where it is translated
	// what the client asked for in place of Peer, where it is translated
	Asked   netip.AddrPort `json:"asked,omitzero"`
	Inbound bool           `json:"inbound,omitempty"`  // the peer began
	MAC     string         `json:"mac,omitempty"`      // of the client at the start
	User    string         `json:"user,omitempty"`     // logged in at the start
	Session string         `json:"session,omitempty"`  // Acct-Session-Id
	UpBytes uint64         `json:"up_bytes,omitempty"` // of IP packets from the client; all four in the line of the end
	UpPkts  uint64         `json:"up_packets,omitempty"`

	DownBytes uint64 `json:"down_bytes,omitempty"`
	DownPkts  uint64 `json:"down_packets,omitempty"`
}

// line is the flow as the file has it, with its newline.
func (f *Flow) line() []byte {
	b, err := json.Marshal(f)
	if err != nil { // no field can fail
		panic(err)
	}
	return append(b, '\n')
}

// parseLine reads a line. It fails for text that is no flow, such as the rest of a torn line.
func parseLine(b []byte) (f Flow, ok bool) {
	if json.Unmarshal(b, &f) != nil {
		return Flow{}, false
	}
	ok = (f.Event == Begins || f.Event == Ends) && f.Client.IsValid() && f.Peer.IsValid() && !f.Start.IsZero()
	return f, ok
}

// keys are the addresses and ports by which a flow is found.
func (f *Flow) keys() []netip.AddrPort {
	if f.Outside.IsValid() {
		return []netip.AddrPort{f.Client, f.Outside}
	}
	return []netip.AddrPort{f.Client}
}

// same reports whether two lines have the same addresses, ports and protocol. Of those only one
// flow exists at a time.
func (f *Flow) same(g *Flow) bool {
	return f.Protocol == g.Protocol && f.Client == g.Client && f.Peer == g.Peer && f.Outside == g.Outside &&
		f.Asked == g.Asked && f.Inbound == g.Inbound
}
