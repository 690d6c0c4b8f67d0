// Tests of unusual and malformed frames on a real wire between two interfaces, and the functions that make such frames.
// newNetwork makes a LAN with alice and bob and a WAN with a server, and open starts a data path between them
// (main_test.go).

package ebpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// Each odd frame is followed by a frame that must pass (sentinelPort), so that the test knows when the odd one has been
// handled.

// wire has a packet socket at the client's end and one at the server's.
type wire struct {
	client, server int // file descriptors
	sentinels      uint64
}

// wire opens the sockets. The server listens at the ports 443 and sentinelPort, so that it sends no ICMP errors.
func (n network) wire(t *testing.T) *wire {
	t.Helper()
	w := &wire{}
	raw := func(fd *int, name string) func() error {
		return func() (err error) {
			dev, err := net.InterfaceByName(name)
			if err != nil {
				return err
			}
			all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
			if *fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(*fd) })
			return errors.Join(
				unix.Bind(*fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}),
				unix.SetsockoptInt(*fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
				unix.SetsockoptTimeval(*fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}),
			)
		}
	}
	in(t, n.client, raw(&w.client, "c0"))
	in(t, n.server, raw(&w.server, "s0"))
	in(t, n.server, func() error {
		for _, port := range []int{443, sentinelPort} {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
			if err != nil {
				return err
			}
			t.Cleanup(func() { c.Close() })
		}
		return nil
	})
	return w
}

const sentinelPort = 4001

// pass sends a frame from the client, followed by one that must pass, and returns the frames that arrived at either end
// before that one.
func (w *wire) pass(t *testing.T, sent []byte) (all []receivedFrame) {
	t.Helper()
	w.sentinels++
	mark := binary.BigEndian.AppendUint64([]byte("sentinel"), w.sentinels)
	sentinel := udp(sentinelPort, func(f *datapathtest.Frame) { f.Payload = mark })
	for _, b := range [][]byte{sent, sentinel} {
		if _, err := unix.Write(w.client, b); err != nil {
			t.Fatalf("sending %d bytes: %v", len(b), err)
		}
	}
	for {
		c, err := receive(w.server)
		if err != nil {
			t.Fatalf("waiting for what must pass: %v", err)
		}
		if bytes.Contains(c.frame, mark) {
			return all
		}
		if c.of(alice) || c.of(bob) {
			all = append(all, c)
		}
	}
}

// receivedFrame is a frame, and the end at which it arrived.
type receivedFrame struct {
	frame  []byte
	tagged bool
	sent   bool // the end itself sent it
}

// of reports whether the frame came from the other end and contains an address.
func (c receivedFrame) of(a netip.Addr) bool {
	return !c.sent && bytes.Contains(c.frame, a.AsSlice()) && binary.BigEndian.Uint16(c.frame[12:]) != unix.ETH_P_ARP
}

func receive(fd int) (c receivedFrame, err error) {
	b, oob := make([]byte, 65536), make([]byte, 256)
	k, ko, _, from, err := unix.Recvmsg(fd, b, oob, 0)
	if err != nil {
		return c, err
	}
	c.frame = b[:k]
	if ll, ok := from.(*unix.SockaddrLinklayer); ok {
		c.sent = ll.Pkttype == unix.PACKET_OUTGOING
	}
	messages, err := unix.ParseSocketControlMessage(oob[:ko])
	for _, m := range messages {
		if m.Header.Type == unix.PACKET_AUXDATA {
			aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0]))
			c.tagged = aux.Status&unix.TP_STATUS_VLAN_VALID != 0
		}
	}
	return c, err
}

// Functions that change frames.

func cut(k int) func([]byte) []byte { return func(b []byte) []byte { return b[:14+k] } }

// total changes the length of the IP packet; its checksum stays right.
func total(bytes int) func([]byte) []byte {
	return func(b []byte) []byte { binary.BigEndian.PutUint16(b[16:], uint16(bytes)); return summed(b) }
}

func headerLen(words byte) func([]byte) []byte {
	return func(b []byte) []byte { b[14] = b[14]&0xf0 | words; return summed(b) }
}

func version(v byte) func([]byte) []byte {
	return func(b []byte) []byte { b[14] = b[14]&0x0f | v<<4; return summed(b) }
}

// tag inserts an 802.1Q or 802.1ad tag before existing ones.
func tag(ethertype, tci uint16) func([]byte) []byte {
	return func(b []byte) []byte {
		t := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, ethertype), tci)
		return bytes.Join([][]byte{b[:12], t, b[12:]}, nil)
	}
}

func followed(by int) func([]byte) []byte {
	return func(b []byte) []byte { return append(b, bytes.Repeat([]byte{'y'}, by)...) }
}

