// Package flowlog records which client used which address and port at what time: every connection that the kernel
// tracks for a client, with user, bytes and address translation.
//
//	conntrack ──events, dumps──▶ tracker ──lines──▶ flows-….ndjson ──closed──▶ .ndjson.gz, .idx
//	sessions  ──user──────────▶     └──────────────▶ IPFIX collector        FindFlows reads all three
//
// A flow has two lines, one when it begins and one when it ends. So FindFlows finds open flows too, also after the
// daemon was killed.
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

// Flow is one line of the log. For ICMP and ICMPv6 both ports are the identifier, for GRE the call ID or key; for a
// protocol without ports they are 0.
type Flow struct {
	Event string    `json:"event"` // Begins or Ends
	Start time.Time `json:"start"` // from the kernel, or else the time when the daemon first saw the flow
	End   time.Time `json:"end,omitzero"`

	Protocol uint8 `json:"protocol"` // IP's number
	// ICMPType and ICMPCode are those of the first message; 0 for other protocols, and in lines of former versions.
	ICMPType uint8          `json:"icmp_type,omitempty"`
	ICMPCode uint8          `json:"icmp_code,omitempty"`
	Client   netip.AddrPort `json:"client"`
	Peer     netip.AddrPort `json:"peer"`             // the other end of the connection
	Outside  netip.AddrPort `json:"outside,omitzero"` // the address that the peer sees instead of Client; zero without NAT
	// Asked is the destination that the client addressed instead of Peer; zero when that is not translated.
	Asked   netip.AddrPort `json:"asked,omitzero"`
	Inbound bool           `json:"inbound,omitempty"`  // the peer began the flow
	MAC     string         `json:"mac,omitempty"`      // the client's at the start
	User    string         `json:"user,omitempty"`     // the user who was logged in at the start
	Session string         `json:"session,omitempty"`  // Acct-Session-Id at the start
	UpBytes uint64         `json:"up_bytes,omitempty"` // bytes of IP packets from the client; counts are in the end's line
	UpPkts  uint64         `json:"up_packets,omitempty"`

	DownBytes uint64 `json:"down_bytes,omitempty"`
	DownPkts  uint64 `json:"down_packets,omitempty"`
}

// line returns the flow's line in the file, with its newline.
func (f *Flow) line() []byte {
	b, err := json.Marshal(f)
	if err != nil { // cannot happen with these fields
		panic(err)
	}
	return append(b, '\n')
}

// parseLine reads a line. ok is false for text that is no flow, such as the rest of a torn line.
func parseLine(b []byte) (flow Flow, ok bool) {
	if json.Unmarshal(b, &flow) != nil {
		return Flow{}, false
	}
	ok = (flow.Event == Begins || flow.Event == Ends) && flow.Client.IsValid() && flow.Peer.IsValid() &&
		!flow.Start.IsZero()
	return flow, ok
}

// keys returns the addresses and ports by which FindFlows finds the flow.
func (f *Flow) keys() []netip.AddrPort {
	if f.Outside.IsValid() {
		return []netip.AddrPort{f.Client, f.Outside}
	}
	return []netip.AddrPort{f.Client}
}

// sameTuple reports whether two lines have the same protocol, addresses and ports. Only one such flow exists at a time.
func (f *Flow) sameTuple(other *Flow) bool {
	return f.Protocol == other.Protocol && f.Client == other.Client && f.Peer == other.Peer &&
		f.Outside == other.Outside &&
		f.Asked == other.Asked && f.Inbound == other.Inbound
}
