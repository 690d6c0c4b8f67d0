package datapathtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// attacks are what somebody may try in order to get past the gateway. The manual lists them in
// docs/reference/gatewayd-attacks.md.
var attacks = []behaviour{
	{"HTTPSAndQUICBeforeLogin", refusedAtOnce, Shape{}},
	{"HTTPSAndQUICBeforeLoginBare", refusedAtOnce, Shape{Bare: true}},
	{"ForgedRefusals", forgedRefusals, Shape{}},
	{"UDPToPort67WithoutLease", dhcpTunnel, Shape{}},
	{"UDPToPort67WithoutLeaseOthersLease", dhcpTunnel, Shape{Learn: true}},
	{"GardenWithTheGatewaysAddress", gardenOfOwn, Shape{}},
	{"OddFramesOfStrangers", oddFrames, Shape{Switch: true}},
	{"NeighboursAndRoutesCannotBePoisoned", poisoned, Shape{}},
}

// refusedAtOnce: a client's first packet is refused, so that a browser falls back to HTTP at once. A program whose
// first packet is lost sends another one, the kernel after a second.
func refusedAtOnce(t *testing.T, w *World) {
	w.lease(t, w.Bob)
	lan := NewWire(t, w.Intruder.Space, clientLink) // the hub sends it every frame
	atOnce := 0
	for host := range byte(5) {
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, 80 + host}), 443)
		if c, err := dial(w.Bob.Space, w.Bob.Addr, to); !errors.Is(err, unix.ECONNREFUSED) {
			if err == nil {
				c.Close()
			}
			t.Fatalf("HTTPS to %s: %v", to, err)
		}
		if err := initial(w.Bob, to); !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("QUIC to %s: %v", to, err)
		}
		// The datagram comes after the SYNs: once it is recorded, so are they.
		netnstest.Await(t, "the datagram to "+to.String(), func() error {
			if sent(lan.Frames(), unix.IPPROTO_UDP, to) == 0 {
				return errors.New("none came")
			}
			return nil
		})
		if sent(lan.Frames(), unix.IPPROTO_TCP, to) == 1 {
			atOnce++ // on a busy machine not for every connection
		}
	}
	if atOnce == 0 {
		t.Error("no connection was refused after its first packet")
	}
}

// sent counts the packets of a protocol, TCP or UDP, to an address and port.
func sent(frames [][]byte, protocol byte, to netip.AddrPort) (n int) {
	for _, f := range frames {
		if len(f) >= 42 && f[23] == protocol && bytes.Equal(f[30:34], to.Addr().AsSlice()) &&
			binary.BigEndian.Uint16(f[36:]) == to.Port() {
			n++
		}
	}
	return n
}

// initial sends one datagram of the size of QUIC's first packet and returns the error that answers it.
func initial(s Station, to netip.AddrPort) (err error) {
	var conn net.Conn
	s.Do(func() {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: s.Addr.AsSlice()}}
		conn, err = d.Dial("udp4", to.String())
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, 1200)); err != nil {
		return err
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	_, err = conn.Read(make([]byte, 2000))
	return err
}

// forgedRefusals: a reset or an ICMP error that the gateway did not make, from the WAN or from behind another
// interface, reaches no client before login, also if it has the mark of the gateway's own refusals.
func forgedRefusals(t *testing.T, w *World) {
	third := w.uplink(t, "third0", nil)
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	for range 3 { // the gateway's own refusals reach the client
		if _, err := talk(w.Bob, netip.AddrPortFrom(Server, 443), "hello"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("HTTPS before login: %v", err)
		}
	}
	lan := NewWire(t, w.Intruder.Space, clientLink)
	host := netip.MustParseAddr("10.9.0.2")
	for name, at := range map[string]struct {
		space         *netnstest.Space
		link          string
		addr          netip.Addr
		viaRouter     func(*Frame)
		referenceFlow *Flow
	}{
		"from the WAN": {w.Server, serverLink, Server, Via(WANMAC), w.Down(t, w.Alice)},
		"from another interface": {
			third, "t0", host, Via([6]byte{2, 0, 0, 0, 1, 3}), NewFlow(t, third, host, w.Alice.Space, w.Alice.Addr)},
	} {
		t.Run(name, func(t *testing.T) {
			forgeMark(t, at.space, at.link)
			w.expectDropped(t, NewWire(t, at.space, at.link), lan, refusals(w.Bob, at.addr, at.viaRouter), at.referenceFlow)
		})
	}
}

// forgeMark has a link mark all frames that it sends as the eBPF programs mark their own refusals. The mark stays with
// frames that cross a veth.
func forgeMark(t *testing.T, s *netnstest.Space, name string) {
	t.Helper()
	const mark, tcIndex = 0x6a77, 44 // in struct __sk_buff
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R2, mark), asm.StoreMem(asm.R1, tcIndex, asm.R2, asm.Word),
		asm.Mov.Imm(asm.R0, -1), asm.Return(), // TCX_NEXT
	}})
	must(t, err)
	t.Cleanup(func() { program.Close() })
	var l link.Link
	s.Do(func() {
		var dev *net.Interface
		if dev, err = net.InterfaceByName(name); err == nil {
			l, err = link.AttachTCX(link.TCXOptions{Program: program, Interface: dev.Index, Attach: ebpf.AttachTCXEgress})
		}
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Log("without tcx no marks are forged")
		return
	}
	must(t, err)
	t.Cleanup(func() { l.Close() })
}

