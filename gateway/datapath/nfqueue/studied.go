package nfqueue

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue/nftables"
)

// studiedRules queue what clients send before it is routed, and what is forwarded to
// them behind the stack, where NAT has given it their addresses back. The portal gets
// its connections by NAT, so that the machine keeps track of every connection.
func (d *Datapath) studiedRules(b *nftables.Batch, t nftables.Table) {
	d.knownSet(b, t)
	b.AddChain(t, "prerouting", &nftables.Hook{Type: "filter", Number: unix.NF_INET_PRE_ROUTING, Priority: priorityRaw})
	b.AddRule(t, "prerouting", append(d.notFrom(), nftables.Accept())...)
	// What came for many stations is not forwarded (RFC 1812, 5.3.4), and so not billed.
	firstMulticast := []byte{224, 0, 0, 0}
	b.AddRule(t, "prerouting", nftables.Meta(0, unix.NFT_META_PKTTYPE), nftables.Differs(0, []byte{unix.PACKET_HOST}),
		nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize), nftables.Differs(0, d.cfg.Gateway.AsSlice()),
		nftables.Below(0, firstMulticast), nftables.Drop())
	b.AddRule(t, "prerouting", append(marked(markPortal), nftables.Load(0, zonePortal), nftables.SetZone(0), nftables.Accept())...)
	b.AddRule(t, "prerouting", append(marked(markReject), nftables.Goto("reject"))...)
	b.AddRule(t, "prerouting", append(loadPair(0), nftables.In(setKnown, 0),
		nftables.Load(0, binary.NativeEndian.AppendUint32(nil, markKnown)), nftables.SetMark(0), nftables.Goto("ask"))...)
	b.AddRule(t, "prerouting", nftables.Goto("ask"))

	b.AddChain(t, "forward", &nftables.Hook{Type: "filter", Number: unix.NF_INET_FORWARD, Priority: priorityMangle})
	b.AddRule(t, "forward", append(d.notTo(), nftables.Accept())...)
	b.AddRule(t, "forward", nftables.Goto("ask"))
	if len(d.cfg.PortalPorts) > 0 {
		d.natRules(b, t)
	}
}

// zonePortal is the zone of strangers' connections to the portal. They are told by it,
// as others' rules may mark packets anew before NAT; and connections from before, which
// go elsewhere, are others than these.
var zonePortal = binary.NativeEndian.AppendUint16(nil, markPortal>>16)

// natRules bring strangers' HTTP to the portal. NAT is for connections: what belongs to
// none, in the eyes of the kernel, is rejected once it has looked for one.
func (d *Datapath) natRules(b *nftables.Batch, t nftables.Table) {
	b.AddChain(t, "tracked", &nftables.Hook{Type: "filter", Number: unix.NF_INET_PRE_ROUTING, Priority: priorityTracking + 1})
	none := binary.NativeEndian.AppendUint32(nil, nftables.Invalid|nftables.Untracked)
	b.AddRule(t, "tracked", append(marked(markPortal), nftables.State(0), nftables.And(0, none), nftables.Differs(0, make([]byte, len(none))), nftables.Goto("reject"))...)
	b.AddChain(t, "nat", &nftables.Hook{Type: "nat", Number: unix.NF_INET_PRE_ROUTING, Priority: priorityNAT})
	b.AddRule(t, "nat", nftables.Zone(0), nftables.Equal(0, zonePortal),
		nftables.Load(0, d.cfg.Gateway.AsSlice()), nftables.Load(1, port(d.cfg.PortalPorts[0])), nftables.Destination(0, 1))
}
