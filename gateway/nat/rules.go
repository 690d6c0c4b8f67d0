package nat

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// Priorities of the chains; nft calls -100 dstnat and 100 srcnat. Packets that may not come in are dropped before data
// paths count them (at mangle, -150). Packets that leave are checked after all translation.
const (
	priorityClosed       = -160
	priorityDestinations = -100
	prioritySources      = 100
	priorityLeaving      = 300
)

// Names of the maps from a client to what it has outside. With sources one map has its address and ports. Without them
// two maps have its first and its last port, because nft cannot show a map of ranges of ports.
const (
	assigned   = "clients"
	firstPorts = "first-ports"
	lastPorts  = "last-ports"
)

// outsides is the name of the set of Config.Sources. These addresses may be routed to this machine although no
// interface has them.
const outsides = "outside"

// Offsets in the header of TCP and UDP, bytes.
const (
	toPortAt = 2
	flagsAt  = 13 // TCP's
)

// writer adds the rules of a configuration to a batch.
type writer struct {
	*nftables.Batch
	table nftables.Table
	maps  contents
}

// contents are the elements of the table's maps, by the maps' names.
type contents map[string]digest

// digest identifies the elements of a map, in any order.
type digest struct {
	elements int
	sum      uint64
}

var digestSeed = maphash.MakeSeed()

func (d *digest) add(key, data []byte) {
	d.elements++
	d.sum += maphash.Bytes(digestSeed, slices.Concat(key, data))
}

// rule adds a rule of these parts to a chain.
func (w *writer) rule(chain string, parts ...[]nftables.Expr) {
	var all []nftables.Expr
	for _, p := range parts {
		all = append(all, p...)
	}
	w.AddRule(w.table, chain, all...)
}

// ruleset adds to a batch the requests that replace the table, and returns the elements of its maps.
func (c Config) ruleset(b *nftables.Batch) contents {
	w := &writer{Batch: b, table: tableOf(c.Name), maps: contents{}}
	w.DeleteTable(w.table)
	w.AddTable(w.table)
	w.AddChain(w.table, "forward", &nftables.Hook{Type: "filter", Number: unix.NF_INET_FORWARD, Priority: priorityClosed})
	w.rule("forward", c.dropUnsolicited())
	drop := []nftables.Expr{nftables.Drop()}
	if c.Ports > 0 { // for connections that a helper expects, the kernel chooses ports without asking these rules
		w.rule("forward", nftables.CameBy(c.WAN), nftables.ToNetwork(c.Network), withStatus(nftables.Expected), drop)
		w.rule("forward", nftables.LeavesBy(c.WAN), nftables.FromNetwork(c.Network), withStatus(nftables.Expected), drop)
	}
	if len(c.Sources) > 0 {
		c.keepUnused(w)
	}
	if c.Moves {
		c.keepQuiet(w)
	}
	if len(c.Forwards) > 0 {
		c.forward(w)
	}
	w.AddChain(w.table, "postrouting",
		&nftables.Hook{Type: "nat", Number: unix.NF_INET_POST_ROUTING, Priority: prioritySources})
	if c.Ports > 0 {
		c.assign(w)
	}
	if c.Hairpin && len(c.Forwards) > 0 {
		c.hairpin(w)
	}
	outward := append(nftables.LeavesBy(c.WAN), nftables.FromNetwork(c.Network)...)
	for _, p := range c.Exceptions {
		w.rule("postrouting", outward, nftables.ToNetwork(p), []nftables.Expr{nftables.Accept()})
	}
	if c.Ports > 0 {
		w.rule("postrouting", outward, c.assignedPorts())
		w.rule("postrouting", outward, drop) // clients without ports
	} else {
		w.rule("postrouting", outward, c.shared())
	}
	w.AddChain(w.table, "leaving",
		&nftables.Hook{Type: "filter", Number: unix.NF_INET_POST_ROUTING, Priority: priorityLeaving})
	w.rule("leaving", outward, outside(c.Exceptions, nftables.DestinationAt), drop)
	return w.maps
}

