package datapathtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Flags of oddFrames.
var (
	oddCount = flag.Int("odd-frames", 2500, "how many damaged frames of strangers each data path gets")
	oddSeed  = flag.Uint64("odd-seed", 0, "the seed from which they are made; 0: a new one")
)

// oddFrames: no frame that strangers send leaves the LAN, also if it is damaged at random, with tags, options,
// fragments and others' addresses, while an admitted client's packets pass. Frames that are meant for the link, such as
// those of discovery, broadcasts and routing protocols, do not leave it either, also if an admitted client sends them.
// Long: the steps of one run, each of which needs the state that the one before left.
func oddFrames(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	seed := *oddSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	r := rand.New(rand.NewPCG(seed, 0))
	server, referenceFlow := NewWire(t, w.Server, serverLink), w.Up(t, w.Alice)
	lan := NewWire(t, w.Intruder.Space, clientLink)
	w.sendReference(t, referenceFlow, 1)
	began, replied, whole := forwarded(w.Packets(t)), echoReplies(t, w.Alice), w.ordinary()
	const burst = 100 // between two packets of the reference flow, so that no queue overflows
	for range *oddCount / burst {
		for range burst {
			if f := w.damage(r, whole[r.IntN(len(whole))]); len(f) >= 14 && len(f) <= 1514 {
				lan.Send(t, f)
			}
		}
		w.sendReference(t, referenceFlow, 1)
	}
	// Strangers' forged pings may reach Alice over the hub, and the gateway forwards her kernel's answers.
	answers := func() (all [][]byte) {
		for _, f := range server.Frames() {
			if isEchoReply(f, w.Alice) {
				all = append(all, f)
			}
		}
		return all
	}
	nothing := func() {
		t.Helper()
		w.drained(t, lan, server)
		w.sendReference(t, referenceFlow, 20)
		for _, f := range server.Frames() {
			if !isMark(f) && !isARP(f) && !isEchoReply(f, w.Alice) {
				t.Errorf("-odd-seed %d: this came through:\n%s", seed, anatomy(f))
			}
		}
		if all, n := answers(), echoReplies(t, w.Alice)-replied; len(all) > n {
			t.Errorf("-odd-seed %d: Alice answered %d pings, and %d answers came through. The last:\n%s", seed, n, len(all),
				anatomy(all[len(all)-1]))
		}
	}
	nothing()
	netnstest.Await(t, "the count of what was forwarded", func() error {
		if n, sent := forwarded(w.Packets(t))-began, referenceFlow.Sent()-1+uint64(len(answers())); n != sent {
			return fmt.Errorf("-odd-seed %d: %d packets, %d were", seed, n, sent)
		}
		return nil
	})
	for _, s := range []Station{w.Alice, w.Bob, w.Intruder} {
		wire := NewWire(t, s.Space, clientLink)
		for _, a := range localTalk(s) {
			wire.Send(t, a.frame)
		}
	}
	nothing()
}

// echoReplies counts the pings that a station's kernel has answered.
func echoReplies(t *testing.T, s Station) (n int) {
	t.Helper()
	_, err := fmt.Sscan(s.Run(t,
		`awk '$1 == "Icmp:" && at {print $at} $1 == "Icmp:" && !at {for (i = 2; i <= NF; i++) if ($i == "OutEchoReps") at = i}' /proc/net/snmp`),
		&n)
	must(t, err)
	return n
}

