// Tests of what the two modes do with frames of the LAN and packets of the kernel. The two modes are "studied", which
// study 1 describes, and "fast", which aggregates packets. tcp and udp make a packet from the client to the site,
// changed by edits (packets_test.go). bench has a thread of each mode.

package tun

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
)

// A stranger is a client that is not admitted.

var (
	clientMAC   = datapath.MAC{2, 0, 0, 0, 0, 10}
	strangerMAC = datapath.MAC{2, 0, 0, 0, 0, 11}
	stranger    = netip.MustParseAddr("10.1.0.11")
)

// bench has a thread of each mode, an admitted client and a stranger. The taps record what the threads send to the LAN
// and to the kernel.
type bench struct {
	lan, kernel tap
	studied     *studied
	fast        *fast
	table       *admission.Table
}

func newBench(t testing.TB, change ...func(*datapath.Setup)) *bench {
	t.Helper()
	network := datapath.Network{Interface: "lan0", Address: netip.PrefixFrom(portal, 24)}
	cfg := datapath.Setup{Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	table, err := admission.New(admission.Config{Network: network, PortalPorts: []uint16{8080}, PPPoE: cfg.PPPoE})
	must(t, err)
	t.Cleanup(func() { table.Close() })
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{client}, MAC: clientMAC, Admitted: true}))
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{stranger}, MAC: strangerMAC}))
	mac := [6]byte{2, 0, 0, 0, 1, 1}
	s := &shared{
		cfg: cfg, net: network, lan: &net.Interface{Name: "lan0", MTU: 1500}, mac: mac, gateway: addrNumber(portal),
		redirects: newTestRedirects(), errors: new(budget.Clock),
	}
	b := &bench{lan: newTap(t), kernel: newTap(t), table: table}
	b.studied = &studied{worker: s.worker(table.Judge(), b.lan.in, b.kernel.in, false), buf: make([]byte, bufferLen)}
	b.fast = &fast{
		worker: s.worker(table.Judge(), b.lan.in, b.kernel.in, true),
		up:     coalescer{fd: b.kernel.in, udp: true},
		down:   coalescer{fd: b.lan.in, udp: true, headerBytes: ethernetLen, srcMAC: mac}, queue: make([]byte, bufferLen),
	}
	return b
}

// frame returns a frame from the LAN with a virtio header before it.
func frame(from datapath.MAC, v virtio, ip []byte) []byte {
	b := make([]byte, virtioLen, bufferLen)
	v.write(b)
	b = append(b, 2, 0, 0, 0, 1, 1)
	b = append(append(b, from[:]...), 8, 0)
	return append(b, ip...)
}

// onFrame returns v with offsets as a packet socket counts them: with the Ethernet header.
func onFrame(v virtio) virtio {
	v.sumStart += ethernetLen
	if v.headers > 0 {
		v.headers += ethernetLen
	}
	return v
}

// in gives a frame from the LAN to a mode and returns what the kernel and the LAN received, aggregated packets split.
func (b *bench) in(t *testing.T, fast bool, f []byte) (kernel, lan [][]byte) {
	t.Helper()
	f, now := append(make([]byte, 0, bufferLen), f...), admission.Now()
	if !fast {
		b.studied.frameIn(f[frameStart:], readVirtio(f), now)
		return b.kernel.messages(), splitMessages(t, b.lan.messages(), ethernetLen)
	}
	b.fast.frame(f, now)
	b.fast.up.flush()
	return splitMessages(t, b.kernel.messages(), 0), splitMessages(t, b.lan.messages(), ethernetLen)
}

// out gives a packet from the kernel to a mode and returns what the LAN received.
func (b *bench) out(t *testing.T, fast bool, v virtio, ip []byte) [][]byte {
	t.Helper()
	f, now := append(make([]byte, packetStart, bufferLen), ip...), admission.Now()
	if fast {
		b.fast.packet(f[packetStart:], v, now)
		b.fast.down.flush()
	} else {
		b.studied.packetOut(f, now)
	}
	return splitMessages(t, b.lan.messages(), ethernetLen)
}

