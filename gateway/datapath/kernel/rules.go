package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// The rules about packets of units, which they know by the group of the interfaces:
//
//	unit ─▶ input    sender's address, or drop ─▶ the gateway
//	unit ─▶ forward  sender's address and count, or drop ─▶ MSS ─▶ WAN, other units
//	WAN  ─▶ forward  no sender of the LAN ─▶ MSS ─▶ unit
//	the gateway ─▶ output  count ─▶ unit
//
// What a unit has sent is counted by its interface, where aggregated packets are cut up; less what the gateway itself
// has sent, that is what was forwarded to the client.
const (
	setFrom = "from" // interface and address of each client: counters of what it sends
	setOwn  = "own"  // interface: counters of what the gateway sends
	spoofed = "spoofed"
	foreign = "foreign"

	beforeTracking = -500 // before connections are tracked and others' rules
	late           = 500
)

func tableOf(lan string) nftables.Table {
	return nftables.Table{Family: nftables.IPv4, Name: guard.Table(lan)}
}

// groupOf is the group of the interfaces of a LAN's subscribers: another for each LAN.
func groupOf(lan int) uint32 { return 0x67_00_00_00 | uint32(lan)&0xff_ff_ff }

// Counters of an address.
func fromCounter(a netip.Addr) string { return "from_" + a.String() }
func ownCounter(a netip.Addr) string  { return "own_" + a.String() }

// Keys of the maps.
func fromKey(index int, a netip.Addr) []byte { return append(native32(uint32(index)), a.AsSlice()...) }
func ownKey(index int) []byte                { return native32(uint32(index)) }

// Of TCP: the offset of its flags, bytes, and one of them.
const tcpFlags, tcpSYN = 13, 2

func concat(parts ...[]nftables.Expr) (all []nftables.Expr) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// baseRules are the rules without clients, in the place of others.
func (d *Datapath) baseRules() *nftables.Batch {
	b, t := new(nftables.Batch), d.table
	b.DeleteTable(t)
	b.AddTable(t)
	b.AddCounter(t, spoofed)
	b.AddCounter(t, foreign)
	b.AddSet(t, nftables.Set{
		Name: setFrom, KeyType: nftables.Concat(nftables.TypeInterface, nftables.TypeIPv4), KeyBytes: 8, Counters: true})
	b.AddSet(t, nftables.Set{Name: setOwn, KeyType: nftables.TypeInterface, KeyBytes: 4, Counters: true})
	d.forwardRules(b, t)
	d.localRules(b, t)
	return b
}

// install replaces the rules in one step, without clients.
func (d *Datapath) install() error {
	err := d.rules.Commit(d.baseRules())
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w (nftables with rt and exthdr are needed)", datapath.ErrNotSupported, err)
	}
	return err
}

// isSubscriberIf returns expressions that match packets whose interface, by META_IIFGROUP or OIFGROUP, is a
// subscriber's.
func (d *Datapath) isSubscriberIf(key uint32) []nftables.Expr {
	return []nftables.Expr{nftables.Meta(0, key), nftables.Equal(0, native32(d.group))}
}

// clientKey loads the key of setFrom.
var clientKey = []nftables.Expr{
	nftables.Meta(0, unix.NFT_META_IIF), nftables.Payload(1, nftables.NetworkHeader, nftables.SourceAt, 4)}

// lanSender continues with packets from an address of the LAN.
func (d *Datapath) lanSender() []nftables.Expr { return nftables.FromNetwork(d.net.Prefix()) }

func drop(counter string) []nftables.Expr {
	return []nftables.Expr{nftables.Count(counter), nftables.Drop()}
}

func (d *Datapath) forwardRules(b *nftables.Batch, t nftables.Table) {
	lower := concat([]nftables.Expr{
		nftables.Meta(0, unix.NFT_META_L4PROTO), nftables.Equal(0, []byte{unix.IPPROTO_TCP}),
		nftables.Payload(0, nftables.TransportHeader, tcpFlags, 1), nftables.And(0, []byte{tcpSYN}),
		nftables.Equal(0, []byte{tcpSYN}),
	}, nftables.LowerMSS(0))
	b.AddChain(t, "upwards", nil)
	b.AddRule(t, "upwards", lower...)
	b.AddRule(t, "upwards", concat(clientKey, []nftables.Expr{nftables.CountBy(setFrom, 0), nftables.Accept()})...)
	b.AddRule(t, "upwards", drop(spoofed)...)
	b.AddChain(t, "downwards", nil)
	b.AddRule(t, "downwards", concat(d.lanSender(), drop(foreign))...)
	b.AddRule(t, "downwards", lower...)
	b.AddChain(t, "forward", &nftables.Hook{Type: "filter", Number: unix.NF_INET_FORWARD, Priority: beforeTracking})
	b.AddRule(t, "forward", append(d.isSubscriberIf(unix.NFT_META_IIFGROUP), nftables.Goto("upwards"))...)
	b.AddRule(t, "forward", append(d.isSubscriberIf(unix.NFT_META_OIFGROUP), nftables.Goto("downwards"))...)
}

// localRules are about packets to and from the gateway itself.
func (d *Datapath) localRules(b *nftables.Batch, t nftables.Table) {
	const loopback = 1 // lo's index in every namespace
	b.AddChain(t, "client", nil)
	b.AddRule(t, "client", concat(clientKey, []nftables.Expr{nftables.InSet(setFrom, 0), nftables.Accept()})...)
	b.AddRule(t, "client", drop(spoofed)...)
	b.AddChain(t, "input", &nftables.Hook{Type: "filter", Number: unix.NF_INET_LOCAL_IN, Priority: beforeTracking})
	b.AddRule(t, "input", append(d.isSubscriberIf(unix.NFT_META_IIFGROUP), nftables.Goto("client"))...)
	b.AddRule(t, "input", concat([]nftables.Expr{nftables.Meta(0, unix.NFT_META_IIF), nftables.Differs(0, native32(
		loopback))}, d.lanSender(), drop(foreign))...)
	b.AddChain(t, "output", &nftables.Hook{Type: "filter", Number: unix.NF_INET_LOCAL_OUT, Priority: late})
	b.AddRule(t, "output",
		concat(d.isSubscriberIf(unix.NFT_META_OIFGROUP), []nftables.Expr{nftables.Meta(0, unix.NFT_META_OIF),
			nftables.CountBy(setOwn, 0)})...)
}

// addClientRules adds a client with new counters to the rules.
func addClientRules(b *nftables.Batch, t nftables.Table, index int, a netip.Addr) {
	b.AddCounter(t, fromCounter(a))
	b.AddCounter(t, ownCounter(a))
	b.AddElements(t, setFrom, nftables.Element{Key: fromKey(index, a), Counter: fromCounter(a)})
	b.AddElements(t, setOwn, nftables.Element{Key: ownKey(index), Counter: ownCounter(a)})
}

// bar keeps a client's packets from passing. Its counters stay.
func bar(b *nftables.Batch, t nftables.Table, index int, a netip.Addr) {
	b.DeleteElements(t, setFrom, nftables.Element{Key: fromKey(index, a)})
}

// removeBarred removes the rest of a client that bar has removed from forwarding: its own key and its counters.
func removeBarred(b *nftables.Batch, t nftables.Table, index int, a netip.Addr) {
	b.DeleteElements(t, setOwn, nftables.Element{Key: ownKey(index)})
	b.DeleteCounter(t, fromCounter(a))
	b.DeleteCounter(t, ownCounter(a))
}