// forward adds the rules of what is forwarded to clients.
func (c Config) forward(w *writer) {
	w.AddChain(w.table, "prerouting",
		&nftables.Hook{Type: "nat", Number: unix.NF_INET_PRE_ROUTING, Priority: priorityDestinations})
	for _, f := range c.Forwards {
		for _, ours := range c.oursFor(f) {
			w.rule("prerouting", nftables.CameBy(c.WAN), c.forwarded(f), ours, f.target())
			if c.Hairpin {
				w.rule("prerouting", c.fromClients(), c.forwarded(f), ours, f.target())
			}
		}
	}
}

// hairpin adds the rules for clients that reach another client by a forward. The other client then sees, in place of
// the client's address, the address that the client connected to. Where clients have their own ports it sees the
// client's outside address and ports, and a client without ports is not let through.
func (c Config) hairpin(w *writer) {
	inward := slices.Concat(c.toClients(), nftables.FromNetwork(c.Network), withStatus(nftables.Redirected))
	if c.Ports == 0 {
		w.rule("postrouting", inward,
			[]nftables.Expr{nftables.Addressed(0), nftables.Source(nftables.Span{Addr: nftables.RegisterAt(0)})})
		return
	}
	translation := c.assignedPorts()
	if len(c.Sources) == 0 {
		translation = append(c.ownPorts(), nftables.Addressed(0),
			nftables.Source(
				nftables.Span{Addr: nftables.RegisterAt(0), Port: nftables.RegisterAt(4), LastPort: nftables.RegisterAt(5)}))
	}
	w.rule("postrouting", inward, translation)
	w.rule("postrouting", inward, []nftables.Expr{nftables.Drop()})
}

// dropUnsolicited drops packets from the WAN to clients' own addresses, except answers, forwarded ports, and packets
// from Config.Inbound.
func (c Config) dropUnsolicited() []nftables.Expr {
	asked := binary.NativeEndian.AppendUint32(nil, nftables.Established|nftables.Related)
	forwarded := binary.NativeEndian.AppendUint32(nil, nftables.Redirected)
	none := make([]byte, 4)
	return slices.Concat(nftables.CameBy(c.WAN),
		[]nftables.Expr{nftables.State(0), nftables.And(0, asked), nftables.Equal(0, none)}, nftables.ToNetwork(c.Network),
		[]nftables.Expr{nftables.Status(0), nftables.And(0, forwarded), nftables.Equal(0, none)},
		outside(c.Inbound, nftables.SourceAt), []nftables.Expr{nftables.Drop()})
}

// outside matches packets whose address at this offset of the IP header is in none of the networks.
func outside(networks []netip.Prefix, offset uint32) (exprs []nftables.Expr) {
	for _, p := range networks {
		exprs = append(exprs, nftables.Payload(0, nftables.NetworkHeader, offset, 4), nftables.And(0, nftables.Mask(p)),
			nftables.Differs(0, p.Masked().Addr().AsSlice()))
	}
	return exprs
}

// keepUnused adds the set of sources, and a rule that drops packets for one of them that came by the WAN and would
// leave by the WAN again. Such a packet belongs to no connection and no forward. The router that sends the address here
// would send the packet back and forth until its TTL ends.
func (c Config) keepUnused(w *writer) {
	var all []nftables.Element
	eachAddr(c.Sources, func(a netip.Addr) { all = append(all, nftables.Element{Key: a.AsSlice()}) })
	w.set(nftables.Set{Name: outsides, KeyType: nftables.TypeIPv4, KeyBytes: 4, Size: uint32(len(all))}, all)
	w.rule("forward", nftables.CameBy(c.WAN), nftables.LeavesBy(c.WAN), toSources(), []nftables.Expr{nftables.Drop()})
}

// keepQuiet adds a chain that drops segments of TCP from the WAN for a source, or without sources for this machine,
// when they belong to no connection that is known here. The kernel would answer them with a reset, which ends a
// client's connection that the other machine translated. Once the client sends, the kernel takes the connection up.
// Segments that begin a connection pass: this machine may serve their port.
func (c Config) keepQuiet(w *writer) {
	w.AddChain(w.table, "input", &nftables.Hook{Type: "filter", Number: unix.NF_INET_LOCAL_IN, Priority: 0})
	unknown := binary.NativeEndian.AppendUint32(nil, nftables.New|nftables.Invalid)
	var ours []nftables.Expr
	if len(c.Sources) > 0 {
		ours = toSources()
	}
	w.rule("input", nftables.CameBy(c.WAN), ours,
		[]nftables.Expr{nftables.Meta(0, unix.NFT_META_L4PROTO), nftables.Equal(0, []byte{unix.IPPROTO_TCP})},
		append(beginning(), nftables.Differs(0, []byte{syn})), []nftables.Expr{nftables.State(0), nftables.And(0, unknown),
			nftables.Differs(0, make([]byte, 4)), nftables.Drop()})
}

