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

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// If package stack finds a certain way from the LAN to the WAN, rules at the devices send clients' packets to their
// next hop, ahead of the stack. Other packets take the path of fast.go. These are packets
//
//   - of unknown senders,
//   - to addresses that need another route,
//   - with which the stack would do more than forward them: with IP options or fewer than two hops left, and fragments
//     except the first,
//   - of up to 47 bytes, because their frames are padded and the counters count frames.
//
// So senders of packets that are too long, or on their last hop, get the usual ICMP errors. The rules have the
// addresses of hosts in the WAN's own network one by one; of other addresses with routes of their own they have the
// first two bytes. LAN and WAN must be up, be Ethernet, forward, and not belong to a bridge, bond or VRF. No route but
// the LAN's own may be within its network.
//
// Most of a packet's cost in these rules is indirect calls. The rules therefore use expressions that the kernel
// evaluates without a call: comparisons of at most four bytes, and a few others.

// setOthers contains the first two bytes of addresses that are, or may be, not behind the next hop.
const setOthers = "others"

// afterOthers places our chains at the devices behind those of other programs.
const afterOthers = 500

// redirectRules creates the chains at the devices and their gate, as yet without rules. The kernel identifies the
// devices by name, the gate by index.
func (d *Datapath) redirectRules(b *nftables.Batch, t nftables.Table) {
	b.AddSet(t, nftables.Set{
		Name: setUp, KeyType: nftables.Concat(nftables.TypeIPv4, nftables.TypeEthernet, nftables.TypeEthernet), KeyBytes: 20,
		Size: d.size(), Counters: true,
	})
	b.AddSet(t, nftables.Set{Name: setDown, KeyType: nftables.Concat(nftables.TypeIPv4, nftables.TypeEthernet,
		nftables.TypePort), KeyBytes: 16, Size: d.size(), Counters: true})
	b.AddSet(t, nftables.Set{Name: setGate, KeyType: nftables.TypeInterface, KeyBytes: 4, Verdicts: true, Timeouts: true})
	b.AddSet(t, nftables.Set{Name: setOthers, KeyType: nftables.TypePort, KeyBytes: 2})
	b.AddChain(t, "up", nil)
	b.AddChain(t, "down", nil)
	b.AddCounter(t, dropped)
	d.senderRules(b, t)
	for name, dev := range map[string]*net.Interface{"lan": d.lan, "wan": d.wan} {
		leave := map[string]nftables.Expr{"lan": nftables.Goto("stack"), "wan": nftables.Accept()}[name]
		b.AddChain(t, name,
			&nftables.Hook{Type: "filter", Number: unix.NF_NETDEV_INGRESS, Priority: afterOthers, Device: dev.Name})
		plainRules(b, t, name, leave)
		b.AddRule(t, name, nftables.Meta(0, unix.NFT_META_IIF), nftables.Decide(setGate, 0))
		b.AddRule(t, name, leave)
	}
}

// senderRules decide on frames of the LAN that are left to the stack. The stack answers some packets with ICMP errors
// before "forward" is asked: on their last hop, with bad options, too long, to another gateway. With a forged sender
// outside of the LAN these errors, which quote the packet, would leave through the WAN. Frames of a VLAN belong to
// another network.
func (d *Datapath) senderRules(b *nftables.Batch, t nftables.Table) {
	const etherType = 12
	b.AddChain(t, "stack", nil)
	b.AddRule(t, "stack", nftables.Meta(0, unix.NFT_META_PKTTYPE), nftables.Equal(0, []byte{unix.PACKET_OTHERHOST}),
		nftables.Accept())
	load := nftables.Payload(0, nftables.NetworkHeader, sender, addressSize)
	b.AddRule(t, "stack", load, nftables.And(0, netmask(d.net.Prefix())),
		nftables.Equal(0, d.net.Prefix().Addr().AsSlice()), nftables.Accept())
	b.AddRule(t, "stack", load, nftables.Equal(0, []byte{0, 0, 0, 0}), nftables.Accept()) // DHCP
	d.requestRules(b, t)
	drop := []nftables.Expr{
		nftables.Meta(0, unix.NFT_META_PROTOCOL), nftables.Equal(0, etherIPv4), nftables.Count(dropped), nftables.Drop()}
	b.AddRule(t, "stack", slices.Concat([]nftables.Expr{nftables.Payload(0, nftables.LinkHeader, etherType, 2),
		nftables.Equal(0, etherIPv4)}, drop)...)
	for _, tag := range [][]byte{{0x81, 0, 0, 0}, {0x88, 0xa8, 0, 0}} { // only a priority: the kernel removes it
		b.AddRule(t, "stack", slices.Concat([]nftables.Expr{nftables.Payload(0, nftables.LinkHeader, etherType, 4),
			nftables.And(0, []byte{0xff, 0xff, 0x0f, 0xff}), nftables.Equal(0, tag)}, drop)...)
	}
}