func summed(b []byte) []byte {
	header := b[14:min(len(b), 14+4*int(b[14]&0x0f))]
	if len(header) < 20 {
		return b
	}
	header[10], header[11] = 0, 0
	var sum uint32
	for i := 0; i+1 < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(header[10:], ^uint16(sum&0xffff+sum>>16))
	return b
}

const (
	dot1q  = uint16(layers.EthernetTypeDot1Q)
	dot1ad = uint16(layers.EthernetTypeQinQ)
)

// oddFrame is an unusual or malformed frame, and what must become of it.
type oddFrame struct {
	spoil []func([]byte) []byte
	// What becomes of it when an admitted client sends it.
	passes  bool
	reason  string // the counter that counts it; "": none
	counted int    // bytes that are counted for the client
}

// oddFrames returns odd frames by name. They are made from an IP packet of 128 bytes: 20 of IP, 8 of UDP, 100 of 'x'.
// Long: a line for each frame.
func oddFrames() map[string]oddFrame {
	type spoil = []func([]byte) []byte
	all := map[string]oddFrame{
		"nothing wrong":                {nil, true, "passed", 128},
		"version 6 in IPv4":            {spoil{version(6)}, false, "malformed", 0},
		"header of 16 bytes":           {spoil{headerLen(4)}, false, "malformed", 0},
		"header beyond its packet":     {spoil{headerLen(15), total(59)}, false, "malformed", 0},
		"header beyond its frame":      {spoil{headerLen(15), cut(40), total(60)}, false, "malformed", 0},
		"longer than its frame by 1":   {spoil{total(129)}, false, "malformed", 0},
		"longer than its frame by far": {spoil{total(65535)}, false, "malformed", 0},
		"shorter than its header":      {spoil{total(19)}, false, "malformed", 0},
		"no length":                    {spoil{total(0)}, false, "malformed", 0},
		"header only":                  {spoil{total(20), cut(20)}, true, "passed", 20},
		"padded":                       {spoil{total(28), cut(46)}, true, "passed", 28},
		"followed by what nobody pays": {spoil{followed(500)}, true, "stack", 128},
		"a little more than padding":   {spoil{total(28), cut(47)}, true, "stack", 28},
		"a priority":                   {spoil{tag(dot1q, 5<<13)}, true, "passed", 128},
		"a priority, 802.1ad":          {spoil{tag(dot1ad, 5<<13)}, true, "passed", 128},
		"a priority, cut":              {spoil{cut(19), tag(dot1q, 5<<13)}, false, "malformed", 0},
		"of a VLAN":                    {spoil{tag(dot1q, 5)}, false, "tagged", 0},
		"of a VLAN, cut":               {spoil{cut(3), tag(dot1q, 5)}, false, "tagged", 0},
		"tag without anything behind": {
			spoil{cut(0), tag(dot1q, 0), func(b []byte) []byte { return b[:16] }}, false, "", 0},
		"of two VLANs":                    {spoil{tag(dot1q, 6), tag(dot1ad, 5)}, false, "tagged", 0},
		"of a VLAN behind a priority":     {spoil{tag(dot1q, 6), tag(dot1q, 7<<13)}, false, "malformed", 0},
		"of a VLAN behind a priority, ad": {spoil{tag(dot1q, 6), tag(dot1ad, 7<<13)}, false, "malformed", 0},
		"two priorities":                  {spoil{tag(dot1q, 1<<13), tag(dot1q, 7<<13)}, false, "malformed", 0},
		"three priorities": {
			spoil{tag(dot1q, 1<<13), tag(dot1q, 2<<13), tag(dot1q, 7<<13)}, false, "malformed", 0},
		"IPv4 as IPv6":         {spoil{ethertype(layers.EthernetTypeIPv6)}, false, "ipv6", 0},
		"IPv6, cut":            {spoil{ethertype(layers.EthernetTypeIPv6), cut(0)}, false, "ipv6", 0},
		"IPv6 with a priority": {spoil{ethertype(layers.EthernetTypeIPv6), tag(dot1q, 5<<13)}, false, "ipv6", 0},
		"IPv4 as MPLS":         {spoil{ethertype(layers.EthernetTypeMPLSUnicast)}, false, "", 0},
		"IPv4 as PPPoE":        {spoil{ethertype(layers.EthernetTypePPPoESession)}, false, "", 0},
		"IPv4 as LLC":          {spoil{ethertype(128)}, false, "", 0},
		"to everybody on the link": {spoil{func(b []byte) []byte { copy(b, "\xff\xff\xff\xff\xff\xff"); return b }},
			false, "local", 0},
		"to a group on the link": {spoil{func(b []byte) []byte { copy(b, "\x01\x00\x5e\x00\x00\x01"); return b }},
			false, "local", 0},
	}
	for k := range 20 {
		all[fmt.Sprintf("IPv4 cut to %d bytes", k)] = oddFrame{spoil{cut(k)}, false, "malformed", 0}
	}
	for k := 20; k < 128; k += 9 {
		all[fmt.Sprintf("IPv4 cut to %d bytes", k)] = oddFrame{spoil{cut(k)}, false, "malformed", 0}
	}
	for k := 21; k < 28; k++ {
		all[fmt.Sprintf("UDP cut to %d bytes", k-20)] = oddFrame{spoil{cut(k), total(k)}, true, "passed", k}
	}
	return all
}