// TestFrames: both modes treat a frame from the LAN alike, also if a checksum was left for later ("sum left") or the
// frame has an aggregated packet. The frame before it in the table, if there is one, prepares the case; kernel and lan
// are the packets that go to the kernel and back to the LAN. Long: most lines are the table of cases.
func TestFrames(t *testing.T) {
	data := text(2500)
	ofStranger := between(stranger, site)
	aggregated := virtio{
		flags: 1, gso: unix.VIRTIO_NET_HDR_GSO_TCPV4, headers: 40, size: 1000, sumStart: ipLen, sumOffset: tcpChecksum}
	split := func(edits ...func(*packet)) (all [][]byte) {
		for n := range 3 {
			part := data[n*1000 : min(len(data), (n+1)*1000)]
			all = append(all, tcp(append(edits, id(7+uint16(n)), seq(1000+uint32(n)*1000), carrying(part))...))
		}
		return all
	}
	redirected := func(ips ...[]byte) (all [][]byte) {
		for _, ip := range ips {
			all = append(all, toPortal(ip))
		}
		return all
	}
	scratch := func(n int) []byte { return make([]byte, n) }
	for name, c := range map[string]struct {
		before, frame []byte
		kernel, lan   [][]byte
	}{
		"admitted":   {nil, frame(clientMAC, virtio{}, tcp()), [][]byte{tcp()}, nil},
		"padded":     {nil, frame(clientMAC, virtio{}, append(tcp(), 0, 0, 0, 0, 0, 0)), [][]byte{tcp()}, nil},
		"sum left":   {nil, frame(clientMAC, onFrame(partialSum(tcpChecksum)), unsummed(tcp())), [][]byte{tcp()}, nil},
		"aggregated": {nil, frame(clientMAC, onFrame(aggregated), unsummed(tcp(carrying(data)))), split(), nil},
		"wrong MAC":  {nil, frame(strangerMAC, virtio{}, tcp()), nil, nil},
		"rejected": {nil, frame(strangerMAC, virtio{}, tcp(syn, ofStranger, ports(1, 443))), nil, [][]byte{reset(
			scratch(100), tcp(syn, ofStranger, ports(1, 443)))}},
		"rejected, UDP": {nil, frame(strangerMAC, onFrame(partialSum(udpChecksum)), unsummed(udp(ofStranger))), nil,
			[][]byte{prohibited(scratch(1000), udp(ofStranger), addrNumber(portal))}},
		"to the portal": {nil, frame(strangerMAC, onFrame(partialSum(tcpChecksum)), unsummed(tcp(syn, ofStranger))),
			redirected(tcp(syn, ofStranger)), nil},
		"aggregated, to the portal": {frame(strangerMAC, virtio{}, tcp(syn, ofStranger)), frame(strangerMAC,
			onFrame(aggregated), unsummed(tcp(ofStranger, carrying(data)))), redirected(split(ofStranger)...), nil},
		"to the portal, of no connection": {
			nil, frame(strangerMAC, virtio{}, tcp(ofStranger)), nil, [][]byte{reset(scratch(100), tcp(ofStranger))}},
		"to the portal, a reset": {
			nil, frame(strangerMAC, virtio{}, tcp(ofStranger, func(p *packet) { p.l4.(*layers.TCP).RST = true })), nil, nil},
		"to the gateway": {nil, frame(strangerMAC, onFrame(partialSum(udpChecksum)), unsummed(udp(between(stranger, portal),
			ports(1, 53)))), [][]byte{udp(between(stranger, portal), ports(1, 53))}, nil},
		"DHCP":          {nil, frame(strangerMAC, virtio{}, udp(between(stranger, portal), ports(68, 67))), nil, nil},
		"to a stranger": {nil, frame(clientMAC, virtio{}, udp(between(client, stranger))), nil, nil},
		"by broadcast":  {nil, toAll(frame(clientMAC, virtio{}, tcp())), nil, nil},
		"to the gateway, by broadcast": {nil, toAll(frame(clientMAC, virtio{}, udp(between(client, portal), ports(1, 53)))),
			[][]byte{udp(between(client, portal), ports(1, 53))}, nil},
		"IPv6":                  {nil, ethertype(0x86dd, frame(clientMAC, virtio{}, tcp())), nil, nil},
		"a second tag":          {nil, ethertype(0x8100, frame(clientMAC, virtio{}, tcp())), nil, nil},
		"no packet":             {nil, frame(clientMAC, virtio{}, nil), nil, nil},
		"longer than it is":     {nil, frame(clientMAC, virtio{}, tcp(carrying(data))[:100]), nil, nil},
		"a sum beyond its end":  {nil, frame(strangerMAC, virtio{flags: 1, sumStart: 9000}, tcp(syn, ofStranger)), nil, nil},
		"aggregated, malformed": {nil, frame(strangerMAC, virtio{gso: 9, size: 100}, tcp(syn, ofStranger)), nil, nil},
	} {
		for _, fast := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", studied", true: ", fast"}[fast], func(t *testing.T) {
				b := newBench(t)
				if c.before != nil {
					b.in(t, fast, c.before)
				}
				kernel, lan := b.in(t, fast, c.frame)
				equal(t, "the kernel", kernel, c.kernel)
				equal(t, "the LAN", lan, c.lan)
			})
		}
	}
}