// requestRules leave whole messages of DHCP clients to the stack, whatever their sender's address: a device
// that has moved keeps its former one until a server refuses it.
func (d *Datapath) requestRules(b *nftables.Batch, t nftables.Table) {
	const fragment, protocol, dhcp = 6, 9, 67
	for _, to := range [][]byte{d.net.Gateway().AsSlice(), {255, 255, 255, 255}} {
		b.AddRule(t, "stack",
			nftables.Payload(0, nftables.NetworkHeader, protocol, 1), nftables.Equal(0, []byte{unix.IPPROTO_UDP}),
			nftables.Payload(0, nftables.NetworkHeader, fragment, 2), nftables.And(0, []byte{0x3f, 0xff}),
			nftables.Equal(0, []byte{0, 0}),
			nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize), nftables.Equal(0, to),
			nftables.Payload(0, nftables.TransportHeader, receiverPort, portSize), nftables.Equal(0, port(dhcp)),
			nftables.Accept())
	}
}

// plainRules returns expressions that match packets which need only forwarding and whose frames have no padding. All
// others are left to the stack.
func plainRules(b *nftables.Batch, t nftables.Table, chain string, toStack nftables.Expr) {
	const first, hops, word = 0, 8, 4
	leave := func(at uint32, mask, value []byte) {
		b.AddRule(t, chain, nftables.Payload(0, nftables.NetworkHeader, at, word), nftables.And(0, mask),
			nftables.Equal(0, value), toStack)
	}
	// IP options.
	b.AddRule(t, chain, nftables.Payload(0, nftables.NetworkHeader, first, 1), nftables.Differs(0, []byte{0x45}), toStack)
	// On its last hop: the sender gets an ICMP error from the stack.
	leave(hops, []byte{0xfe, 0, 0, 0}, []byte{0, 0, 0, 0})
	// Frames are padded up to 46 bytes, and counters count frames: lengths of 0 to 15 and 32 to 47 bytes, then 16 to 31.
	leave(first, []byte{0, 0, 0xff, 0xd0}, []byte{0, 0, 0, 0})
	leave(first, []byte{0, 0, 0xff, 0xf0}, []byte{0, 0, 0, 16})
}

// validLengths returns expressions that match packets with consistent header and total lengths; of a fragmented packet
// they match the first fragment.
func validLengths() nftables.Expr { return nftables.Payload(0, nftables.TransportHeader, 0, 4) }

// behindNextHop continues if an address is behind the next hop, near if it is a neighbour at the WAN.
func behindNextHop(address uint32) []nftables.Expr {
	return []nftables.Expr{
		nftables.Payload(0, nftables.NetworkHeader, address, addressSize), nftables.And(0, netmask(stack.Multicast)),
		nftables.Differs(0, stack.Multicast.Addr().AsSlice()),
		nftables.Payload(0, nftables.NetworkHeader, address, 2), nftables.NotIn(setOthers, 0),
	}
}

