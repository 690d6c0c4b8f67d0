// Tests of frames of PPPoE clients. bench has a thread of each mode, an admitted client and a stranger, who is not
// admitted (frames_test.go); tcp and udp make a packet from the client to the site, changed by edits (packets_test.go).

package tun

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// The tests of PPPoE's header: the two modes take it off, and send packets no longer than the session's MTU.

// session is the client's PPPoE session.
const session = 0x1234

// newPPPoEBench is a bench whose client is on PPPoE.
func newPPPoEBench(t testing.TB) *bench {
	t.Helper()
	b := newBench(t, func(c *datapath.Setup) { c.PPPoE = true })
	must(t, b.table.Set(datapath.Client{Addrs: []netip.Addr{client}, MAC: clientMAC, Session: session, Admitted: true}))
	return b
}

// inSession returns a frame of the client's PPPoE session with an IP packet.
func inSession(ip []byte) []byte {
	h := binary.BigEndian.AppendUint16([]byte{0x11, 0}, session)
	h = append(binary.BigEndian.AppendUint16(h, uint16(2+len(ip))), 0, 0x21)
	f := frame(clientMAC, virtio{}, append(h, ip...))
	f[frameStart+12], f[frameStart+13] = 0x88, 0x64
	return f
}

// mssOption adds an MSS option to a SYN, after a number of no-operation options, each of one byte.
func mssOption(mss uint16, before int) func(*packet) {
	return func(p *packet) {
		l := p.l4.(*layers.TCP)
		for range before {
			l.Options = append(l.Options, layers.TCPOption{OptionType: 1, OptionLength: 1})
		}
		l.Options = append(
			l.Options, layers.TCPOption{OptionType: 2, OptionLength: 4, OptionData: binary.BigEndian.AppendUint16(nil, mss)})
	}
}

// TestPPPoEDecapsulation: both modes take PPPoE's header off a packet of a client's session, lower the MSS of a SYN to
// what fits, and drop other frames. kernel is the packet that the kernel gets; nil: none. reason is the counter that
// counts the frame; "": none.
func TestPPPoEDecapsulation(t *testing.T) {
	// put returns a frame of the session with values at an index of PPPoE's header: version and type, code, session,
	// length, PPP's protocol.
	put := func(index int, values ...byte) []byte {
		f := inSession(udp())
		copy(f[packetStart+index:], values)
		return f
	}
	for name, c := range map[string]struct {
		frame  []byte
		kernel []byte
		reason string
	}{
		"TCP":                 {inSession(tcp()), tcp(), "forwarded"},
		"padded":              {append(inSession(udp()), make([]byte, 8)...), udp(), "forwarded"},
		"a SYN":               {inSession(tcp(syn, mssOption(1400, 0))), tcp(syn, mssOption(1400, 0)), "forwarded"},
		"a SYN, clamped":      {inSession(tcp(syn, mssOption(1460, 0))), tcp(syn, mssOption(1452, 0)), "forwarded"},
		"a SYN, clamped, odd": {inSession(tcp(syn, mssOption(1460, 1))), tcp(syn, mssOption(1452, 1)), "forwarded"},
		"without PPPoE":       {frame(clientMAC, virtio{}, udp()), nil, "wrong-mac"},
		"another session":     {put(2, 0x12, 0x35), nil, "wrong-mac"},
		"another MAC":         {sentBy(strangerMAC, inSession(udp())), nil, "wrong-mac"},
		"no session":          {put(2, 0, 0), nil, "malformed"},
		"too long":            {put(4, 0xff, 0), nil, "malformed"},
		"too short":           {put(4, 0, 20), nil, "malformed"},
		"IPv6":                {put(6, 0, 0x57), nil, "ipv6"},
		"LCP":                 {put(6, 0xc0, 0x21), nil, ""},
		"a code":              {put(1, 0xa7), nil, ""},
		"version 2":           {put(0, 0x21), nil, ""},
		"cut":                 {inSession(udp())[:packetStart+5], nil, ""},
	} {
		for _, fast := range []bool{false, true} {
			b := newPPPoEBench(t)
			kernel, lan := b.in(t, fast, c.frame)
			if got := bytes.Join(kernel, nil); !bytes.Equal(got, c.kernel) || len(lan) > 0 {
				t.Errorf("%s, fast %v: the kernel got\n%x, want\n%x, and the LAN %x", name, fast, got, c.kernel, lan)
			}
			n, err := b.table.Packets()
			must(t, err)
			for reason, k := range n {
				if (reason == c.reason) != (k == 1) {
					t.Errorf("%s, fast %v: %d packets %s, want one %s", name, fast, k, reason, c.reason)
				}
			}
		}
	}
}

// sentBy gives a frame a sender.
func sentBy(m datapath.MAC, f []byte) []byte {
	copy(f[frameStart+6:], m[:])
	return f
}

// TestFragments: fragments hold the whole packet, and are no longer than the MTU.
func TestFragments(t *testing.T) {
	whole := udp(carrying(bytes.Repeat([]byte("0123456"), 500)), func(p *packet) { p.ip.Flags = 0 })
	var got []byte
	fragments(whole, 1492, make([]byte, 2000), func(part []byte) {
		place := binary.BigEndian.Uint16(part[6:])
		if len(part) > 1492 || int(binary.BigEndian.Uint16(part[2:])) != len(part) || fold(sum(part[:ipLen], 0)) != 0xffff {
			t.Errorf("a fragment of %d bytes: %x", len(part), part[:ipLen])
		}
		if int(place&0x1fff)*8 != len(got) || (place&0x2000 == 0) != (len(got)+len(part)-ipLen == len(whole)-ipLen) {
			t.Errorf("after %d bytes, a fragment says of its offset and flags %x", len(got), place)
		}
		got = append(got, part[ipLen:]...)
	})
	if !bytes.Equal(got, whole[ipLen:]) {
		t.Errorf("%d bytes of %d, or others", len(got), len(whole)-ipLen)
	}
}

// FuzzClamp: whatever options a SYN has, lowering its MSS changes the MSS and the checksum only, and the checksum stays
// right.
func FuzzClamp(f *testing.F) {
	for _, o := range [][]byte{{2, 4, 5, 180}, {1, 2, 4, 5, 180}, {3, 0}, {2, 4}, {0, 2, 4, 5, 180}} {
		f.Add(o)
	}
	f.Fuzz(func(t *testing.T, options []byte) {
		options = options[:min(len(options), 40)&^3]
		ip := append(tcp(syn), options...)
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		ip[ipLen+12] = byte(5+len(options)/4) << 4
		before := bytes.Clone(ip)
		clamp(ip, 1492)
		differ := 0
		for i := range ip {
			if ip[i] != before[i] && (i < ipLen+tcpChecksum || i > ipLen+tcpChecksum+1) {
				differ++
			}
		}
		if differ > 2 {
			t.Errorf("%x became %x", before, ip)
		}
		if fold(sum(ip[ipLen:], pseudo(ip, len(ip)-ipLen))) != fold(sum(before[ipLen:], pseudo(before, len(before)-ipLen))) {
			t.Errorf("the checksum does not follow: %x became %x", before, ip)
		}
	})
}
