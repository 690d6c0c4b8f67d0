package datapathtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// floods are the behaviours against a stranger who sends without end: what the gateway keeps and sends because of it
// stays within budgets (datapath.Budgets), and other strangers are served.
var floods = []behaviour{{"FloodsOfAStranger", floodsOfAStranger, Shape{Learn: true}}}

// flooding is how many packets of each kind a flood has: more than a stranger's budgets allow.
const flooding = 600

// floodsOfAStranger runs the floods one after the other in one network.
func floodsOfAStranger(t *testing.T, w *World) {
	w.lease(t, w.Alice, w.Bob)
	t.Run("connections, datagrams and refusals", func(t *testing.T) { connectionFlood(t, w) })
	t.Run("ARP", func(t *testing.T) { arpFlood(t, w) })
	t.Run("DHCP", func(t *testing.T) { dhcpFlood(t, w) })
	t.Run("newcomers", func(t *testing.T) { newcomerFlood(t, w) })
}

// connectionFlood: Bob sends packets that open connections or are refused, each from another port and from one of his
// four addresses in turn, while the kernel tracks connections. Meanwhile Alice, who is not logged in either, is served
// by the portal, the garden and DNS, and keeps the connection that she has. Long: the steps of one run, each of which
// needs the state that the one before left.
func connectionFlood(t *testing.T, w *World) {
	must(t, w.OpenGarden("198.51.100.9/32", time.Time{}))
	w.Router.Run(t, "iptables -t nat -A POSTROUTING -o wan0 -j MASQUERADE")
	t.Cleanup(func() { w.Router.Run(t, "iptables -t nat -F") })
	// Without this rule Bob's kernel would reset the connections that answers open.
	w.Bob.Run(t, "iptables -A OUTPUT -p tcp --tcp-flags RST RST -j DROP")
	go answerAll(listen(t, w.Server, netip.AddrPortFrom(Garden, 80)))
	kept, err := dial(w.Alice.Space, w.Alice.Addr, netip.AddrPortFrom(Server, 80))
	must(t, err)
	defer kept.Close()
	lan := NewWire(t, w.Bob.Space, clientLink)
	bobs := []Station{w.Bob}
	for n := range byte(3) {
		bobs = append(bobs, Station{w.Bob.Space, netip.AddrFrom4([4]byte{10, 1, 0, 200 + n}), w.Bob.MAC, 0})
	}
	w.lease(t, bobs...)
	t.Cleanup(func() {
		for _, s := range bobs[1:] {
			must(t, w.Remove(s.Addr))
		}
	})
	began, sent := time.Now(), uint16(0)
	more := func() {
		for range flooding {
			lan.Send(t, flood(bobs[sent%4], sent)...)
			sent++
		}
	}
	more()
	w.others(t, w.Alice)
	// On a slow machine the budget grows meanwhile. Of the packets of each kind two are datagrams.
	for 2*int(sent) < allowed(time.Since(began), datapath.Datagram)*4/3 {
		more()
	}
	kept.SetDeadline(time.Now().Add(patience))
	if _, err := kept.Write([]byte("GET / HTTP/1.1\r\nHost: www.example.org\r\n\r\n")); err != nil {
		t.Errorf("on a connection to the portal from before the flood: %v", err)
	}
	if n, err := kept.Read(make([]byte, 4096)); n == 0 {
		t.Errorf("the portal's answer on a connection from before the flood: %v", err)
	}
	tracked, err := strconv.Atoi(strings.TrimSpace(w.Router.Run(t, "cat /proc/sys/net/netfilter/nf_conntrack_count")))
	must(t, err)
	got := answers(lan.Frames(), w.Bob)
	bounded(t, time.Since(began), tracked, "connections tracked", datapath.Datagram, datapath.Connection, datapath.Capture,
		datapath.GardenFlow)
	bounded(t, time.Since(began), got["refusal"], "refusals", datapath.Refusal, datapath.Connection)
	bounded(t, time.Since(began), got["connection"], "connections accepted", datapath.Connection, datapath.Capture)
	bounded(t, time.Since(began), got["datagram"], "datagrams answered", datapath.Datagram)
	if w.Packets(t)["throttled"] == 0 {
		t.Error("nothing was counted as throttled")
	}
}

// allowed returns how many packets of some kinds of work a stranger may cause within a time, with 60 for Alice and the
// test itself.
func allowed(took time.Duration, kinds ...datapath.Work) int {
	most := 60
	for _, k := range kinds {
		b := datapath.Budgets[k]
		most += b.AtOnce + int(b.EachSecond*took.Seconds())
	}
	return most
}