func isNeighbour(w stack.Way, address uint32) []nftables.Expr {
	load := nftables.Payload(0, nftables.NetworkHeader, address, addressSize)
	out := []nftables.Expr{load, nftables.And(0, netmask(w.Link)), nftables.Equal(0, w.Link.Addr().AsSlice())}
	if len(w.OwnRoutes) > 0 {
		out = append(out, load)
	}
	for _, a := range w.OwnRoutes {
		out = append(out, nftables.Differs(0, a.AsSlice()))
	}
	return out
}

func netmask(p netip.Prefix) []byte {
	return binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-p.Bits()))
}

// upKey is a client's key in the rules at the LAN: untagged packets from its MAC address to this interface's.
func (d *Datapath) upKey(addr netip.Addr, mac [6]byte) []byte {
	return append(slices.Concat(addr.AsSlice(), d.lan.HardwareAddr, mac[:], etherIPv4), 0, 0)
}

// downKey is a client's key in the rules at the WAN: untagged packets for it to this interface's MAC address.
func (d *Datapath) downKey(addr netip.Addr) []byte {
	return append(append(slices.Concat(addr.AsSlice(), d.wan.HardwareAddr, []byte{0, 0}), etherIPv4...), 0, 0)
}

var etherIPv4 = []byte{8, 0}

// wayRules send packets to their next hop: up from clients, down to clients.
func (d *Datapath) wayRules(b *nftables.Batch, t nftables.Table, w stack.Way) {
	const toMAC, etherType, everything, etherTypeSize = 0, 12, 14, 2
	index := func(dev *net.Interface) nftables.Expr { return nftables.Load(1, indexKey(dev)) }
	up := []nftables.Expr{
		validLengths(), nftables.Payload(0, nftables.NetworkHeader, sender, addressSize),
		nftables.Payload(1, nftables.LinkHeader, toMAC, everything), nftables.CountBy(setUp, 0),
	}
	down := []nftables.Expr{
		validLengths(), nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize),
		nftables.Payload(1, nftables.LinkHeader, toMAC, macSize),
		nftables.Payload(3, nftables.LinkHeader, etherType, etherTypeSize), nftables.CountBy(setDown, 0), index(d.lan),
		nftables.SendTo(1, 0),
	}
	if w.Link.IsValid() {
		b.AddRule(t, "up", slices.Concat(isNeighbour(w, receiver), up, []nftables.Expr{
			nftables.Payload(0, nftables.NetworkHeader, receiver, addressSize), index(d.wan), nftables.SendTo(1, 0)})...)
		b.AddRule(t, "down", slices.Concat(isNeighbour(w, sender), down)...)
	}
	b.AddRule(t, "up",
		slices.Concat(behindNextHop(receiver), up, []nftables.Expr{nftables.Load(0, w.Next.AsSlice()), index(d.wan),
			nftables.SendTo(1, 0)})...)
	b.AddRule(t, "down", slices.Concat(behindNextHop(sender), down)...)
}

// othersMax bounds the elements that otherElements returns: the more there are, the longer the kernel takes for each.
const othersMax = 4096

