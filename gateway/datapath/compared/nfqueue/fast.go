// The nftables rules of the fast mode, which pass packets of admitted clients without the daemon. passed.go enters the
// clients.

package nfqueue

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// Sets and maps of the rules that pass packets without the daemon.
const (
	setUp     = "up"     // address and MAC address of each client that the kernel may pass → counter of its packets
	setDown   = "down"   // address of such a client → counter of the packets to it
	setGate   = "gate"   // incoming and outgoing interface → chain "up" or "down"; empty unless the daemon runs
	setSought = "sought" // address and port of an unauthenticated client → the original destination of its HTTP
)

// soughtLife is how long a client's connection to the portal may be silent.
const soughtLife = 2 * time.Minute

// soughtMax bounds the records of all unauthenticated clients, about 100 bytes each.
const soughtMax = 1 << 18

// fastRules handle packets at one hook, after routing, because each hook that a packet meets costs as much as
// everything done there. Packets for this machine itself take another path and do not delay the rest. No rule uses
// connection states: tracking connections costs more than everything else here.
func (d *Datapath) fastRules(b *nftables.Batch, t nftables.Table) {
	b.AddChain(t, "forward", &nftables.Hook{Type: "filter", Number: unix.NF_INET_FORWARD, Priority: priorityMangle})
	d.passRules(b, t)
	b.AddChain(t, "of_lan", nil)
	b.AddRule(t, "forward", append(append(d.notFrom(), d.notTo()...), nftables.Accept())...)
	b.AddRule(t, "forward", nftables.Goto("of_lan"))
	b.AddChain(t, "input", &nftables.Hook{Type: "filter", Number: unix.NF_INET_LOCAL_IN, Priority: priorityMangle})
	b.AddRule(t, "input", append(d.notFrom(), nftables.Accept())...)
	if len(d.cfg.PortalPorts) > 0 {
		d.captureRules(b, t)
	}
	b.AddRule(t, "input", nftables.Goto("of_lan"))
	if d.fast.unrouted {
		d.unroutedRules(b, t)
	}
	b.AddRule(t, "of_lan", append(marked(markReject), nftables.Goto("reject"))...)
	b.AddRule(t, "of_lan", nftables.Goto("ask"))
}

// passRules pass packets of clients in the maps while the gate is open.
func (d *Datapath) passRules(b *nftables.Batch, t nftables.Table) {
	b.AddSet(t, nftables.Set{Name: setUp, KeyType: nftables.Concat(nftables.TypeIPv4, nftables.TypeEthernet), KeyBytes: 12,
		Size: d.size(), Counters: true})
	b.AddSet(t, nftables.Set{Name: setDown, KeyType: nftables.TypeIPv4, KeyBytes: 4, Size: d.size(), Counters: true})
	b.AddSet(t, nftables.Set{Name: setGate, KeyType: nftables.Concat(nftables.TypeInterface, nftables.TypeInterface),
		KeyBytes: 8, Verdicts: true, Timeouts: true})
	b.AddChain(t, "up", nil)
	b.AddRule(t, "up", append(loadPair(0), nftables.CountBy(setUp, 0), nftables.Accept())...)
	// Packets from the WAN with a client's source address are queued.
	mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-d.net.Address.Bits()))
	b.AddChain(t, "down", nil)
	b.AddRule(t, "down",
		nftables.Payload(0, nftables.NetworkHeader, sender, addressSize), nftables.And(0, mask), nftables.Differs(0,
			d.net.Prefix().Addr().AsSlice()),
		nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize), nftables.CountBy(setDown, 0), nftables.Accept())
	b.AddRule(t, "forward", nftables.Meta(0, unix.NFT_META_IIF), nftables.Meta(1, unix.NFT_META_OIF),
		nftables.Decide(setGate, 0))
}

// captureRules give the portal's answers to unauthenticated clients the requested source address: see capture.
func (d *Datapath) captureRules(b *nftables.Batch, t nftables.Table) {
	const (
		ipSum, tcpSum = 10, 16
		http          = 80
	)
	gateway, portal := d.net.Gateway().AsSlice(), port(d.cfg.PortalPorts[0])
	b.AddSet(t, nftables.Set{
		Name: setSought, KeyType: nftables.Concat(nftables.TypeIPv4, nftables.TypePort), KeyBytes: 8,
		DataType: nftables.TypeIPv4,
		Size:     soughtMax, Timeouts: true, Dynamic: true,
	})
	b.AddChain(t, "portal", nil)
	// A client may have used the port for another destination before: a record is not changed while it exists.
	b.AddRule(t, "portal", append(opens(),
		nftables.Payload(0, nftables.NetworkHeader, sender, addressSize),
		nftables.Payload(1, nftables.TransportHeader, senderPort, portSize),
		nftables.Delete(setSought, 0))...)
	b.AddRule(t, "portal",
		nftables.Payload(0, nftables.NetworkHeader, sender, addressSize),
		nftables.Payload(1, nftables.TransportHeader, senderPort, portSize),
		nftables.Payload(2, nftables.NetworkHeader, receiver, addressSize), nftables.Store(setSought, 0, 2, soughtLife))
	b.AddRule(t, "portal", nftables.Drop()) // its copy is sent instead
	b.AddRule(t, "of_lan", append(marked(markPortal), nftables.Goto("portal"))...)

	ofPortal := func(ip, tcp uint32) []nftables.Expr {
		return []nftables.Expr{
			nftables.Meta(0, unix.NFT_META_L4PROTO), nftables.Equal(0, []byte{unix.IPPROTO_TCP}),
			nftables.Payload(0, nftables.NetworkHeader, ip, addressSize), nftables.Equal(0, gateway),
			nftables.Payload(0, nftables.TransportHeader, tcp, portSize), nftables.Equal(0, portal),
		}
	}
	// The client may now use the same port for the portal itself.
	b.AddRule(t, "input", append(ofPortal(receiver, receiverPort),
		nftables.Payload(0, nftables.NetworkHeader, sender, addressSize),
		nftables.Payload(1, nftables.TransportHeader, senderPort, portSize),
		nftables.Delete(setSought, 0))...)
	b.AddChain(t, "output", &nftables.Hook{Type: "filter", Number: unix.NF_INET_LOCAL_OUT, Priority: priorityRaw})
	b.AddRule(t, "output", append(ofPortal(sender, senderPort),
		nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize),
		nftables.Payload(1, nftables.TransportHeader, receiverPort, portSize),
		nftables.Lookup(setSought, 0, 2),
		nftables.Write(2, nftables.NetworkHeader, sender, addressSize, nftables.Sum{Offset: ipSum, Pseudo: true}),
		nftables.Load(2, port(http)),
		nftables.Write(2, nftables.TransportHeader, senderPort, portSize, nftables.Sum{Offset: tcpSum}))...)
}
