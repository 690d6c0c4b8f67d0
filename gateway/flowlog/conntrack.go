package flowlog

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
)

// named returns a connection as data paths know it.
func named(c conntrack.Connection) datapath.Tracked {
	return datapath.Tracked{From: c.Orig.From, To: c.Orig.To, Protocol: c.Orig.Protocol, Start: c.Start}
}

// flowOf returns a connection as a flow of a client. Connections of and to the gateway itself are none.
func flowOf(c conntrack.Connection, client func(netip.Addr) bool, gateway netip.Addr) (f Flow, ok bool) {
	f = Flow{Protocol: c.Orig.Protocol, ICMPType: c.Orig.ICMPType, ICMPCode: c.Orig.ICMPCode, Start: c.Start, End: c.Stop}
	switch {
	case client(c.Orig.From.Addr()):
		f.Client, f.Peer, f.Outside, f.Asked = c.Orig.From, c.Reply.From, c.Reply.To, c.Orig.To
		f.UpPkts, f.UpBytes, f.DownPkts, f.DownBytes = c.Sent.Packets, c.Sent.Bytes, c.Got.Packets, c.Got.Bytes
	case client(c.Reply.From.Addr()):
		f.Client, f.Peer, f.Outside, f.Asked, f.Inbound = c.Reply.From, c.Orig.From, c.Orig.To, c.Reply.To, true
		f.UpPkts, f.UpBytes, f.DownPkts, f.DownBytes = c.Got.Packets, c.Got.Bytes, c.Sent.Packets, c.Sent.Bytes
	default:
		return f, false
	}
	if f.Outside == f.Client {
		f.Outside = netip.AddrPort{}
	}
	if f.Asked == f.Peer {
		f.Asked = netip.AddrPort{}
	}
	return f, f.Peer.Addr() != gateway
}
