package datapathtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// brokenFrames: truncated frames and frames with wrong lengths are never forwarded, not even for admitted clients.
func brokenFrames(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	server := NewWire(t, w.Server, serverLink)
	referenceFlow := w.Up(t, w.Alice)
	for name, s := range map[string]Station{"admitted": w.Alice, "before login": w.Bob, "who has no lease": w.Intruder} {
		t.Run(name, func(t *testing.T) {
			lan, attempts := NewWire(t, s.Space, clientLink), broken(s)
			if w.path.LeavesSums && name == "admitted" && w.place != netnstest.OnGateway { // whose netfilter drops it
				wrong := attempts["a wrong sum"].frame
				delete(attempts, "a wrong sum")
				w.staysWrong(t, lan, server, wrong)
			}
			w.expectDropped(t, lan, server, attempts, referenceFlow)
		})
	}
}

// staysWrong checks that the gateway forwards a frame with a wrong IP checksum, and does not correct it.
func (w *World) staysWrong(t *testing.T, from, far *Wire, wrong []byte) {
	seen := len(far.Frames())
	from.Send(t, wrong)
	netnstest.Await(t, "a frame with a wrong sum", func() error {
		for _, f := range far.Frames()[seen:] {
			if len(f) == len(wrong) && bytes.Equal(f[26:], wrong[26:]) {
				if bytes.Equal(f, resum(bytes.Clone(f))) {
					t.Error("its sum is right now")
				}
				return nil
			}
		}
		return errors.New("none came")
	})
}

// broken returns frames of a station that are truncated or have wrong lengths.
func broken(s Station) map[string]attempt {
	whole := TCP(443, By(s))
	out := map[string]attempt{}
	add := func(name string, frame []byte) { out[name] = attempt{frame, "-"} }
	for _, n := range []int{14, 15, 20, 33, 34, 35, 38, 46, 53, 54, 60, len(whole) - 1} {
		add(fmt.Sprintf("cut after %d bytes", n), whole[:n])
	}
	changed := func(index int, to byte) []byte {
		b := bytes.Clone(whole)
		b[index] = to
		return resum(b)
	}
	add("a header of 16 bytes", changed(14, 0x44))
	add("a header of no bytes", changed(14, 0x40))
	add("IPv5", changed(14, 0x55))
	add("IPv6 inside", changed(14, 0x65))
	add("a length of 19", changed(17, 19))
	add("a length of 0", changed(17, 0))
	add("a length beyond its end", changed(16, 0x05))
	add("a wrong sum", func() []byte { b := bytes.Clone(whole); b[24] ^= 0xff; return b }())
	longHeader := append(bytes.Clone(whole[:40]), whole[34:]...)
	longHeader[14] = 0x4f // 60 bytes
	binary.BigEndian.PutUint16(longHeader[16:], 40)
	add("a header longer than its packet", resum(longHeader))
	add("ARP, cut", EtherType(0x0806, bytes.Clone(whole[:30])))
	add("IPv6, cut", EtherType(0x86dd, bytes.Clone(whole[:30])))
	add("a tag, cut", Tagged(whole, 0x8100, 0)[:17])
	add("a length of 802.3", EtherType(100, bytes.Clone(whole)))
	add("an unknown EtherType", EtherType(0x1234, bytes.Clone(whole)))
	return out
}

// resum recomputes the checksum of an IPv4 header without options.
func resum(frame []byte) []byte {
	binary.BigEndian.PutUint16(frame[24:], 0)
	var sum uint32
	for index := 14; index < 34; index += 2 {
		sum += uint32(binary.BigEndian.Uint16(frame[index:]))
	}
	binary.BigEndian.PutUint16(frame[24:], ^uint16(sum+sum>>16))
	return frame
}

