// Tests of the eBPF programs for PPPoE sessions. alice and bob are clients with addresses and MACs of their own, nobody
// is none; own is the host and wireMAC the router; try runs a program over a packet, and check compares verdict (pass,
// shot, redirect) and packet (programs_test.go).

package persona

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/mdlayher/ndp"

	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// acMAC is a concentrator's.
var acMAC = MAC{2, 0, 0, 0, 0, 3}

const aliceSession, bobSession = 0x1234, 7

// inSession is an Ethernet frame's packet in a session.
func inSession(from, to MAC, session uint16, frame []byte) []byte {
	f := pppoe.Frame{To: to, From: from, Session: session, PPP: append([]byte{0, 0x21}, frame[ethernetBytes:]...)}
	return f.Append(nil)
}

// withSessions is a bench whose alice and bob have PPPoE sessions.
func withSessions(t *testing.T) *Link {
	l := loadedPrograms(t)
	if err := l.PutInSession(alice, aliceMAC, SessionID{aliceSession, acMAC}); err != nil {
		t.Fatal(err)
	}
	if err := l.PutInSession(bob, bobMAC, SessionID{bobSession, acMAC}); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestToSession(t *testing.T) {
	l := withSessions(t)
	packet := udpFrame(t, hostMAC, wireMAC, alice, outside, 80)
	verdict, out := try(t, l.objs.ToLan, packet)
	check(t, verdict, pass, out, packet, inSession(aliceMAC, acMAC, aliceSession, packet))
	if got, want := l.counters(t, alice), (Counters{TxPackets: 1, TxBytes: 100}); got != want {
		t.Errorf("counters of alice %+v, want %+v", got, want)
	}
}

func TestFromSession(t *testing.T) {
	plain := udpFrame(t, acMAC, aliceMAC, outside, alice, 80)
	lcp := pppoe.Frame{To: aliceMAC, From: acMAC, Session: aliceSession, PPP: []byte{0xc0, 0x21, 9, 1, 0, 8, 0, 0, 0, 0}}
	for _, tt := range []arrival{
		{"its session", inSession(acMAC, aliceMAC, aliceSession, plain), pass, plain, Counters{RxPackets: 1, RxBytes: 100},
			Refusals{}},
		{"another's session", inSession(acMAC, aliceMAC, bobSession, plain), shot, nil, Counters{Misdirected: 1}, Refusals{}},
		{"another's hardware address", inSession(acMAC, bobMAC, aliceSession, plain), shot, nil, Counters{Misdirected: 1},
			Refusals{}},
		{"from another concentrator", inSession(wireMAC, aliceMAC, aliceSession, plain), shot, nil, Counters{Misdirected: 1},
			Refusals{}},
		{"without a session", plain, shot, nil, Counters{Misdirected: 1}, Refusals{}},
		{"an address nobody has", inSession(acMAC, aliceMAC, aliceSession, udpFrame(t, acMAC, aliceMAC, outside, nobody, 80)),
			shot,
			nil, Counters{}, Refusals{Destination: 1}},
		{"an echo request, which the packet socket reads", lcp.Append(nil), pass, nil, Counters{}, Refusals{}},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, withSessions(t)) })
	}
}

// inSession6 is inSession for IPv6.
func inSession6(from, to MAC, session uint16, frame []byte) []byte {
	f := pppoe.Frame{To: to, From: from, Session: session, PPP: append([]byte{0, 0x57}, frame[ethernetBytes:]...)}
	return f.Append(nil)
}