// equal compares the packets that a side, name, received.
func equal(t *testing.T, name string, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s gets %d packets, want %d: %x", name, len(got), len(want), got)
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("%s gets\n%x\nwant\n%x", name, got[i], want[i])
		}
	}
}

// toAll gives a frame the broadcast address as destination.
func toAll(f []byte) []byte {
	copy(f[frameStart:], "\xff\xff\xff\xff\xff\xff")
	return f
}

func ethertype(e uint16, f []byte) []byte {
	f[frameStart+12], f[frameStart+13] = byte(e>>8), byte(e)
	return f
}

// TestPackets: both modes send the LAN a packet of the kernel that a client may get, and no other.
func TestPackets(t *testing.T) {
	toClient, toStranger := between(site, client), between(site, stranger)
	for name, c := range map[string]struct {
		ip   []byte
		want [][]byte
	}{
		"admitted":     {tcp(toClient), [][]byte{tcp(toClient)}},
		"not admitted": {tcp(toStranger), nil},
		"not leased":   {tcp(between(site, another)), nil},
		"of the gateway": {
			udp(between(portal, stranger), ports(53, 1)), [][]byte{udp(between(portal, stranger), ports(53, 1))}},
		"of the portal": {
			tcp(between(portal, stranger), ports(8080, 5)), [][]byte{tcp(between(portal, stranger), ports(8080, 5))}},
		"of the portal, to a redirected connection": {
			tcp(between(portal, stranger), ports(8080, 40000)), [][]byte{tcp(between(site, stranger), ports(80, 40000))}},
		"IPv6, for nobody": {append([]byte{0x60}, make([]byte, 50)...), nil},
	} {
		modes := []bool{false, true}
		if c.ip[0] != 0x45 { // the fast mode ignores other packets
			modes = modes[:1]
		}
		for _, fast := range modes {
			t.Run(name+map[bool]string{false: ", studied", true: ", fast"}[fast], func(t *testing.T) {
				b := newBench(t)
				b.in(t, fast, frame(strangerMAC, virtio{}, tcp(syn, between(stranger, site))))
				equal(t, "the LAN", b.out(t, fast, virtio{}, c.ip), c.want)
			})
		}
	}
}

// FuzzFrames: no frame stops a thread, and no frame of an unauthenticated client is forwarded.
func FuzzFrames(f *testing.F) {
	f.Add(frame(strangerMAC, virtio{}, tcp(syn, between(stranger, site))))
	f.Add(frame(strangerMAC, virtio{flags: 1, gso: 1, size: 100, sumStart: 34, sumOffset: 16},
		tcp(between(stranger, site), carrying(text(500)))))
	f.Add(frame(clientMAC, virtio{flags: 1, gso: 5, size: 100, sumStart: 34, sumOffset: 6}, udp(carrying(text(500)))))
	f.Add(ethertype(0x806, frame(strangerMAC, virtio{}, make([]byte, 28))))
	b := newBench(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < frameStart || len(in) > bufferLen {
			return
		}
		now := admission.Now()
		b.studied.frameIn(bytes.Clone(in[frameStart:]), readVirtio(in), now)
		got := b.kernel.messages()
		b.fast.frame(append(make([]byte, 0, bufferLen), in...), now)
		b.fast.up.flush()
		for _, m := range b.kernel.messages() {
			got = append(got, m[virtioLen:])
		}
		b.lan.messages()
		for _, ip := range got {
			if len(ip) >= ipLen && sourceOf(ip) != addrNumber(client) && destOf(ip) != addrNumber(portal) &&
				destOf(ip)>>28 != 0xe &&
				destOf(ip) != 0xffffffff {
				t.Errorf("the kernel gets %x of %x", ip, in)
			}
		}
	})
}