// set adds a set or map with its elements.
func (w *writer) set(s nftables.Set, elements []nftables.Element) {
	w.AddSet(w.table, s)
	w.AddElements(w.table, s.Name, elements...)
	var d digest
	for _, x := range elements {
		d.add(x.Key, x.Data)
	}
	w.maps[s.Name] = d
}

// toMachine returns two matches for packets to this machine: to an address that it has, and to one of the sources.
func (c Config) toMachine() [][]nftables.Expr {
	all := [][]nftables.Expr{{nftables.KindOf(0), nftables.Equal(0, nftables.Local)}}
	if len(c.Sources) > 0 {
		all = append(all, toSources())
	}
	return all
}

// oursFor returns matches for the addresses to which a forward applies. That is every address of this machine. But
// where the forward's ports are the outside ports of its client, it is the client's outside address only, because at
// other addresses these ports belong to other clients.
func (c Config) oursFor(f Forward) [][]nftables.Expr {
	if c.Ports == 0 || len(c.Sources) == 0 {
		return c.toMachine()
	}
	i, index := 0, -1
	eachAddr(c.Clients, func(client netip.Addr) {
		if client == f.To {
			index = i
		}
		i++
	})
	if index < 0 {
		return c.toMachine()
	}
	source, first, last, ok := c.assignment().Of(index)
	if !ok || f.First < first || last < f.Last {
		return c.toMachine()
	}
	return [][]nftables.Expr{nftables.ToNetwork(netip.PrefixFrom(source, 32))}
}

func (c Config) assignment() Assignment {
	a := Assignment{Each: c.Ports}
	eachAddr(c.Sources, func(addr netip.Addr) { a.Sources = append(a.Sources, addr) })
	return a
}

func toSources() []nftables.Expr {
	to := nftables.Payload(0, nftables.NetworkHeader, nftables.DestinationAt, 4)
	return []nftables.Expr{to, nftables.InSet(outsides, 0)}
}

// forwarded matches the protocol and port of a forward, outside of the LAN.
func (c Config) forwarded(f Forward) []nftables.Expr {
	exprs := []nftables.Expr{nftables.Meta(0, unix.NFT_META_L4PROTO), nftables.Equal(0, []byte{f.Protocol}),
		nftables.Payload(0, nftables.TransportHeader, toPortAt, 2)}
	if f.First == f.Last {
		exprs = append(exprs, nftables.Equal(0, port(f.First)))
	} else {
		exprs = append(exprs, nftables.AtLeast(0, port(f.First)), nftables.AtMost(0, port(f.Last)))
	}
	if f.Protocol == unix.IPPROTO_TCP { // a SYN only, so that packets of an ended session's connection begin no new one
		exprs = append(append(exprs, beginning()...), nftables.Equal(0, []byte{syn}))
	}
	return append(exprs, outside([]netip.Prefix{c.Network}, nftables.DestinationAt)...)
}

// syn is the flag that alone, of those that beginning loads, begins a TCP connection.
const syn = 0x02

// beginning loads the flags of TCP that tell the first segment of a connection from others.
func beginning() []nftables.Expr {
	const fin, rst, ack = 0x01, 0x04, 0x10
	return []nftables.Expr{nftables.Payload(0, nftables.TransportHeader, flagsAt, 1),
		nftables.And(0, []byte{fin | syn | rst | ack})}
}

// target returns the expressions that send a connection to the forward's client.
func (f Forward) target() []nftables.Expr {
	span := nftables.Span{Addr: nftables.RegisterAt(0)}
	exprs := []nftables.Expr{nftables.Load(0, f.To.AsSlice())}
	if f.Port != 0 {
		span.Port = nftables.RegisterAt(1)
		exprs = append(exprs, nftables.Load(1, port(f.Port)))
	}
	return append(exprs, nftables.Destination(span))
}