// bounded checks that a stranger caused no more work of these kinds within a time than allowed.
func bounded(t *testing.T, took time.Duration, n int, label string, kinds ...datapath.Work) {
	t.Helper()
	most := allowed(took, kinds...)
	t.Logf("%s: %d, at most %d in %s", label, n, most, took.Round(time.Millisecond))
	if n > most {
		t.Errorf("%s: %d, and a stranger may have %d", label, n, most)
	}
}

// flood returns a station's nth packet of each kind.
func flood(s Station, n uint16) [][]byte {
	asSender, port := By(s), SourcePort(10000+n)
	echo := func(f *Frame) { f.L4.(*layers.ICMPv4).Id = n }
	elsewhere := To(netip.AddrFrom4([4]byte{203, 0, byte(113 + n>>8), byte(n)}))
	return [][]byte{
		SYN(80, asSender, port, elsewhere), TCP(80, asSender, SourcePort(20000+n), elsewhere), // captured, or reset
		SYN(443, asSender, port, elsewhere), UDP(443, asSender, port, elsewhere), // refused
		SYN(80, asSender, port, To(Garden)), TCP(443, asSender, port, To(Garden)), UDP(443, asSender, port, To(Garden)),
		Echo(asSender, echo, To(Garden)),
		SYN(portalPort, asSender, port, To(Gateway)), TCP(portalPort, asSender, SourcePort(20000+n), To(Gateway)),
		UDP(dnsPort, asSender, port, To(Gateway)), Echo(asSender, echo, To(Gateway)),
	}
}

// others checks that another stranger is served while one floods the gateway.
func (w *World) others(t *testing.T, s Station) {
	t.Helper()
	if got, err := get(s, Server); !strings.Contains(got, "portal: "+s.Addr.String()+":") || err != nil {
		t.Errorf("in a flood, the portal: %q, %v", got, err)
	}
	if got, err := get(s, Garden); got != "the site itself" || err != nil {
		t.Errorf("in a flood, the garden: %q, %v", got, err)
	}
	if got, err := exchange(s, netip.AddrPortFrom(Gateway, dnsPort), "a name"); got != "a name" || err != nil {
		t.Errorf("in a flood, DNS: %q, %v", got, err)
	}
}

// answers counts the gateway's answers to a station, by kind; repeated answers count once.
func answers(frames [][]byte, to Station) map[string]int {
	n, seen := map[string]int{}, map[string]bool{}
	for _, f := range frames {
		if len(f) < 42 || !bytes.Equal(f[:6], to.MAC[:]) || !bytes.Equal(f[6:12], LANMAC[:]) || f[12] != 8 || f[13] != 0 ||
			bytes.Equal(f[26:30], Garden.AsSlice()) {
			continue
		}
		kind := "datagram"
		switch l4 := f[34:]; {
		case f[23] == unix.IPPROTO_TCP && l4[13]&4 != 0, f[23] == unix.IPPROTO_ICMP && l4[0] == 3:
			n["refusal"]++
			continue
		case f[23] == unix.IPPROTO_TCP:
			kind = "connection"
		}
		if key := kind + string(f[26:42]); !seen[key] {
			seen[key] = true
			n[kind]++
		}
	}
	return n
}

// arpFlood: a client asks for the gateway without end, as does a device without an address (RFC 5227, 2.1.1); another
// client and another probe are answered meanwhile.
func arpFlood(t *testing.T, w *World) {
	none := netip.IPv4Unspecified()
	for name, c := range map[string]struct {
		of, others Station
		most       func(time.Duration) int
	}{
		"a client": {w.Bob, w.Alice, func(took time.Duration) int { return allowed(took, datapath.Question) }},
		"a device": {Station{w.Intruder.Space, none, w.Intruder.MAC, 0}, Station{w.Alice.Space, none, w.Alice.MAC, 0},
			func(took time.Duration) int {
				return 60 + datapath.Senders.AtOnce + int(datapath.Senders.EachSecond*took.Seconds())
			}},
	} {
		lan, alice := NewWire(t, c.of.Space, clientLink), NewWire(t, c.others.Space, clientLink)
		began, before := time.Now(), w.Packets(t)["throttled"]
		for sent := 0; sent < 2*c.most(time.Since(began)); sent++ {
			lan.Send(t, ARP(1, c.of.Addr, c.of.MAC, Gateway))
		}
		netnstest.Await(t, "an answer to others", func() error {
			if asked := arpAnswers(alice.Frames(), c.others); asked > 0 {
				return nil
			}
			alice.Send(t, ARP(1, c.others.Addr, c.others.MAC, Gateway))
			return errors.New("none came")
		})
		netnstest.Await(t, "an answer to "+name, func() error { // the wire may not have read it yet
			if arpAnswers(lan.Frames(), c.of) == 0 {
				return errors.New("none came")
			}
			return nil
		})
		if n, most := arpAnswers(lan.Frames(), c.of), c.most(time.Since(began)); n > most {
			t.Errorf("%s got %d answers by ARP, and may have %d", name, n, most)
		}
		if w.Packets(t)["throttled"] == before {
			t.Errorf("no packet of %s was counted as throttled", name)
		}
	}
}

