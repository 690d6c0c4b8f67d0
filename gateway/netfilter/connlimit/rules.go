package connlimit

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// Names in the table. Maps lead from addresses and networks of clients to a chain for each client.
const (
	hosts4  = "hosts4"
	hosts6  = "hosts6"
	nets4   = "networks4"
	nets6   = "networks6"
	refused = "refused" // counter
)

// priority of the chain: behind filters of others (0), so that what they drop is no connection.
const priority = 50

// newEachSecond is how many connections a client may try to open each second, those that are refused included; further
// ones are dropped. nf_conncount remembers a refused connection until it looks at the client's list again: it forgets
// at least eight then, once in a tick of the kernel's clock (100 a second or more). So the list stays short.
const newEachSecond = 800

// Registers. An address is behind its family.
const (
	kind    nftables.Register = 0
	address nftables.Register = 1
)

// Table returns the name of the table for a LAN's interface, in nftables' family inet.
func Table(lan string) string {
	return guard.CountingPrefix + strings.TrimPrefix(guard.Table(lan), guard.Prefix)
}

func tableOf(name string) nftables.Table { return nftables.Table{Family: nftables.Inet, Name: name} }

// ruleset adds to a batch what makes the table anew, without clients. A packet of a connection that has passed once
// meets the first rule alone.
func ruleset(b *nftables.Batch, t nftables.Table) {
	b.DeleteTable(t)
	b.AddTable(t)
	b.AddCounter(t, refused)
	b.AddChain(t, "answer", nil)
	b.AddRule(t, "answer", nftables.Meta(0, unix.NFT_META_L4PROTO), nftables.Equal(0, []byte{unix.IPPROTO_TCP}),
		nftables.Reset())
	b.AddRule(t, "answer", nftables.ProhibitedInet())
	b.AddChain(t, "forward", &nftables.Hook{Type: "filter", Number: unix.NF_INET_FORWARD, Priority: priority})
	none, mask := make([]byte, 4), func(bits uint32) []byte { return binary.NativeEndian.AppendUint32(nil, bits) }
	b.AddRule(t, "forward", nftables.Status(0), nftables.And(0, mask(nftables.Confirmed)), nftables.Differs(0, none),
		nftables.Accept())
	b.AddRule(t, "forward", nftables.State(0), nftables.And(0, mask(nftables.New)), nftables.Equal(0, none),
		nftables.Accept())
	for _, f := range []family{family4, family6} {
		key := uint32(nftables.TypeIPv4)
		if f.length == 16 {
			key = nftables.TypeIPv6
		}
		b.AddSet(t, nftables.Set{Name: f.hosts, KeyType: key, KeyBytes: int(f.length), Verdicts: true})
		b.AddSet(t, nftables.Set{Name: f.networks, KeyType: nftables.Concat(nftables.TypeFamily, key),
			KeyBytes: 4 + int(f.length), Fields: []int{1, int(f.length)}, Verdicts: true})
		for _, offset := range []uint32{f.from, f.to} {
			load := []nftables.Expr{nftables.Meta(kind, unix.NFT_META_NFPROTO), nftables.Equal(kind, []byte{f.number}),
				nftables.Payload(address, nftables.NetworkHeader, offset, f.length)}
			b.AddRule(t, "forward", append(slices.Clone(load), nftables.Decide(f.hosts, address))...)
			b.AddRule(t, "forward", append(slices.Clone(load), nftables.Decide(f.networks, kind))...)
		}
	}
}

// family is what differs between the rules for IPv4 and IPv6.
type family struct {
	number          byte
	hosts, networks string // maps
	length          uint32 // of an address, bytes
	from, to        uint32 // offsets of addresses in the header
}

var (
	family4 = family{unix.NFPROTO_IPV4, hosts4, nets4, 4, nftables.SourceAt, nftables.DestinationAt}
	family6 = family{unix.NFPROTO_IPV6, hosts6, nets6, 16, nftables.Source6At, nftables.Destination6At}
)

// chainOf is the name of a client's chain: its first IPv4 address, or a number where it has none (datapath.Numbered).
func chainOf(id datapath.ID) string {
	if id > math.MaxUint32 {
		return fmt.Sprintf("client-%d", uint32(id))
	}
	return "client-" + netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(id)))).String()
}

// addChain adds a client's chain, or replaces the rules of the one that is there.
func addChain(b *nftables.Batch, t nftables.Table, id datapath.ID, most uint32) {
	chain := chainOf(id)
	b.AddChain(t, chain, nil)
	b.ClearChain(t, chain)
	b.AddRule(t, chain, nftables.Faster(newEachSecond), nftables.Count(refused), nftables.Drop())
	b.AddRule(t, chain, nftables.ConnectionsOver(most), nftables.Count(refused), nftables.Goto("answer"))
}

// hold has a client's new connections wait.
func hold(b *nftables.Batch, t nftables.Table, id datapath.ID) {
	b.ClearChain(t, chainOf(id))
	b.AddRule(t, chainOf(id), nftables.Drop())
}

// place is the map that has an address or network, and its element there.
func place(p netip.Prefix, id datapath.ID) (set string, x nftables.Element) {
	f := family4
	if p.Addr().Is6() {
		f = family6
	}
	x.Jump, x.Key = chainOf(id), p.Masked().Addr().AsSlice()
	if p.IsSingleIP() {
		return f.hosts, x
	}
	x.Key = append([]byte{f.number, 0, 0, 0}, x.Key...)
	x.End = slices.Clone(x.Key)
	for i, m := range nftables.Mask(p) {
		x.End[4+i] |= ^m
	}
	return f.networks, x
}
