package nfqueue

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/guard"
	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue/nftables"
	"github.com/gateweigh/gateweigh/gateway/datapath/stack"
)

// Where the way is certain (package stack), rules at the devices send clients' packets
// to their next hop, ahead of the stack. Whatever they do not know takes the way of
// fast.go: an unknown sender, an address that is not simply elsewhere, a packet the stack
// would do more with than forward it.
//
// What a packet costs there is calls of functions: those steps are taken that the kernel
// does without one, which are comparisons of at most four bytes with few others.

// setOthers has the first two bytes of addresses that are, or may be, not behind the
// next hop.
const setOthers = "others"

// afterOthers lets the rules of others at the devices see packets first.
const afterOthers = 500

// redirectRules are the chains at the devices, and what the gate leads to: as yet
// without a rule. The devices are known by their names to the kernel, and by their
// indexes to the gate.
func (d *Datapath) redirectRules(b *nftables.Batch, t nftables.Table) {
	b.AddSet(t, nftables.Set{
		Name: setUp, KeyType: nftables.Concat(nftables.TypeIPv4, nftables.TypeEthernet, nftables.TypeEthernet), KeyBytes: 20, Size: d.size(), Counters: true,
	})
	b.AddSet(t, nftables.Set{Name: setDown, KeyType: nftables.Concat(nftables.TypeIPv4, nftables.TypeEthernet, nftables.TypePort), KeyBytes: 16, Size: d.size(), Counters: true})
	b.AddSet(t, nftables.Set{Name: setGate, KeyType: nftables.TypeInterface, KeyBytes: 4, Verdicts: true, Timeouts: true})
	b.AddSet(t, nftables.Set{Name: setOthers, KeyType: nftables.TypePort, KeyBytes: 2})
	b.AddChain(t, "up", nil)
	b.AddChain(t, "down", nil)
	for name, dev := range map[string]*net.Interface{"lan": d.lan, "wan": d.wan} {
		b.AddChain(t, name, &nftables.Hook{Type: "filter", Number: unix.NF_NETDEV_INGRESS, Priority: afterOthers, Device: dev.Name})
		plainRules(b, t, name)
		b.AddRule(t, name, nftables.Meta(0, unix.NFT_META_IIF), nftables.Decide(setGate, 0))
	}
}

// plainRules go on with packets that are simply forwarded, and no padding in their
// frames.
func plainRules(b *nftables.Batch, t nftables.Table, chain string) {
	const first, hops, word = 0, 8, 4
	leave := func(at uint32, mask, value []byte) {
		b.AddRule(t, chain, nftables.Payload(0, nftables.NetworkHeader, at, word), nftables.And(0, mask), nftables.Equal(0, value), nftables.Accept())
	}
	// Options.
	b.AddRule(t, chain, nftables.Payload(0, nftables.NetworkHeader, first, 1), nftables.Differs(0, []byte{0x45}), nftables.Accept())
	// Its last hop: who sent it is told.
	leave(hops, []byte{0xfe, 0, 0, 0}, []byte{0, 0, 0, 0})
	// Frames are padded up to 46 bytes, and counters count frames: 0 to 15 and 32 to 47
	// bytes, then 16 to 31.
	leave(first, []byte{0, 0, 0xff, 0xd0}, []byte{0, 0, 0, 0})
	leave(first, []byte{0, 0, 0xff, 0xf0}, []byte{0, 0, 0, 16})
}

// sound goes on with packets whose header and lengths agree, and the first of fragments.
func sound() nftables.Expr { return nftables.Payload(0, nftables.TransportHeader, 0, 4) }

// far goes on where an address is behind the next hop, near where it is a neighbour's at
// the WAN.
func far(address uint32) []nftables.Expr {
	return []nftables.Expr{
		nftables.Payload(0, nftables.NetworkHeader, address, addressSize), nftables.And(0, netmask(stack.Multicast)), nftables.Differs(0, stack.Multicast.Addr().AsSlice()),
		nftables.Payload(0, nftables.NetworkHeader, address, 2), nftables.NotIn(setOthers, 0),
	}
}