// drained waits until all frames are judged that were sent before it was called. It sends more frames, which reach
// every queue of the data path, because a queue is chosen by the CPU that sends or by a hash of addresses and ports,
// and waits until these are counted: each queue judges its frames in order. Its frames of the LAN have Alice's address
// and another MAC address; those of the WAN are for Bob before his login. lan is a wire of the intruder's, wan one of
// the server's; Alice and Bob have leases.
func (w *World) drained(t *testing.T, lan, wan *Wire) {
	t.Helper()
	sum := func() (n uint64) {
		all := w.Packets(t)
		return all["wrong-mac"] + all["blocked"]
	}
	flows := max(2, 32/runtime.NumCPU()) // in each direction
	before := sum()
	for cpu := range runtime.NumCPU() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked, so that the thread, with its affinity, ends with the goroutine
			var one unix.CPUSet
			one.Set(cpu)
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				t.Error(err)
			}
			for port := range uint16(flows) {
				lan.Send(t, TCP(443, From(w.Alice.Addr, w.Intruder.MAC), SourcePort(30000+port)))
				wan.Send(t, TCP(443, Down, To(w.Bob.Addr), SourcePort(30000+port)))
			}
		}()
		<-done
	}
	netnstest.Await(t, "the last frames", func() error {
		if n, sent := sum()-before, uint64(2*flows*runtime.NumCPU()); n < sent {
			return fmt.Errorf("%d of %d are counted", n, sent)
		}
		return nil
	})
}

// ordinary returns frames of strangers, for damage to change.
func (w *World) ordinary() (all [][]byte) {
	for _, m := range []map[string]attempt{
		unleased(w), spoofed(w), unadmitted(w), broken(w.Bob), broken(w.Intruder), localTalk(w.Bob), localTalk(w.Intruder)} {
		for _, name := range slices.Sorted(maps.Keys(m)) { // so that equal seeds make equal frames
			all = append(all, m[name].frame)
		}
	}
	for _, op := range []uint16{1, 2} {
		all = append(all, ARP(op, w.Alice.Addr, w.Intruder.MAC, Gateway), ARP(op, w.Intruder.Addr, w.Intruder.MAC, Gateway),
			ARP(op, w.Bob.Addr, w.Bob.MAC, w.Alice.Addr))
	}
	return all
}

// damage changes a frame at random. The sender's MAC address never becomes Alice's.
func (w *World) damage(r *rand.Rand, frame []byte) []byte {
	f := bytes.Clone(frame)
	addrs := []netip.Addr{
		w.Alice.Addr, w.Bob.Addr, w.Intruder.Addr, Gateway, Server, RouterWAN, Beside, netip.MustParseAddr("10.1.0.200")}
	for range 1 + r.IntN(4) {
		switch kind := r.IntN(12); {
		case kind == 0:
			f = f[:14+r.IntN(max(1, len(f)-13))]
		case kind == 1:
			f = append(f, make([]byte, r.IntN(60))...)
		case kind == 2:
			f = Tagged(f, []uint16{0x8100, 0x88a8}[r.IntN(2)], uint16(r.IntN(1<<16))&^uint16(r.IntN(2)*0xfff))
		case len(f) < 34:
		case kind == 3:
			binary.BigEndian.PutUint16(f[20:], uint16(r.IntN(1<<16))) // fragment
		case kind == 4:
			f[14] = 0x40 | byte(r.IntN(16))
		case kind == 5:
			binary.BigEndian.PutUint16(f[16:], uint16(r.IntN(1600)))
		case kind == 6:
			f[23] = byte(r.IntN(256))
		case kind == 7:
			copy(f[26:], addrs[r.IntN(len(addrs))].AsSlice())
		case kind == 8:
			copy(f[30:], addrs[r.IntN(len(addrs))].AsSlice())
		case kind == 9:
			copy(f, [][]byte{LANMAC[:], everybody[:], {1, 0, 0x5e, 0, 0, 1}, {1, 0x80, 0xc2, 0, 0, 3}, ServerMAC[:]}[r.IntN(5)])
		default:
			f[12+r.IntN(len(f)-12)] ^= 1 << r.IntN(8)
		}
		if len(f) >= 34 && f[14] == 0x45 && r.IntN(4) > 0 {
			f = resum(f)
		}
	}
	if bytes.Equal(f[6:12], w.Alice.MAC[:]) {
		f[11] ^= 0x80
	}
	return f
}

