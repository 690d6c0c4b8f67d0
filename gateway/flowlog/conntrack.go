package flowlog

import (
	"net/netip"
	"slices"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
)

// trackedOf converts a connection for the data path.
func trackedOf(conn conntrack.Connection) datapath.Tracked {
	return datapath.Tracked{From: conn.Orig.From, To: conn.Orig.To, Protocol: conn.Orig.Protocol, Start: conn.Start}
}

// flowOf converts a connection to a client's flow. ok is false for connections without a client, and for those between
// a client and one of the gateway's addresses. client reports whether an address is a client's.
func flowOf(conn conntrack.Connection, client func(netip.Addr) bool, gateway ...netip.Addr) (flow Flow, ok bool) {
	flow = Flow{Protocol: conn.Orig.Protocol, ICMPType: conn.Orig.ICMPType, ICMPCode: conn.Orig.ICMPCode,
		Start: conn.Start, End: conn.Stop}
	switch {
	case client(conn.Orig.From.Addr()):
		flow.Client, flow.Peer, flow.Outside, flow.Asked = conn.Orig.From, conn.Reply.From, conn.Reply.To, conn.Orig.To
		flow.UpPkts, flow.UpBytes, flow.DownPkts, flow.DownBytes = conn.Sent.Packets, conn.Sent.Bytes, conn.Got.Packets,
			conn.Got.Bytes
	case client(conn.Reply.From.Addr()):
		flow.Client, flow.Peer, flow.Outside, flow.Asked, flow.Inbound = conn.Reply.From, conn.Orig.From, conn.Orig.To,
			conn.Reply.To, true
		flow.UpPkts, flow.UpBytes, flow.DownPkts, flow.DownBytes = conn.Got.Packets, conn.Got.Bytes, conn.Sent.Packets,
			conn.Sent.Bytes
	default:
		return flow, false
	}
	if flow.Outside == flow.Client {
		flow.Outside = netip.AddrPort{}
	}
	if flow.Asked == flow.Peer {
		flow.Asked = netip.AddrPort{}
	}
	return flow, !slices.Contains(gateway, flow.Peer.Addr())
}