func near(w stack.Way, address uint32) []nftables.Expr {
	load := nftables.Payload(0, nftables.NetworkHeader, address, addressSize)
	out := []nftables.Expr{load, nftables.And(0, netmask(w.Link)), nftables.Equal(0, w.Link.Addr().AsSlice())}
	if len(w.Apart) > 0 {
		out = append(out, load)
	}
	for _, a := range w.Apart {
		out = append(out, nftables.Differs(0, a.AsSlice()))
	}
	return out
}

func netmask(p netip.Prefix) []byte {
	return binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-p.Bits()))
}

// upKey is a client in the rules at the LAN: its packets come from its own MAC address to
// this interface's, without a tag.
func (d *Datapath) upKey(addr netip.Addr, mac [6]byte) []byte {
	return append(slices.Concat(addr.AsSlice(), d.lan.HardwareAddr, mac[:], etherIPv4), 0, 0)
}

// downKey is a client in the rules at the WAN: what is for it comes to this interface's
// MAC address, without a tag.
func (d *Datapath) downKey(addr netip.Addr) []byte {
	return append(append(slices.Concat(addr.AsSlice(), d.wan.HardwareAddr, []byte{0, 0}), etherIPv4...), 0, 0)
}

var etherIPv4 = []byte{8, 0}

// wayRules send packets on: up where they come from a client, down where they go to one.
func (d *Datapath) wayRules(b *nftables.Batch, t nftables.Table, w stack.Way) {
	const toMAC, etherType, everything, etherTypeSize = 0, 12, 14, 2
	index := func(dev *net.Interface) nftables.Expr { return nftables.Load(1, indexKey(dev)) }
	up := []nftables.Expr{
		sound(), nftables.Payload(0, nftables.NetworkHeader, sender, addressSize), nftables.Payload(1, nftables.LinkHeader, toMAC, everything), nftables.CountBy(setUp, 0),
	}
	down := []nftables.Expr{
		sound(), nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize), nftables.Payload(1, nftables.LinkHeader, toMAC, macSize),
		nftables.Payload(3, nftables.LinkHeader, etherType, etherTypeSize), nftables.CountBy(setDown, 0), index(d.lan), nftables.SendTo(1, 0),
	}
	if w.Link.IsValid() {
		b.AddRule(t, "up", slices.Concat(near(w, receiver), up, []nftables.Expr{
			nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize), index(d.wan), nftables.SendTo(1, 0)})...)
		b.AddRule(t, "down", slices.Concat(near(w, sender), down)...)
	}
	b.AddRule(t, "up", slices.Concat(far(receiver), up, []nftables.Expr{nftables.Load(0, w.Next.AsSlice()), index(d.wan), nftables.SendTo(1, 0)})...)
	b.AddRule(t, "down", slices.Concat(far(sender), down)...)
}

// othersMax bounds what others makes of routes: the kernel takes as long for each as
// there are.
const othersMax = 4096

// others are the elements of setOthers: all prefixes but Multicast.
func others(prefixes []netip.Prefix) (out []nftables.Element) {
	seen := map[uint16]bool{}
	for _, p := range prefixes {
		if p == stack.Multicast {
			continue
		}
		a := p.Masked().Addr().As4()
		first := binary.BigEndian.Uint16(a[:])
		for i := range 1 << max(0, 16-p.Bits()) {
			if n := first + uint16(i); !seen[n] {
				seen[n] = true
				out = append(out, nftables.Element{Key: binary.BigEndian.AppendUint16(nil, n)})
			}
		}
	}
	return out
}

// course is where packets are redirected to; the zero value: nowhere.
type course struct {
	way      stack.Way
	up, down bool
}

// ethernetMTU is the longest packet of ordinary Ethernet, bytes (RFC 894).
const ethernetMTU = 1500