// localTalk returns a station's frames that are meant for its own link.
func localTalk(s Station) map[string]attempt {
	fromOwn := By(s)
	to := func(a string, mac ...byte) func(*Frame) {
		return func(f *Frame) { To(netip.MustParseAddr(a))(f); Via([6]byte(mac))(f) }
	}
	everyone := func(a string) func(*Frame) { return to(a, everybody[:]...) }
	const any = "blocked not-leased rejected malformed local -"
	all := map[string]attempt{
		"mDNS":           {UDP(5353, SourcePort(5353), fromOwn, to("224.0.0.251", 1, 0, 0x5e, 0, 0, 0xfb)), any},
		"LLMNR":          {UDP(5355, fromOwn, to("224.0.0.252", 1, 0, 0x5e, 0, 0, 0xfc)), any},
		"SSDP":           {UDP(1900, fromOwn, to("239.255.255.250", 1, 0, 0x5e, 0x7f, 0xff, 0xfa)), any},
		"SSDP, by host":  {UDP(1900, fromOwn, to("239.255.255.250", LANMAC[:]...)), any},
		"NetBIOS":        {UDP(137, SourcePort(137), fromOwn, everyone("10.1.0.255")), any},
		"Dropbox":        {UDP(17500, fromOwn, everyone("255.255.255.255")), any},
		"the WAN's all":  {UDP(7777, fromOwn, everyone("192.0.2.255")), any},
		"WAN's all, by ": {UDP(7777, fromOwn, to("192.0.2.255", LANMAC[:]...)), any},
		"by broadcast":   {UDP(443, fromOwn, everyone("192.0.2.2")), any},
		"IGMP":           {Protocol(layers.IPProtocolIGMP, fromOwn, TTL(1), to("224.0.0.22", 1, 0, 0x5e, 0, 0, 0x16)), any},
		"OSPF":           {Protocol(layers.IPProtocolOSPF, fromOwn, TTL(1), to("224.0.0.5", 1, 0, 0x5e, 0, 0, 5)), any},
	}
	six := IPv6(s.MAC)
	for name, next := range map[string][2]byte{"a router advertisement": {134, 0}, "a router solicitation": {133, 0},
		"a neighbour advertisement": {136, 0}, "an IPv6 redirect": {137, 0}} {
		f := bytes.Clone(six)
		f[20] = 58 // ICMPv6
		copy(f[54:], next[:])
		copy(f, []byte{0x33, 0x33, 0, 0, 0, 1})
		copy(f[38:], netip.MustParseAddr("ff02::1").AsSlice())
		all[name] = attempt{f, "ipv6 -"}
	}
	return all
}