// shared translates the addresses of clients that share all ports.
func (c Config) shared() []nftables.Expr {
	if len(c.Sources) == 0 {
		return []nftables.Expr{nftables.Masquerade(nftables.Span{})}
	}
	first, last := c.Sources[0].First, c.Sources[0].Last
	for _, r := range c.Sources { // they are consecutive
		if r.First.Less(first) {
			first = r.First
		}
		if last.Less(r.Last) {
			last = r.Last
		}
	}
	return []nftables.Expr{
		nftables.Load(0, first.AsSlice()), nftables.Load(1, last.AsSlice()),
		nftables.Source(nftables.Span{Addr: nftables.RegisterAt(0), LastAddr: nftables.RegisterAt(1), Persistent: true}),
	}
}

// assignedPorts translates a client's address to its own outside address and ports, from the maps.
func (c Config) assignedPorts() []nftables.Expr {
	if len(c.Sources) > 0 { // registers for first address and port, last address and port
		client := nftables.Payload(0, nftables.NetworkHeader, nftables.SourceAt, 4)
		span := nftables.Span{Addr: nftables.RegisterAt(0), Port: nftables.RegisterAt(1), LastAddr: nftables.RegisterAt(2),
			LastPort: nftables.RegisterAt(3)}
		return []nftables.Expr{client, nftables.Lookup(assigned, 0, 0), nftables.Source(span)}
	}
	return append(c.ownPorts(),
		nftables.Masquerade(nftables.Span{Port: nftables.RegisterAt(4), LastPort: nftables.RegisterAt(5)}))
}

// ownPorts loads the first and the last of a client's ports into the registers 4 and 5.
func (c Config) ownPorts() []nftables.Expr {
	client := nftables.Payload(0, nftables.NetworkHeader, nftables.SourceAt, 4)
	return []nftables.Expr{client, nftables.Lookup(firstPorts, 0, 4), client, nftables.Lookup(lastPorts, 0, 5)}
}

// assign adds the maps of clients.
func (c Config) assign(w *writer) {
	a := c.assignment()
	var whole, first, last []nftables.Element
	i := 0
	eachAddr(c.Clients, func(client netip.Addr) {
		source, from, to, ok := a.Of(i)
		if i++; !ok {
			return // package config refuses a configuration with more clients than ports
		}
		key := client.AsSlice()
		if source.IsValid() {
			var data []byte
			for _, p := range []uint16{from, to} {
				data = append(append(append(data, source.AsSlice()...), port(p)...), 0, 0)
			}
			whole = append(whole, nftables.Element{Key: key, Data: data})
			return
		}
		first, last = append(first, nftables.Element{Key: key, Data: port(from)}),
			append(last, nftables.Element{Key: key, Data: port(to)})
	})
	set := nftables.Set{KeyType: nftables.TypeIPv4, KeyBytes: 4, Size: uint32(max(1, size(c.Clients)))}
	if len(c.Sources) > 0 {
		set.Name, set.DataType, set.Data, set.Ranges = assigned, nftables.Concat(nftables.TypeIPv4, nftables.TypePort), 16,
			true
		w.set(set, whole)
		return
	}
	set.DataType, set.Data = nftables.TypePort, 2
	for _, m := range []struct {
		name     string
		elements []nftables.Element
	}{{firstPorts, first}, {lastPorts, last}} {
		set.Name = m.name
		w.set(set, m.elements)
	}
}

// fromClients matches packets of clients: those that came by the LAN's interface, or, where each client has its own
// interface (PPPoE), those with a client's address.
func (c Config) fromClients() []nftables.Expr {
	if c.LAN == "" {
		return nftables.FromNetwork(c.Network)
	}
	return nftables.CameBy(c.LAN)
}

// toClients matches packets to clients, in the same way.
func (c Config) toClients() []nftables.Expr {
	if c.LAN == "" {
		return nftables.ToNetwork(c.Network)
	}
	return nftables.LeavesBy(c.LAN)
}

// withStatus matches packets of connections that have a bit in their status: Redirected, which any rule that changes
// the destination sets, or Expected, for a connection that a helper has announced.
func withStatus(status uint32) []nftables.Expr {
	bit := binary.NativeEndian.AppendUint32(nil, status)
	return []nftables.Expr{nftables.Status(0), nftables.And(0, bit), nftables.Differs(0, make([]byte, 4))}
}

func port(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