// find finds out whether packets may be redirected, and why not.
func (d *Datapath) find() (c course, why string) {
	rules, err := stack.Rules(own)
	switch {
	case err != nil:
		return course{}, "netfilter's rules cannot be read: " + err.Error()
	case len(rules) > 0:
		return course{}, "netfilter has rules in " + rules[0]
	}
	way, unsure, err := stack.Find(d.lan, d.wan, d.cfg.Prefix)
	switch {
	case err != nil:
		return course{}, err.Error()
	case unsure != "":
		return course{}, unsure
	case len(others(way.Others)) > othersMax:
		return course{}, "there are routes for too many addresses"
	}
	// A packet that came by one link fits the other: nothing is cut, and nobody told. Links
	// take what is longer than they may send, up to what Ethernet can.
	fits := func(from, to int) bool { return to >= max(from, ethernetMTU) }
	return course{way, fits(way.LANMTU, way.WANMTU), fits(way.WANMTU, way.LANMTU)}, "the way is certain"
}

// own says whether a table is a gateway's: what is redirected has been judged.
func own(family uint8, table string) bool {
	return family == unix.NFPROTO_IPV4 && strings.HasPrefix(table, namePrefix) || family == unix.NFPROTO_INET && guard.Is(table)
}

// choose looks whether packets may be redirected, and has it so.
func (d *Datapath) choose() {
	if !d.speaks.dev {
		return
	}
	d.choosing.Lock()
	defer d.choosing.Unlock()
	to, why := d.find()
	d.mu.Lock()
	defer d.mu.Unlock()
	if reflect.DeepEqual(to, d.fast.to) || d.fast.refused != nil && reflect.DeepEqual(to, *d.fast.refused) {
		return
	}
	if err := d.turn(to); err != nil {
		d.fast.refused = &to
		d.cfg.Log.Warn("packets cannot be redirected (fwd of nftables is needed); the stack forwards them", "err", err)
		if err := d.turn(course{}); err != nil {
			d.cfg.Log.Error("leaving packets to the stack; the gate falls shut", "within", gateLife, "err", err)
		}
		return
	}
	d.cfg.Log.Debug("forwarding", "up", to.up, "down", to.down, "why", why)
}

// turn has packets redirected, or not, from one packet to the next. Where that fails the
// gate at the devices is not opened again. d.mu is held.
func (d *Datapath) turn(to course) error {
	var b nftables.Batch
	d.fast.to = to
	d.turning(&b)
	if err := d.rules.Commit(&b); err != nil {
		d.fast.to = course{}
		return fmt.Errorf("changing the redirect: %w", err)
	}
	return nil
}

// turning makes the rules at the devices those of d.fast.to.
func (d *Datapath) turning(b *nftables.Batch) {
	t := tablesOf(d.cfg.LAN).dev
	b.ClearSet(t, setGate)
	b.ClearChain(t, "up")
	b.ClearChain(t, "down")
	b.ClearSet(t, setOthers)
	if to := d.fast.to; to.up || to.down {
		b.AddElements(t, setOthers, others(to.way.Others)...)
		d.wayRules(b, t, to.way)
		b.AddElements(t, setGate, d.deviceGate()...)
	}
}

// deviceGate is what is open of the gate at the devices.
func (d *Datapath) deviceGate() (out []nftables.Element) {
	if d.fast.to.up {
		out = append(out, nftables.Element{Key: indexKey(d.lan), Jump: "up", Timeout: gateLife})
	}
	if d.fast.to.down {
		out = append(out, nftables.Element{Key: indexKey(d.wan), Jump: "down", Timeout: gateLife})
	}
	return out
}

// Forwarding is in a word who forwards at the moment those the kernel passes by itself:
// "redirect", ahead of the stack, or "stack".
func (d *Datapath) Forwarding() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fast != nil && (d.fast.to.up || d.fast.to.down) {
		return "redirect"
	}
	return "stack"
}
