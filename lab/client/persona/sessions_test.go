package persona

import (
	"testing"

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
