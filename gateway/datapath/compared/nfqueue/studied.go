package nfqueue

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// studiedRules queue clients' packets before they are routed, and packets to clients after the stack, where NAT has
// restored their addresses. The portal gets its connections by NAT, so the machine tracks every connection.
func (d *Datapath) studiedRules(b *nftables.Batch, t nftables.Table) {
	d.knownSet(b, t)
	b.AddChain(t, "prerouting", &nftables.Hook{Type: "filter", Number: unix.NF_INET_PRE_ROUTING, Priority: priorityRaw})
	b.AddRule(t, "prerouting", append(d.notFrom(), nftables.Accept())...)
	// Multicast and broadcast are not forwarded (RFC 1812, 5.3.4), and so not counted.
	firstMulticast := []byte{224, 0, 0, 0}
	b.AddRule(t, "prerouting", nftables.Meta(0, unix.NFT_META_PKTTYPE), nftables.Differs(0, []byte{unix.PACKET_HOST}),
		nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize), nftables.Differs(0, d.net.Gateway().AsSlice()),
		nftables.Less(0, firstMulticast), nftables.Drop())
	b.AddRule(t, "prerouting",
		append(marked(markPortal), nftables.Load(0, zonePortal), nftables.SetZone(0), nftables.Accept())...)
	b.AddRule(t, "prerouting", append(marked(markReject), nftables.Goto("reject"))...)
	b.AddRule(t, "prerouting", append(loadPair(0), nftables.InSet(setKnown, 0),
		nftables.Load(0, binary.NativeEndian.AppendUint32(nil, markKnown)), nftables.SetMark(0), nftables.Goto("ask"))...)
	b.AddRule(t, "prerouting", nftables.Goto("ask"))

	b.AddChain(t, "forward", &nftables.Hook{Type: "filter", Number: unix.NF_INET_FORWARD, Priority: priorityMangle})
	b.AddRule(t, "forward", append(d.notTo(), nftables.Accept())...)
	b.AddRule(t, "forward", nftables.Goto("ask"))
	if len(d.cfg.PortalPorts) > 0 {
		d.natRules(b, t)
	}
}

// zonePortal is the conntrack zone of unauthenticated clients' connections to the portal. The zone identifies them,
// because rules of others may change marks before NAT, and keeps them apart from earlier connections with the same
// ports to other destinations.
var zonePortal = binary.NativeEndian.AppendUint16(nil, markPortal>>16)

// natRules bring unauthenticated clients' HTTP to the portal. NAT works on connections: packets that the kernel assigns
// to none are rejected after the lookup.
func (d *Datapath) natRules(b *nftables.Batch, t nftables.Table) {
	b.AddChain(t, "tracked",
		&nftables.Hook{Type: "filter", Number: unix.NF_INET_PRE_ROUTING, Priority: priorityTracking + 1})
	none := binary.NativeEndian.AppendUint32(nil, nftables.Invalid|nftables.Untracked)
	b.AddRule(t, "tracked", append(marked(markPortal), nftables.State(0), nftables.And(0, none), nftables.Differs(0, make(
		[]byte, len(none))), nftables.Goto("reject"))...)
	b.AddChain(t, "nat", &nftables.Hook{Type: "nat", Number: unix.NF_INET_PRE_ROUTING, Priority: priorityNAT})
	b.AddRule(t, "nat", nftables.Zone(0), nftables.Equal(0, zonePortal),
		nftables.Load(0, d.net.Gateway().AsSlice()), nftables.Load(1,
			port(d.cfg.PortalPorts[0])),
		nftables.Destination(nftables.Span{Addr: nftables.RegisterAt(0), Port: nftables.RegisterAt(1)}))
}
