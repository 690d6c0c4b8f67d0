package kernel

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// The rules for IPv6 are a table of their own, beside that of IPv4 and like it:
//
//	unit ─▶ input    sender's network, or drop ─▶ the gateway
//	unit ─▶ forward  sender's network, note a new address, count, or drop ─▶ MSS ─▶ WAN, other units
//	WAN  ─▶ forward  no sender of the LAN ─▶ of a client's connection, or inbound6, or drop ─▶ MSS ─▶ unit
//	the gateway ─▶ output  count ─▶ unit
//
// The set of senders has networks: all addresses of a network are its client's. What a client sends from a link-local
// address is of its session's link alone: the daemon hears it (hear.go), and the rules drop it.
const (
	setSeen  = "seen"  // interface and address: from which clients have lately sent
	setPaces = "paces" // interface: how many addresses its client may still have noted
	unasked  = "unasked"
	local    = "local"

	chainForged = "forged" // drops packets from addresses of the LAN that come from elsewhere

	keyLen6 = 4 + 16 // interface and address, bytes
)

// Each client has addresses noted, a second and at once. An address is forgotten after seenFor, and noted again.
const (
	notedEach   = 1
	notedAtOnce = 16
	seenFor     = time.Minute
	mostSeen    = 1 << 16
)

func table6Of(lan string) nftables.Table {
	return nftables.Table{Family: nftables.IPv6, Name: guard.Table(lan)}
}

// has6 reports whether clients have IPv6.
func (d *Datapath) has6() bool { return d.net.Address6.IsValid() }

// ownTables are the tables of the clients' rules: that of IPv4, then that of IPv6 if clients have it.
func (d *Datapath) ownTables() []nftables.Table {
	if d.has6() {
		return []nftables.Table{d.table, table6Of(d.net.Interface)}
	}
	return []nftables.Table{d.table}
}

// The counters of dropped packets in each table, with the outcome that Packets has them as.
var (
	dropped4 = map[string]string{spoofed: "wrong-mac", foreign: "foreign-source"}
	dropped6 = map[string]string{spoofed: "wrong-mac", foreign: "foreign-source", unasked: "unasked", local: "local"}
)

func droppedIn(t nftables.Table) map[string]string {
	if t.Family == nftables.IPv6 {
		return dropped6
	}
	return dropped4
}

// clientKey6 loads the key of setFrom, and of setSeen.
var clientKey6 = []nftables.Expr{
	nftables.Meta(0, unix.NFT_META_IIF), nftables.Payload(1, nftables.NetworkHeader, nftables.Source6At, 16)}

// fromElements are the elements of setFrom for a client's networks.
func fromElements(index int, networks []netip.Prefix, counter string) (all []nftables.Element) {
	for _, n := range networks {
		last := n.Addr().As16()
		for i, m := range net.CIDRMask(n.Bits(), 128) {
			last[i] |= ^m
		}
		all = append(all, nftables.Element{Key: fromKey(index, n.Addr()), End: fromKey(index, netip.AddrFrom16(last)),
			Counter: counter})
	}
	return all
}

// baseRules6 adds the rules without clients to a batch.
func (d *Datapath) baseRules6(b *nftables.Batch) {
	t := table6Of(d.net.Interface)
	b.AddTable(t)
	for _, counter := range slices.Sorted(maps.Keys(dropped6)) { // in one order: batches are compared
		b.AddCounter(t, counter)
	}
	key := nftables.Concat(nftables.TypeInterface, nftables.TypeIPv6)
	b.AddSet(t, nftables.Set{Name: setFrom, KeyType: key, KeyBytes: keyLen6, Counters: true, Fields: []int{4, 16}})
	b.AddSet(t, nftables.Set{Name: setOwn, KeyType: nftables.TypeInterface, KeyBytes: 4, Counters: true})
	b.AddSet(t, nftables.Set{Name: setSeen, KeyType: key, KeyBytes: keyLen6, Dynamic: true, Timeouts: true,
		Size: mostSeen})
	b.AddSet(t, nftables.Set{Name: setPaces, KeyType: nftables.TypeInterface, KeyBytes: 4, Dynamic: true, Timeouts: true,
		Size: mostSeen})
	b.AddChain(t, chainForged, nil)
	d.forwardRules6(b, t)
	d.localRules6(b, t)
}