// poisoned: neither ARP nor ICMP redirects of strangers, of admitted clients or from the WAN change where the gateway
// sends packets. Long: the steps of one run, each of which needs the state that the one before left.
func poisoned(t *testing.T, w *World) {
	w.admit(t, w.Alice, w.Bob)
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	w.sendReference(t, up, 1)
	w.sendReference(t, down, 1)
	far := "203.0.113.80"
	way := func() string {
		return w.Router.Run(
			t, "for a in "+far+" 192.0.2.2 10.1.0.10 10.1.0.11; do ip route get $a | head -1; done; ip route show cache")
	}
	before := way()
	redirects := func() int {
		out := w.Router.Run(t, `awk '/^Icmp: [0-9]/ {print $9}' /proc/net/snmp`)
		var n int
		fmt.Sscan(out, &n)
		return n
	}
	wan := NewWire(t, w.Server, serverLink)
	wan.Send(t, redirect(Server, RouterWAN, Second, netip.MustParseAddr(far), Via(WANMAC), fromMAC(ServerMAC)),
		redirect(Server, RouterWAN, Second, w.Alice.Addr, Via(WANMAC), fromMAC(ServerMAC)),
		ARP(2, w.Alice.Addr, ServerMAC, RouterWAN), ARP(1, w.Alice.Addr, ServerMAC, RouterWAN))
	netnstest.Await(t, "the redirects", func() error {
		if n := redirects(); n < 2 {
			return fmt.Errorf("the kernel received %d", n)
		}
		return nil
	})
	for _, s := range []Station{w.Bob, w.Intruder} {
		lan := NewWire(t, s.Space, clientLink)
		for _, as := range []netip.Addr{s.Addr, w.Alice.Addr, Gateway, Server} {
			lan.Send(t, redirect(as, Gateway, s.Addr, netip.MustParseAddr(far), fromMAC(s.MAC)),
				redirect(as, RouterWAN, s.Addr, Server, fromMAC(s.MAC)),
				redirect(as, Gateway, s.Addr, w.Alice.Addr, fromMAC(s.MAC)))
		}
		for _, a := range []netip.Addr{w.Alice.Addr, Gateway, Server, RouterWAN, Second} {
			for _, f := range [][]byte{
				ARP(1, a, s.MAC, Gateway), ARP(2, a, s.MAC, Gateway), ARP(1, a, s.MAC, a), ARP(2, a, s.MAC, a)} {
				copy(f, LANMAC[:]) // to the gateway alone, because the clients would believe them
				lan.Send(t, f)
			}
		}
	}
	counts := w.Packets(t)
	NewWire(t, w.Intruder.Space, clientLink).Send(t, TCP(443, By(w.Intruder)))
	w.counted(t, "the last frame", counts, []string{"not-leased+"})
	lan := NewWire(t, w.Intruder.Space, clientLink)
	w.sendReference(t, up, 20)
	w.sendReference(t, down, 20)
	for _, f := range lan.Frames() {
		if isMark(f) && bytes.Equal(f[30:34], w.Alice.Addr.AsSlice()) && !bytes.Equal(f[:6], w.Alice.MAC[:]) {
			t.Fatalf("a packet for Alice goes to %x", f[:6])
		}
	}
	if after := way(); after != before {
		t.Errorf("routes were\n%s\nand are\n%s", before, after)
	}
	for _, line := range strings.Split(w.Router.Run(t, "ip -4 neigh show"), "\n") {
		if err := rightNeighbour(w, line); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
}

// rightNeighbour checks a line of the router's list of neighbours: an address has the MAC address of the station whose
// it is.
func rightNeighbour(w *World, line string) error {
	f := strings.Fields(line)
	index := slices.Index(f, "lladdr")
	if index < 0 || index+1 >= len(f) {
		return nil
	}
	lan := !strings.Contains(line, "dev "+wanLink)
	want := map[string]string{w.Alice.Addr.String(): hw(w.Alice.MAC).String(), w.Bob.Addr.String(): hw(w.Bob.MAC).String(),
		w.Intruder.Addr.String(): hw(w.Intruder.MAC).String()}
	switch {
	case lan && want[f[0]] == "":
		return errors.New("nobody of the LAN")
	case lan && want[f[0]] != f[index+1], !lan && f[index+1] != hw(ServerMAC).String():
		return errors.New("a wrong neighbour")
	}
	return nil
}

// redirect returns an ICMP redirect that tells a host to send packets for a destination to the router via.
func redirect(from, to, via, destination netip.Addr, edits ...func(*Frame)) []byte {
	v := via.As4()
	quoted := UDP(443, func(f *Frame) { f.IP.SrcIP, f.IP.DstIP = to.AsSlice(), destination.AsSlice() })[14 : 14+28]
	return Echo(append([]func(*Frame){func(f *Frame) {
		f.IP.SrcIP, f.IP.DstIP = from.AsSlice(), to.AsSlice()
		f.L4 = &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeRedirect, layers.ICMPv4CodeHost),
			Id: binary.BigEndian.Uint16(v[:]), Seq: binary.BigEndian.Uint16(v[2:])}
		f.Payload = quoted
	}}, edits...)...)
}

// fromMAC changes the sender's MAC address alone.
func fromMAC(m [6]byte) func(*Frame) { return func(f *Frame) { f.Eth.SrcMAC = hw(m) } }
