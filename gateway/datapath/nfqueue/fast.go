package nfqueue

import (
	"encoding/binary"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue/nftables"
)

// Sets of the rules that pass packets without asking.
const (
	setUp     = "up"       // by address and MAC of clients that need not be asked about: what counts what they send
	setDown   = "down"     // by their addresses: what counts what comes for them
	gateIn    = "gate_in"  // the LAN's interface, while the daemon lives: to chain "up"
	gateOut   = "gate_out" // the same, to chain "down"
	setSought = "sought"   // by address and port of a stranger: where its HTTP was going
)

// soughtLife is how long a stranger's connection to the portal may be silent.
const soughtLife = 2 * time.Minute

// passRules pass packets of clients in the maps, while the gates are open. No rule
// asks for the state of connections: tracking them costs more than all of these. The
// other side is known by its index, which costs less than a name: should it come
// again as another, the rules that follow know the LAN by its name.
func (d *Datapath) passRules(b *nftables.Batch, t nftables.Table) {
	b.AddSet(t, nftables.Set{Name: setUp, KeyType: nftables.Concat(nftables.TypeIPv4, nftables.TypeEthernet), KeyBytes: 12, Size: d.size(), Counters: true})
	b.AddSet(t, nftables.Set{Name: setDown, KeyType: nftables.TypeIPv4, KeyBytes: 4, Size: d.size(), Counters: true})
	for _, gate := range []string{gateIn, gateOut} {
		b.AddSet(t, nftables.Set{Name: gate, KeyType: nftables.TypeInterface, KeyBytes: 4, Verdicts: true, Timeouts: true})
	}
	// What is for the gateway itself, or for many, is nobody's traffic.
	b.AddChain(t, "up", nil)
	b.AddRule(t, "up", slices.Concat(
		[]nftables.Expr{
			nftables.Meta(0, unix.NFT_META_PKTTYPE), nftables.Equal(0, []byte{unix.PACKET_HOST}),
			nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize),
			nftables.Differs(0, d.cfg.Gateway.AsSlice()), nftables.Below(0, firstMulticast),
		}, loadPair(1), []nftables.Expr{nftables.CountBy(setUp, 1), nftables.Accept()})...)
	// What another client sends is asked about, and so is what pretends to be one's.
	mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-d.cfg.Prefix.Bits()))
	b.AddChain(t, "down", nil)
	b.AddRule(t, "down",
		nftables.Payload(0, nftables.NetworkHeader, sender, addressSize), nftables.And(0, mask), nftables.Differs(0, d.cfg.Prefix.Addr().AsSlice()),
		nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize), nftables.CountBy(setDown, 0), nftables.Accept())
	for chain, key := range map[string]uint32{"prerouting": unix.NFT_META_IIF, "forward": unix.NFT_META_OIF} {
		b.AddRule(t, chain, nftables.Meta(0, key), nftables.Equal(0, indexKey(d.wan)), nftables.Accept())
	}
	b.AddRule(t, "prerouting", nftables.Meta(0, unix.NFT_META_IIF), nftables.Decide(gateIn, 0))
	b.AddRule(t, "forward", nftables.Meta(0, unix.NFT_META_OIF), nftables.Decide(gateOut, 0))
}

// captureRules give the portal strangers' HTTP and its answers the addresses they
// are expected from, packet by packet: NAT without connections.
func (d *Datapath) captureRules(b *nftables.Batch, t nftables.Table) {
	const (
		ipSum, tcpSum = 10, 16
		http          = 80
	)
	gateway, portal := d.cfg.Gateway.AsSlice(), port(d.cfg.PortalPorts[0])
	b.AddSet(t, nftables.Set{
		Name: setSought, KeyType: nftables.Concat(nftables.TypeIPv4, nftables.TypePort), KeyBytes: 8, DataType: nftables.TypeIPv4,
		Size: 65536, Timeouts: true, Dynamic: true,
	})
	b.AddRule(t, "portal",
		nftables.Payload(0, nftables.NetworkHeader, sender, addressSize), nftables.Payload(1, nftables.TransportHeader, senderPort, portSize),
		nftables.Payload(2, nftables.NetworkHeader, receiver, addressSize), nftables.Keep(setSought, 0, 2, soughtLife),
		nftables.Load(3, gateway), nftables.Write(3, nftables.NetworkHeader, receiver, addressSize, nftables.Sum{Offset: ipSum, Pseudo: true}),
		nftables.Load(3, portal), nftables.Write(3, nftables.TransportHeader, receiverPort, portSize, nftables.Sum{Offset: tcpSum}),
		nftables.Accept())
	b.AddRule(t, "portal", nftables.Drop()) // no room to keep where it was going

	toPortal := func(ip, tcp uint32) []nftables.Expr {
		return []nftables.Expr{
			nftables.Meta(0, unix.NFT_META_L4PROTO), nftables.Equal(0, []byte{unix.IPPROTO_TCP}),
			nftables.Payload(0, nftables.NetworkHeader, ip, addressSize), nftables.Equal(0, gateway),
			nftables.Payload(0, nftables.TransportHeader, tcp, portSize), nftables.Equal(0, portal),
		}
	}
	// The same port of the client may now be for the portal itself.
	b.AddRule(t, "prerouting", append(toPortal(receiver, receiverPort),
		nftables.Payload(0, nftables.NetworkHeader, sender, addressSize), nftables.Payload(1, nftables.TransportHeader, senderPort, portSize),
		nftables.Forget(setSought, 0))...)
	b.AddChain(t, "output", &nftables.Hook{Type: "filter", Number: unix.NF_INET_LOCAL_OUT, Priority: priorityRaw})
	b.AddRule(t, "output", append(toPortal(sender, senderPort),
		nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize), nftables.Payload(1, nftables.TransportHeader, receiverPort, portSize),
		nftables.Find(setSought, 0, 2),
		nftables.Write(2, nftables.NetworkHeader, sender, addressSize, nftables.Sum{Offset: ipSum, Pseudo: true}),
		nftables.Load(2, port(http)), nftables.Write(2, nftables.TransportHeader, senderPort, portSize, nftables.Sum{Offset: tcpSum}))...)
}