func (d *Datapath) forwardRules6(b *nftables.Batch, t nftables.Table) {
	b.AddChain(t, "upwards", nil)
	b.AddRule(t, "upwards", lowerMSS...)
	b.AddRule(t, "upwards", concat(clientKey6, []nftables.Expr{nftables.NotIn(setSeen, 0), nftables.InSet(setFrom, 0),
		nftables.Limit(setPaces, 0, notedEach, notedAtOnce, seenFor), nftables.Add(setSeen, 0, seenFor)})...)
	b.AddRule(t, "upwards", concat(clientKey6, []nftables.Expr{nftables.CountBy(setFrom, 0), nftables.Accept()})...)
	b.AddRule(t, "upwards", drop(spoofed)...)

	b.AddChain(t, "downwards", nil)
	b.AddRule(t, "downwards", nftables.Jump(chainForged))
	b.AddRule(t, "downwards", lowerMSS...)
	b.AddRule(t, "downwards", nftables.State(0), nftables.And(0, native32(nftables.Established|nftables.Related)),
		nftables.Differs(0, native32(0)), nftables.Accept())
	for _, p := range d.net.Inbound6 {
		b.AddRule(t, "downwards", append(nftables.FromNetwork(p.Masked()), nftables.Accept())...)
	}
	b.AddRule(t, "downwards", drop(unasked)...)

	b.AddChain(t, "forward", &nftables.Hook{Type: "filter", Number: unix.NF_INET_FORWARD, Priority: beforeTracking})
	b.AddRule(t, "forward", append(d.isSubscriberIf(unix.NFT_META_IIFGROUP), nftables.Goto("upwards"))...)
	b.AddRule(t, "forward", append(d.isSubscriberIf(unix.NFT_META_OIFGROUP), nftables.Goto("downwards"))...)
}

// linkLocal6 are the addresses of each link, and none: what a host without an address sends from.
var linkLocal6 = []netip.Prefix{netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("::/128")}

func (d *Datapath) localRules6(b *nftables.Batch, t nftables.Table) {
	b.AddChain(t, "client", nil)
	b.AddRule(t, "client", concat(clientKey6, []nftables.Expr{nftables.InSet(setFrom, 0), nftables.Accept()})...)
	for _, p := range linkLocal6 {
		b.AddRule(t, "client", concat(nftables.FromNetwork(p), drop(local))...)
	}
	b.AddRule(t, "client", drop(spoofed)...)
	b.AddChain(t, "input", &nftables.Hook{Type: "filter", Number: unix.NF_INET_LOCAL_IN, Priority: beforeTracking})
	b.AddRule(t, "input", append(d.isSubscriberIf(unix.NFT_META_IIFGROUP), nftables.Goto("client"))...)
	b.AddRule(t, "input", nftables.Meta(0, unix.NFT_META_IIF), nftables.Differs(0, native32(loopback)),
		nftables.Jump(chainForged))
	d.outputRules(b, t)
}

// forgedRules replaces the rules about packets from addresses of the LAN that come from elsewhere, which follow the
// provider's prefixes.
func (d *Datapath) forgedRules(b *nftables.Batch) {
	t := table6Of(d.net.Interface)
	b.ClearChain(t, chainForged)
	for _, p := range d.prefixes6 {
		b.AddRule(t, chainForged, concat(nftables.FromNetwork(p), drop(foreign))...)
	}
	for _, p := range d.pools6 {
		b.AddRule(t, chainForged, concat(nftables.FromNetwork(p), drop(foreign))...)
	}
}

// setForged notes prefixes, and has the rules follow them.
func (d *Datapath) setForged(note func()) error {
	if !d.has6() {
		return datapath.ErrNotSupported
	}
	d.replacing.Lock()
	defer d.replacing.Unlock()
	d.putBack() // what others have changed must not be noted
	note()
	var b nftables.Batch
	d.forgedRules(&b)
	if err := d.rules.Commit(&b); err != nil {
		return err
	}
	return d.noteRules()
}
