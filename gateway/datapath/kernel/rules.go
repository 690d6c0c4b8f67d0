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

// The nftables rules of subscribers. Each has a PPP interface of its own, which the kernel calls a unit. All units of a
// LAN are in one group of interfaces, by which the rules know them:
//
//	unit ─▶ input    sender's address, or drop ─▶ the gateway
//	unit ─▶ forward  sender's address and count, or drop ─▶ MSS ─▶ WAN, other units
//	WAN  ─▶ forward  no sender of the LAN ─▶ MSS ─▶ unit
//	the gateway ─▶ output  count ─▶ unit
//
// What subscribers send is counted by the elements of setFrom. No rule counts what is forwarded to them: it is what
// their interfaces have sent, where aggregated packets are cut up, less what the gateway itself sent there (setOwn).
const (
	setFrom = "from" // interface and address of each client: counters of what it sends
	setOwn  = "own"  // interface: counters of what the gateway sends
	spoofed = "spoofed"
	foreign = "foreign"

	beforeTracking = -500 // before connections are tracked and others' rules
	late           = 500

	loopback = 1 // lo's index in every namespace
)

func tableOf(lan string) nftables.Table {
	return nftables.Table{Family: nftables.IPv4, Name: guard.Table(lan)}
}

// groupOf is the group of the interfaces of a LAN's subscribers: another for each LAN.
func groupOf(lan int) uint32 { return 0x67_00_00_00 | uint32(lan)&0xff_ff_ff }

// Counters of a client, by its IPv4 address.
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

// baseRules makes the table with its rules, but no client, in the place of the table that is there.
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
	b.DeleteTable(table6Of(d.net.Interface)) // of a former daemon, whose clients may have had IPv6
	if d.has6() {
		d.baseRules6(b)
	}
	return b
}

// install replaces the rules in one step, without clients.
func (d *Datapath) install() error {
	b := d.baseRules()
	if d.has6() {
		d.forgedRules(b)
	}
	err := d.rules.Commit(b)
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

// dropForeign drops packets that continue with expressions and are from an address that clients have: the LAN's, or
// those outside it.
func (d *Datapath) dropForeign(b *nftables.Batch, chain string, from []nftables.Expr) {
	for _, network := range append([]netip.Prefix{d.net.Prefix()}, d.net.Outside...) {
		b.AddRule(d.table, chain, concat(from, nftables.FromNetwork(network), drop(foreign))...)
	}
}

func drop(counter string) []nftables.Expr {
	return []nftables.Expr{nftables.Count(counter), nftables.Drop()}
}

// lowerMSS is a rule that has TCP's MSS fit into the route's MTU.
var lowerMSS = concat([]nftables.Expr{
	nftables.Meta(0, unix.NFT_META_L4PROTO), nftables.Equal(0, []byte{unix.IPPROTO_TCP}),
	nftables.Payload(0, nftables.TransportHeader, tcpFlags, 1), nftables.And(0, []byte{tcpSYN}),
	nftables.Equal(0, []byte{tcpSYN}),
}, nftables.LowerMSS(0))

func (d *Datapath) forwardRules(b *nftables.Batch, t nftables.Table) {
	b.AddChain(t, "upwards", nil)
	b.AddRule(t, "upwards", lowerMSS...)
	b.AddRule(t, "upwards", concat(clientKey, []nftables.Expr{nftables.CountBy(setFrom, 0), nftables.Accept()})...)
	b.AddRule(t, "upwards", drop(spoofed)...)
	b.AddChain(t, "downwards", nil)
	d.dropForeign(b, "downwards", nil)
	b.AddRule(t, "downwards", lowerMSS...)
	b.AddChain(t, "forward", &nftables.Hook{Type: "filter", Number: unix.NF_INET_FORWARD, Priority: beforeTracking})
	b.AddRule(t, "forward", append(d.isSubscriberIf(unix.NFT_META_IIFGROUP), nftables.Goto("upwards"))...)
	b.AddRule(t, "forward", append(d.isSubscriberIf(unix.NFT_META_OIFGROUP), nftables.Goto("downwards"))...)
}

// localRules are about packets to and from the gateway itself.
func (d *Datapath) localRules(b *nftables.Batch, t nftables.Table) {
	b.AddChain(t, "client", nil)
	b.AddRule(t, "client", concat(clientKey, []nftables.Expr{nftables.InSet(setFrom, 0), nftables.Accept()})...)
	b.AddRule(t, "client", drop(spoofed)...)
	b.AddChain(t, "input", &nftables.Hook{Type: "filter", Number: unix.NF_INET_LOCAL_IN, Priority: beforeTracking})
	b.AddRule(t, "input", append(d.isSubscriberIf(unix.NFT_META_IIFGROUP), nftables.Goto("client"))...)
	d.dropForeign(b, "input", []nftables.Expr{
		nftables.Meta(0, unix.NFT_META_IIF), nftables.Differs(0, native32(loopback))})
	d.outputRules(b, t)
}

// outputRules count what the gateway itself sends to clients.
func (d *Datapath) outputRules(b *nftables.Batch, t nftables.Table) {
	b.AddChain(t, "output", &nftables.Hook{Type: "filter", Number: unix.NF_INET_LOCAL_OUT, Priority: late})
	b.AddRule(t, "output",
		concat(d.isSubscriberIf(unix.NFT_META_OIFGROUP), []nftables.Expr{nftables.Meta(0, unix.NFT_META_OIF),
			nftables.CountBy(setOwn, 0)})...)
}

// holdings are what a client's rules are about.
type holdings struct {
	index    int // of its interface
	addr     netip.Addr
	networks []netip.Prefix // of IPv6
}

// senders are the elements of setFrom in a table.
func (h holdings) senders(t nftables.Table) []nftables.Element {
	if t.Family == nftables.IPv6 {
		return fromElements(h.index, h.networks, fromCounter(h.addr))
	}
	return []nftables.Element{{Key: fromKey(h.index, h.addr), Counter: fromCounter(h.addr)}}
}

// addClientRules adds a client with new counters to the rules.
func (d *Datapath) addClientRules(b *nftables.Batch, h holdings) {
	for _, t := range d.ownTables() {
		b.AddCounter(t, fromCounter(h.addr))
		b.AddCounter(t, ownCounter(h.addr))
		b.AddElements(t, setFrom, h.senders(t)...)
		b.AddElements(t, setOwn, nftables.Element{Key: ownKey(h.index), Counter: ownCounter(h.addr)})
	}
}

// barRules keeps a client's packets from passing. Its counters stay.
func (d *Datapath) barRules(b *nftables.Batch, h holdings) {
	for _, t := range d.ownTables() {
		b.DeleteElements(t, setFrom, h.senders(t)...)
	}
}

// removeBarred removes the rest of a client that barRules has removed from forwarding: its own key and its counters.
func (d *Datapath) removeBarred(b *nftables.Batch, h holdings) {
	for _, t := range d.ownTables() {
		b.DeleteElements(t, setOwn, nftables.Element{Key: ownKey(h.index)})
		b.DeleteCounter(t, fromCounter(h.addr))
		b.DeleteCounter(t, ownCounter(h.addr))
	}
}