// arpGames: a station that claims Alice's address by ARP gets none of her packets, and only the gateway answers for the
// gateway's address.
func arpGames(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Begin()
	up.Passes(t, "before anything is forged")
	lan, server := NewWire(t, w.Intruder.Space, clientLink), NewWire(t, w.Server, serverLink)
	lan.Send(t, ARP(1, w.Bob.Addr, w.Bob.MAC, Gateway))
	netnstest.Await(t, "an answer from the gateway", func() error {
		for _, f := range lan.Frames() {
			if isARP(f) && bytes.Equal(f[6:12], LANMAC[:]) && f[21] == 2 && bytes.Equal(f[28:32], Gateway.AsSlice()) {
				return nil
			}
		}
		return errors.New("none came")
	})
	before := w.Packets(t)["arp-spoof"]
	forged := [][]byte{
		ARP(1, w.Alice.Addr, w.Intruder.MAC, Gateway), ARP(2, w.Alice.Addr, w.Intruder.MAC, Gateway),
		ARP(1, w.Alice.Addr, w.Intruder.MAC, w.Alice.Addr),
		ARP(1, Gateway, w.Intruder.MAC, w.Alice.Addr), ARP(2, Gateway, w.Intruder.MAC, Gateway),
		ARP(1, w.Intruder.Addr, w.Intruder.MAC, Gateway),
		ARP(2, Server, w.Intruder.MAC, Gateway),
		inAnothersFrame(ARP(1, w.Alice.Addr, w.Alice.MAC, Gateway), w.Intruder.MAC),
		inAnothersFrame(ARP(2, w.Bob.Addr, w.Bob.MAC, Gateway), w.Intruder.MAC),
		inAnothersFrame(ARP(1, w.Bob.Addr, w.Intruder.MAC, Gateway), w.Bob.MAC),
	}
	for range 3 {
		lan.Send(t, forged...)
	}
	netnstest.Await(t, "counts of what was forged", func() error {
		if n := w.Packets(t)["arp-spoof"] - before; n < uint64(3*len(forged)) {
			return fmt.Errorf("%d of %d", n, 3*len(forged))
		}
		return nil
	})
	from := len(lan.Frames())
	down.Begin()
	down.Passes(t, "to Alice, with her address claimed")
	for _, f := range lan.Frames()[from:] {
		if isMark(f) && bytes.Equal(f[30:34], w.Alice.Addr.AsSlice()) && !bytes.Equal(f[:6], w.Alice.MAC[:]) {
			t.Fatalf("a packet for Alice goes to %x", f[:6])
		}
	}
	if n := holding(server.Frames(), string(w.Intruder.MAC[:])); n > 0 {
		t.Errorf("the WAN heard of the intruder's MAC %d times", n)
	}
}

// ipv6: IPv6 is dropped, although the stack would forward it.
func ipv6(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	on := "sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0;"
	w.Router.Run(t, on+`sysctl -qw net.ipv6.conf.all.forwarding=1
ip addr add 2001:db8:1::1/64 dev lan0 nodad; ip addr add 2001:db8:2::1/64 dev wan0 nodad`)
	w.Alice.Run(t, on+`ip addr add 2001:db8:1::2/64 dev c0 nodad; ip route add default via 2001:db8:1::1`)
	w.Server.Run(t, on+`ip addr add 2001:db8:2::2/64 dev s0 nodad; ip route add default via 2001:db8:2::1`)
	w.Router.Run(t, "ping -6 -c 1 -W 5 2001:db8:2::2") // shows that the WAN forwards it
	before := w.Packets(t)["ipv6"]
	if out, err := w.Alice.Try("ping -6 -c 1 -W 1 2001:db8:2::2"); err == nil {
		t.Errorf("IPv6 passes:\n%s", out)
	}
	w.Alice.Run(t, "ip neigh replace 2001:db8:1::1 lladdr 02:00:00:00:01:01 dev c0")
	if out, err := w.Alice.Try("ping -6 -c 1 -W 1 2001:db8:2::2"); err == nil {
		t.Errorf("IPv6 passes with a neighbour that was not asked for:\n%s", out)
	}
	if w.Packets(t)["ipv6"] == before {
		t.Error("it was not counted")
	}
	w.Kill(t)
	w.makeAgain(t, true, false)
	w.Router.Run(t, "ip addr add 2001:db8:1::1/64 dev lan0 nodad")
	if out, err := w.Alice.Try("ping -6 -c 1 -W 1 2001:db8:2::2"); err == nil {
		t.Errorf("IPv6 passes where the LAN's interface was made again:\n%s", out)
	}
}