// arpAnswers counts the gateway's answers to a station by ARP.
func arpAnswers(frames [][]byte, to Station) (n int) {
	for _, f := range frames {
		if isARP(f) && f[21] == 2 && bytes.Equal(f[:6], to.MAC[:]) && bytes.Equal(f[28:32], Gateway.AsSlice()) {
			n++
		}
	}
	return n
}

// dhcpFlood: a device without a lease sends DHCP requests without end. Only as many arrive as a device may send, and
// requests of other devices arrive. Packet sockets are not checked: they see requests ahead of the data path, and their
// reader bounds them itself.
func dhcpFlood(t *testing.T, w *World) {
	lan := NewWire(t, w.Intruder.Space, clientLink)
	const first, other, leased uint32 = 1000, 1, 2
	discover := func(id uint32, m datapath.MAC) []byte {
		return UDP(dhcpPort, SourcePort(68), From(netip.IPv4Unspecified(), m),
			To(netip.AddrFrom4([4]byte{255, 255, 255, 255})), Via(everybody), Carrying(bootp(id)))
	}
	began := time.Now()
	for n := range uint32(flooding) {
		lan.Send(t, discover(first+n, w.Intruder.MAC))
	}
	others := map[uint32][]byte{
		other:  discover(other, datapath.MAC{2, 0, 0, 0, 9, 9}),
		leased: UDP(dhcpPort, SourcePort(68), By(w.Bob), To(Gateway), Carrying(bootp(leased))),
	}
	var seen Sightings
	netnstest.Await(t, "the others' requests", func() (err error) {
		for id, frame := range others {
			if seen.FrameDHCP[id]+seen.SocketDHCP[id]+seen.PacketDHCP[id] == 0 {
				lan.Send(t, frame) // more than once, because a socket's queue may have been full
				err = errors.New("not all have come")
			}
		}
		seen = w.Seen(t)
		return err
	})
	b := datapath.Senders
	most := b.AtOnce + int(b.EachSecond*time.Since(began).Seconds()) + len(others)
	heard := map[string]map[uint32]int{"the gateway": seen.FrameDHCP}
	if w.path.DHCPSocket {
		heard["a socket"] = seen.SocketDHCP
	}
	for label, ids := range heard {
		if len(ids) > most {
			t.Errorf("%s got %d requests, of a device that may send %d", label, len(ids), most)
		}
	}
}

// newcomerFlood: where another program leases addresses, a device that sends from one address after the other is
// reported only as often as a device may be, and another newcomer is reported.
func newcomerFlood(t *testing.T, w *World) {
	if !w.path.Newcomers {
		t.Log("it promises to work with the gateway's own DHCP only")
		return
	}
	lan := NewWire(t, w.Intruder.Space, clientLink)
	began := time.Now()
	for n := range uint16(flooding) {
		addr := netip.AddrFrom4([4]byte{10, 1, 0, byte(100 + n%100)})
		lan.Send(t, UDP(443, From(addr, w.Intruder.MAC)),
			inAnothersFrame(ARP(1, addr, datapath.MAC{2, 1, 0, 0, byte(n >> 8), byte(n)}, Gateway), w.Intruder.MAC))
	}
	other := Newcomer{netip.MustParseAddr("10.1.0.40"), datapath.MAC{2, 0, 0, 0, 0, 40}}
	var seen []Newcomer
	netnstest.Await(t, "word of another newcomer", func() error {
		if seen = w.Seen(t).Newcomers; !slices.Contains(seen, other) {
			lan.Send(t, UDP(443, From(other.Addr, other.MAC)))
			return errors.New("none came")
		}
		return nil
	})
	b, n := datapath.Senders, 0
	for _, s := range seen {
		if s.MAC == w.Intruder.MAC {
			n++
		} else if s != other {
			t.Errorf("the gateway was told of %v, which only ARP in another device's frame names", s)
		}
	}
	if most := b.AtOnce + int(b.EachSecond*time.Since(began).Seconds()); n > most || n == 0 {
		t.Errorf("the gateway was told %d times of a device, of which it may be told %d times", n, most)
	}
}

// bootp returns the beginning of a DHCP client's message.
func bootp(id uint32) []byte {
	b := make([]byte, 300)
	b[0], b[1], b[2] = 1, 1, 6
	binary.BigEndian.PutUint32(b[4:], id)
	return b
}
