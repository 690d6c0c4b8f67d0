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
	b.AddRule(t, "prerouting", append(marked(markPortal), nftables.Accept())...)
	b.AddRule(t, "prerouting", append(marked(markReject), nftables.Goto("reject"))...)
	b.AddRule(t, "prerouting", append(loadPair(0), nftables.In(setKnown, 0),
		nftables.Load(0, binary.NativeEndian.AppendUint32(nil, markKnown)), nftables.SetMark(0), nftables.Goto("ask"))...)
	b.AddRule(t, "prerouting", nftables.Goto("ask"))

	b.AddChain(t, "forward", &nftables.Hook{Type: "filter", Number: unix.NF_INET_FORWARD, Priority: priorityMangle})
	b.AddRule(t, "forward", append(marked(markPortal), nftables.Goto("reject"))...)
	b.AddRule(t, "forward", append(d.notTo(), nftables.Accept())...)
	b.AddRule(t, "forward", nftables.Goto("ask"))
	if len(d.cfg.PortalPorts) > 0 {
		d.natRules(b, t)
	}
}

// natRules bring strangers' HTTP to the portal. NAT is for connections: of what
// belongs to none, in the eyes of the kernel, or to one from before that goes
// elsewhere, nothing gets anywhere.
func (d *Datapath) natRules(b *nftables.Batch, t nftables.Table) {
	gateway, portal := d.cfg.Gateway.AsSlice(), port(d.cfg.PortalPorts[0])
	b.AddChain(t, "nat", &nftables.Hook{Type: "nat", Number: unix.NF_INET_PRE_ROUTING, Priority: priorityNAT})
	b.AddRule(t, "nat", append(marked(markPortal), nftables.Load(0, gateway), nftables.Load(1, portal), nftables.Destination(0, 1))...)
	b.AddChain(t, "input", &nftables.Hook{Type: "filter", Number: unix.NF_INET_LOCAL_IN, Priority: priorityMangle})
	b.AddRule(t, "input", append(marked(markPortal),
		nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize), nftables.Equal(0, gateway),
		nftables.Payload(0, nftables.TransportHeader, receiverPort, portSize), nftables.Equal(0, portal), nftables.Accept())...)
	b.AddRule(t, "input", append(marked(markPortal), nftables.Goto("reject"))...)
}