// withSession6 is a bench whose alice has a PPPoE session with IPv6.
func withSession6(t *testing.T) *Link {
	l := loadedPrograms6(t)
	if err := l.PutInSession(alice6, aliceMAC, SessionID{aliceSession, acMAC}); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestToSession6(t *testing.T) {
	l := withSession6(t)
	packet := packet6(t, hostMAC, wireMAC, alice6, outside6, nil)
	verdict, out := try(t, l.objs.ToLan, packet)
	check(t, verdict, pass, out, packet, inSession6(aliceMAC, acMAC, aliceSession, packet))
}

func TestFromSession6(t *testing.T) {
	plain := packet6(t, acMAC, aliceMAC, outside6, alice6, nil)
	short := inSession6(acMAC, aliceMAC, aliceSession, plain)
	short[ethernetBytes+5]-- // the length in PPPoE's header
	told := packet6(t, acMAC, aliceMAC, router6, netip.IPv6LinkLocalAllNodes(), &ndp.RouterAdvertisement{})
	for _, tt := range []struct {
		name    string
		packet  []byte
		verdict uint32
		want    []byte // nil: as it was
		refused Refusals
	}{
		{"its session", inSession6(acMAC, aliceMAC, aliceSession, plain), pass, plain, Refusals{}},
		{"another's session", inSession6(acMAC, aliceMAC, bobSession, plain), shot, nil, Refusals{}},
		{"another's hardware address", inSession6(acMAC, bobMAC, aliceSession, plain), shot, nil, Refusals{}},
		{"from another concentrator", inSession6(wireMAC, aliceMAC, aliceSession, plain), shot, nil, Refusals{}},
		{"without a session", plain, shot, nil, Refusals{}},
		{"an address nobody has", inSession6(
			acMAC, aliceMAC, aliceSession, packet6(t, acMAC, aliceMAC, outside6, nobody6, nil)),
			shot, nil, Refusals{Destination: 1}},
		{"longer than the frame says", short, shot, nil, Refusals{Malformed: 1}},
		{"cut short", inSession6(acMAC, aliceMAC, aliceSession, plain[:ethernetBytes+20]), shot, nil, Refusals{Malformed: 1}},
		{"an advertisement, which the packet socket reads", inSession6(acMAC, aliceMAC, aliceSession, told), pass, nil,
			Refusals{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := withSession6(t)
			verdict, out := try(t, l.objs.FromLan, tt.packet)
			check(t, verdict, tt.verdict, out, tt.packet, tt.want)
			if got := l.refusals(t); got != tt.refused {
				t.Errorf("refusals %+v, want %+v", got, tt.refused)
			}
		})
	}
}

// TestPrefixInSession: a session takes its /64 from the first advertisement of one of the clients' network.
func TestPrefixInSession(t *testing.T) {
	s := &Session{sessions: &Sessions{net6: netip.MustParsePrefix("2001:db8:1370::/44")}, advertised: make(chan struct{})}
	s.terms.LocalID = [8]byte{2, 0, 0, 0, 0, 0, 0, 9}
	tell := func(prefix string, protocol byte) {
		p := netip.MustParsePrefix(prefix)
		frame := packet6(t, acMAC, aliceMAC, router6, netip.IPv6LinkLocalAllNodes(), &ndp.RouterAdvertisement{
			RouterLifetime: 1e9, Options: []ndp.Option{&ndp.PrefixInformation{PrefixLength: uint8(p.Bits()), Prefix: p.Addr(),
				AutonomousAddressConfiguration: true, ValidLifetime: 1e9, PreferredLifetime: 1e9}}})
		s.hear6(slices.Concat([]byte{0, protocol}, frame[ethernetBytes:]))
	}
	tell("2001:db8:137::/64", 0x57)  // another network
	tell("2001:db8:1371::/48", 0x57) // no /64
	tell("2001:db8:1371::/64", 0x21) // not IPv6
	if ip, _ := s.Address6(); ip.IsValid() {
		t.Errorf("the client has the address %s", ip)
	}
	tell("2001:db8:1371:2::/64", 0x57)
	tell("2001:db8:1371:3::/64", 0x57)
	if ip, router := s.Address6(); ip != netip.MustParseAddr("2001:db8:1371:2:200::9") || router != router6 {
		t.Errorf("the client has the address %s, and the router %s", ip, router)
	}
}