// throughTheGateway: two admitted clients reach each other through the gateway, and are counted as with the server;
// other clients cannot be reached.
func throughTheGateway(t *testing.T, w *World) {
	for _, s := range []struct{ from, to Station }{{w.Alice, w.Bob}, {w.Bob, w.Alice}, {w.Alice, w.Intruder}} {
		s.from.Run(t, "sysctl -qw net.ipv4.conf.all.accept_redirects=0 net.ipv4.conf.c0.accept_redirects=0; ip route add "+
			s.to.Addr.String()+" via 10.1.0.1")
	}
	w.admit(t, w.Alice, w.Bob)
	flow := NewFlow(t, w.Alice.Space, w.Alice.Addr, w.Bob.Space, w.Bob.Addr)
	flow.Begin()
	flow.Passes(t, "from Alice to Bob")
	flow.Halt()
	netnstest.Await(t, "the counters", func() error {
		n, bytes := flow.Came(), flow.Came()*(20+8+FlowBytes)
		a, b := w.tally(t, w.Alice), w.tally(t, w.Bob)
		if want := (tally{upBytes: bytes, upPackets: n}); a != want {
			return fmt.Errorf("counted %+v to Alice, who sent %+v", a, want)
		}
		if want := (tally{downBytes: bytes, downPackets: n}); b != want {
			return fmt.Errorf("counted %+v to Bob, who got %+v", b, want)
		}
		return nil
	})
	w.Alice.Run(t, "ping -c 1 -W 5 "+w.Bob.Addr.String())
	w.lease(t, w.Bob)
	hub := NewWire(t, w.Bob.Space, clientLink)
	for _, to := range []Station{w.Bob, w.Intruder} {
		if out, err := w.Alice.Try("ping -c 2 -i 0.1 -W 1 " + to.Addr.String()); err == nil {
			t.Errorf("Alice reaches %s:\n%s", to.Addr, out)
		}
	}
	for _, f := range hub.Frames() {
		if len(f) > 34 && !isARP(f) && bytes.Equal(f[6:12], LANMAC[:]) && !bytes.Equal(f[:6], w.Alice.MAC[:]) {
			t.Errorf("the gateway sent to a stranger:\n%s", anatomy(f))
		}
	}
}

// otherInterfaces: hosts behind a third interface are treated like those behind the WAN.
func otherInterfaces(t *testing.T, w *World) {
	third := w.uplink(t, "third0", nil)
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	host := netip.MustParseAddr("10.9.0.2")
	up, down := NewFlow(t, w.Alice.Space, w.Alice.Addr, third, host), NewFlow(t, third, host, w.Alice.Space, w.Alice.Addr)
	// A moment after the interface has come, packets may still be sent to the WAN.
	first := NewFlow(t, w.Alice.Space, w.Alice.Addr, third, host)
	first.Begin()
	first.Passes(t, "to another interface")
	first.Halt()
	since := w.stableTraffic(t, w.Alice)
	w.sendReference(t, up, 20)
	w.sendReference(t, down, 30)
	w.counts(t, w.Alice, since, tally{20 * (headers + FlowBytes), 20, 30 * (headers + FlowBytes), 30})
	for _, s := range []Station{w.Bob, w.Intruder} {
		up, down := NewFlow(t, s.Space, s.Addr, third, host), NewFlow(t, third, host, s.Space, s.Addr)
		up.Send(50)
		down.Send(50)
		up.Settled(t, 0, "up, of "+s.Addr.String())
		down.Settled(t, 0, "down, to "+s.Addr.String())
	}
}