// refusals returns frames like the gateway's refusals of a client's packets. Their sender is a host outside, the
// gateway or the router.
func refusals(of Station, outside netip.Addr, viaRouter func(*Frame)) map[string]attempt {
	asSender := func(a netip.Addr) func(*Frame) {
		return func(f *Frame) {
			f.IP.SrcIP, f.IP.DstIP, f.IP.TTL = a.AsSlice(), of.Addr.AsSlice(), 64
			viaRouter(f)
		}
	}
	reset := func(f *Frame) {
		f.IP.Flags = layers.IPv4DontFragment
		f.L4 = &layers.TCP{SrcPort: 443, DstPort: 40000, Ack: 1001, ACK: true, RST: true}
		f.Payload = nil
	}
	quoted := UDP(443, By(of))[14 : 14+28]
	prohibited := func(f *Frame) {
		f.L4 = &layers.ICMPv4{
			TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeCommAdminProhibited)}
		f.Payload = quoted
	}
	all := map[string]attempt{}
	for name, a := range map[string]netip.Addr{"the host": outside, "the gateway": Gateway, "the router": RouterWAN} {
		reasons := "blocked -"
		if a == outside {
			reasons = "blocked"
		} else if a == Gateway {
			reasons = "foreign-source -"
		}
		all["a reset of "+name] = attempt{TCP(443, asSender(a), reset), reasons}
		all["an ICMP error of "+name] = attempt{Echo(asSender(a), prohibited), reasons}
	}
	return all
}

// dhcpTunnel: a station without a lease may send DHCP messages to the gateway and to all. Its datagrams to DHCP's port
// of other addresses are not forwarded.
func dhcpTunnel(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	must(t, w.OpenGarden("198.51.100.9/32", time.Time{}))
	server, referenceFlow := NewWire(t, w.Server, serverLink), w.Up(t, w.Alice)
	attempts := map[string]attempt{}
	for name, to := range map[string]netip.Addr{
		"a neighbour of the WAN": Server, "a host beyond": Beside, "the garden": Garden,
		"the router's other address": RouterWAN,
		"a client":                   w.Alice.Addr, "nobody": netip.MustParseAddr("10.1.0.200"),
		"everybody at the WAN": netip.MustParseAddr("192.0.2.255"),
	} {
		for owner, source := range map[string]uint16{"a client's port": 68, "a relay's port": 67, "any port": 40000} {
			attempts[fmt.Sprintf("to %s from %s", name, owner)] = attempt{
				UDP(67, SourcePort(source), By(w.Intruder), To(to)), "not-leased"}
		}
		attempts["to "+name+" from no address"] = attempt{
			UDP(67, SourcePort(68), From(netip.IPv4Unspecified(), w.Intruder.MAC), To(to)), "not-leased -"}
	}
	for n := range byte(50) { // from a new address each
		from := netip.AddrFrom4([4]byte{10, 1, 0, 100 + n})
		attempts["from "+from.String()] = attempt{UDP(67, SourcePort(68), From(from, w.Intruder.MAC)), "not-leased"}
	}
	w.expectDropped(t, NewWire(t, w.Intruder.Space, clientLink), server, attempts, referenceFlow)
}

// gardenOfOwn: a walled garden that contains an address of the gateway's machine opens no port there, also if the
// machine gets the address later. A name of the garden may resolve to such an address.
func gardenOfOwn(t *testing.T, w *World) {
	const later = "198.51.100.77"
	w.lease(t, w.Bob)
	for _, prefix := range []string{RouterWAN.String() + "/32", "198.51.100.0/24", later + "/32"} {
		must(t, w.OpenGarden(prefix, time.Time{}))
	}
	service := func(at string) error {
		_, err := talk(w.Bob, netip.AddrPortFrom(netip.MustParseAddr(at), machinePort), "let me in")
		return err
	}
	if err := service(RouterWAN.String()); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port at the WAN's address: %v", err)
	}
	go answerAll(listen(t, w.Server, netip.AddrPortFrom(Garden, 80)))
	if got, err := get(w.Bob, Garden); got != "the site itself" || err != nil {
		t.Errorf("a site of the garden: %q, %v", got, err)
	}
	for _, link := range []string{"lo", "wan0"} {
		w.Router.Run(t, "ip addr add "+later+"/32 dev "+link)
		netnstest.Await(t, "the new address on "+link, func() error {
			if err := service(later); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("a port there: %v", err)
			}
			return nil
		})
		if got, err := get(w.Bob, netip.MustParseAddr(later)); !strings.Contains(got, "portal: ") || err != nil {
			t.Errorf("HTTP to the new address on %s: %q, %v", link, got, err)
		}
		w.Router.Run(t, "ip addr del "+later+"/32 dev "+link)
	}
	w.admit(t, w.Bob)
	if got, err := talk(w.Bob, netip.AddrPortFrom(RouterWAN, machinePort), "let me in"); got != "let me in" || err != nil {
		t.Errorf("a port at the WAN's address after login: %q, %v", got, err)
	}
}