// TestOddFramesOnTheWire sends each odd frame from an admitted and from an unauthenticated client. The admitted
// client's frame is forwarded as by a router, or counted and dropped; the other's never passes.
func TestOddFramesOnTheWire(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	d := n.open(t)
	w := n.wire(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC}))
	for name, c := range oddFrames() {
		t.Run(name, func(t *testing.T) {
			w.pass(t, udp(443)) // the next hop is now cached, for a second
			before, earlier := d.packets(t), counters(t, d, alice)
			came := w.pass(t, spoilt(udp(443), c.spoil))
			got := change(before, d.packets(t))
			checkCame(t, came, c)
			checkCounted(t, got, c.reason)
			// The packet that follows each has headers of 20 and 8 bytes, and 16 bytes of data.
			if bytes := counters(t, d, alice).UpBytes - earlier.UpBytes - 44; bytes != uint64(c.counted) {
				t.Errorf("counted %d bytes, want %d", bytes, c.counted)
			}
			if came := w.pass(t, spoilt(udp(443, from(bob, bobMAC)), c.spoil)); len(came) > 0 {
				t.Errorf("of a client that is not admitted passed % x", came[0].frame)
			}
		})
	}
}

func spoilt(b []byte, edits []func([]byte) []byte) []byte {
	for _, f := range edits {
		b = f(b)
	}
	return b
}

func checkCame(t *testing.T, came []receivedFrame, c oddFrame) {
	t.Helper()
	if !c.passes {
		if len(came) > 0 {
			t.Errorf("passed: % x", came[0].frame)
		}
		return
	}
	if len(came) != 1 {
		t.Fatalf("%d frames passed, want one", len(came))
	}
	f := came[0].frame
	if came[0].tagged || binary.BigEndian.Uint16(f[12:]) != unix.ETH_P_IP {
		t.Errorf("it passed with a tag: % x", f[:18])
	}
	// The length is that of the packet with its header, or an Ethernet frame's least.
	if logged := int(binary.BigEndian.Uint16(f[16:])); len(f) > max(14+logged, 60) || logged != c.counted {
		t.Errorf("%d bytes passed of a packet of %d, want %d", len(f)-14, logged, c.counted)
	}
}

// checkCounted checks that the odd frame was counted under a reason, and the frame after it as passed. The reason
// "passed" is "forwarded" or "stack": each second one packet goes through the stack.
func checkCounted(t *testing.T, got map[string]uint64, reason string) {
	t.Helper()
	passed, want := got["forwarded"]+got["stack"], uint64(1)
	if reason == "passed" || reason == "stack" {
		want = 2
	}
	if passed != want {
		t.Errorf("%d packets passed by the counts %v, want %d", passed, got, want)
	}
	delete(got, "forwarded")
	if reason != "stack" {
		delete(got, "stack")
	}
	if reason != "" && reason != "passed" {
		if got[reason] == 0 {
			t.Errorf("not counted as %s: %v", reason, got)
		}
		delete(got, reason)
	}
	if len(got) > 0 {
		t.Errorf("also counted as %v", got)
	}
}

// TestOddARPOnTheWire: ARP that is truncated or has wrong lengths does not reach the stack, which would learn
// neighbours from it.
func TestOddARPOnTheWire(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	d := n.open(t)
	w := n.wire(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	whole := func() []byte { return arpFrame(alice, aliceMAC)[:42] }
	odd := map[string][]byte{
		"hardware addresses of 8 bytes": func() []byte { b := whole(); b[18] = 8; return b }(),
		"addresses of 16 bytes":         func() []byte { b := whole(); b[19] = 16; return b }(),
		"with a priority, cut":          tag(dot1q, 5<<13)(whole()[:41]),
	}
	for k := 14; k < 42; k++ {
		odd[fmt.Sprintf("cut to %d bytes", k-14)] = whole()[:k]
	}
	for name, b := range odd {
		before := d.packets(t)
		w.pass(t, b)
		if got := change(before, d.packets(t)); got["malformed"] != 1 {
			t.Errorf("%s: counted as %v", name, got)
		}
	}
	before := d.packets(t)
	w.pass(t, whole())
	w.pass(t, tag(dot1q, 5<<13)(whole()))
	if got := change(before, d.packets(t)); got["malformed"] != 0 || got["arp-spoof"] != 0 {
		t.Errorf("nothing wrong, counted as %v", got)
	}
}