// otherElements returns the elements of setOthers for all prefixes except Multicast.
func otherElements(prefixes []netip.Prefix) (out []nftables.Element) {
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

// course is the interfaces and next hop to which packets are redirected; the zero value: they are not.
type course struct {
	way      stack.Way
	up, down bool
}

// ethernetMTU is the longest packet of ordinary Ethernet, bytes (RFC 894).
const ethernetMTU = 1500

// findCourse determines whether packets may be redirected, or the reason why not.
func (d *Datapath) findCourse() (c course, reason string) {
	rules, err := stack.Rules(isGatewayTable, d.lan.Name, d.wan.Name)
	switch {
	case err != nil:
		return course{}, "netfilter's rules cannot be read: " + err.Error()
	case len(rules) > 0:
		return course{}, "netfilter has rules in " + rules[0]
	}
	policies, err := stack.Policies()
	switch {
	case err != nil:
		return course{}, err.Error()
	case policies != "":
		return course{}, policies
	}
	way, unsure, err := stack.FindWay(d.lan, d.wan, d.net.Prefix())
	switch {
	case err != nil:
		return course{}, err.Error()
	case unsure != "":
		return course{}, unsure
	case len(otherElements(way.Others)) > othersMax:
		return course{}, "there are routes for too many addresses"
	}
	// A packet that arrived on one link must fit the other, so that no fragmentation and no ICMP error is needed. Links
	// accept packets longer than their MTU, up to Ethernet's.
	fits := func(from, to int) bool { return to >= max(from, ethernetMTU) }
	return course{way, fits(way.LANMTU, way.WANMTU), fits(way.WANMTU, way.LANMTU)}, "the way is certain"
}

// isGatewayTable reports whether a table is a gateway's, which redirected packets may skip.
func isGatewayTable(family uint8, table string) bool {
	return strings.HasPrefix(table, namePrefix) || family != unix.NFPROTO_IPV4 && guard.IsOwnTable(table)
}

// choose determines whether packets may be redirected, and switches accordingly.
func (d *Datapath) choose() {
	if !d.speaks.dev {
		return
	}
	d.choosing.Lock()
	defer d.choosing.Unlock()
	to, reason := d.findCourse()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fast.reason = reason
	if reflect.DeepEqual(to, d.fast.course) || d.fast.refused != nil && reflect.DeepEqual(to, *d.fast.refused) {
		return
	}
	if err := d.setCourse(to); err != nil {
		d.fast.refused, d.fast.reason = &to, "the kernel cannot redirect (fwd of nftables)"
		d.cfg.Log.Warn("packets cannot be redirected (fwd of nftables is needed); the stack forwards them", "err", err)
		if err := d.setCourse(course{}); err != nil {
			d.cfg.Log.Error("leaving packets to the stack; the gate falls shut", "within", gateLife, "err", err)
		}
		return
	}
	d.cfg.Log.Debug("forwarding", "up", to.up, "down", to.down, "why", reason)
}

// setCourse switches redirecting on or off, from one packet to the next. If it fails, the gate at the devices is not
// renewed. d.mu is held.
func (d *Datapath) setCourse(to course) error {
	var b nftables.Batch
	d.fast.course = to
	d.courseRules(&b)
	if err := d.rules.Commit(&b); err != nil {
		d.fast.course = course{}
		return fmt.Errorf("changing the redirect: %w", err)
	}
	return nil
}

// courseRules sets the rules at the devices to those of d.fast.course.
func (d *Datapath) courseRules(b *nftables.Batch) {
	t := tablesOf(d.net.Interface).dev
	b.ClearSet(t, setGate)
	b.ClearChain(t, "up")
	b.ClearChain(t, "down")
	b.ClearSet(t, setOthers)
	if to := d.fast.course; to.up || to.down {
		b.AddElements(t, setOthers, otherElements(to.way.Others)...)
		d.wayRules(b, t, to.way)
		b.AddElements(t, setGate, d.deviceGate()...)
	}
}

// deviceGate returns the open elements of the gate at the devices.
func (d *Datapath) deviceGate() (out []nftables.Element) {
	if d.fast.course.up {
		out = append(out, nftables.Element{Key: indexKey(d.lan), Jump: "up", Timeout: gateLife})
	}
	if d.fast.course.down {
		out = append(out, nftables.Element{Key: indexKey(d.wan), Jump: "down", Timeout: gateLife})
	}
	return out
}

// Forwarding names the present way of forwarding for clients that the kernel passes: "redirect", ahead of the stack, or
// "stack", and why.
func (d *Datapath) Forwarding() (word, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.fast == nil:
		return "stack", ""
	case d.fast.course.up && d.fast.course.down:
		return "redirect", ""
	case d.fast.course.up || d.fast.course.down:
		return "redirect", "one direction only: the other interface's MTU is smaller"
	}
	return "stack", d.fast.reason
}