// newcomers: where another program leases addresses, the data path reports unknown clients, and none of their packets
// pass before the gateway admits them. It goes on reporting while the gateway still decides about one (slow). Long: the
// steps of one run, each of which needs the state that the one before left.
func newcomers(t *testing.T, w *World) {
	if !w.path.Newcomers {
		t.Log("it promises to work with the gateway's own DHCP only")
		return
	}
	flow := w.Up(t, w.Bob)
	flow.Begin()
	want := Newcomer{w.Bob.Addr, w.Bob.MAC}
	netnstest.Await(t, "word of a newcomer", func() error {
		if got := w.Seen(t).Newcomers; !slices.Contains(got, want) {
			return fmt.Errorf("told of %v", got)
		}
		return nil
	})
	flow.Stops(t, "nobody let the newcomer in")
	w.lease(t, w.Bob)
	flow.Stops(t, "a newcomer before login")
	w.admit(t, w.Bob)
	flow.Passes(t, "from a newcomer that was let in")
	says(t, w.Alice.Space, "ping -c 1 -W 1 10.1.0.1", "100% packet loss") // ARP is answered, and the ping is not
	netnstest.Await(t, "word of another newcomer", func() error {
		if got := w.Seen(t).Newcomers; !slices.Contains(got, Newcomer{w.Alice.Addr, w.Alice.MAC}) {
			return fmt.Errorf("told of %v", got)
		}
		return nil
	})
	// This client knows the gateway's MAC address, and sends no ARP request.
	quiet := Newcomer{netip.MustParseAddr("10.1.0.40"), datapath.MAC{2, 0, 0, 0, 0, 40}}
	NewWire(t, w.Intruder.Space, clientLink).Send(t, UDP(443, From(quiet.Addr, quiet.MAC)))
	netnstest.Await(t, "word of one who never asked by ARP", func() error {
		if got := w.Seen(t).Newcomers; !slices.Contains(got, quiet) {
			return fmt.Errorf("told of %v", got)
		}
		return nil
	})
	for _, n := range w.Seen(t).Newcomers {
		if n != want && n != quiet && n != (Newcomer{w.Alice.Addr, w.Alice.MAC}) {
			t.Errorf("told of %v", n)
		}
	}
	wire := NewWire(t, w.Intruder.Space, clientLink)
	for _, next := range []Newcomer{
		{slow, datapath.MAC{2, 0, 0, 0, 0, 60}}, {slow.Next(), datapath.MAC{2, 0, 0, 0, 0, 61}}} {
		wire.Send(t, UDP(443, From(next.Addr, next.MAC)))
		netnstest.Await(t, "word of a newcomer while another one is being decided", func() error {
			if got := w.Seen(t).Newcomers; !slices.Contains(got, next) {
				return fmt.Errorf("told of %v", got)
			}
			return nil
		})
	}
}

// metAtOnce: the packet that makes a newcomer known, here a TCP SYN, is not lost but reaches the portal as soon as the
// newcomer is set. A lost SYN would be sent again after a second.
func metAtOnce(t *testing.T, w *World) {
	if !w.path.Greets {
		t.Log("it promises nothing of the packet that makes a client known")
		return
	}
	atOnce := 0
	for _, s := range []Station{w.Alice, w.Bob, w.Intruder} {
		c, err := dial(s.Space, s.Addr, netip.AddrPortFrom(Server, 80))
		must(t, err)
		if info(t, c).Total_retrans == 0 {
			atOnce++ // on a busy machine not for every newcomer
		}
		must(t, c.SetDeadline(time.Now().Add(patience)))
		_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: www.example.org\r\n\r\n"))
		must(t, err)
		b := make([]byte, 4096)
		n, err := c.Read(b)
		c.Close()
		if err != nil || !strings.Contains(string(b[:n]), "portal: "+s.Addr.String()+":") {
			t.Errorf("a newcomer's HTTP is answered %q, %v", b[:n], err)
		}
	}
	if atOnce == 0 {
		t.Error("the first packet of every newcomer was lost")
	}
}
