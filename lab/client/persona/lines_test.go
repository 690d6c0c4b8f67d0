package persona

import (
	"testing"

	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// acMAC is a concentrator's.
var acMAC = MAC{2, 0, 0, 0, 0, 3}

const aliceLine, bobLine = 0x1234, 7

// onLine is an Ethernet frame's packet in a session.
func onLine(from, to MAC, session uint16, frame []byte) []byte {
	f := pppoe.Frame{To: to, From: from, Session: session, PPP: append([]byte{0, 0x21}, frame[ethernetBytes:]...)}
	return f.Append(nil)
}

// withLines is a bench whose alice and bob have PPPoE sessions.
func withLines(t *testing.T) *Link {
	l := loadedPrograms(t)
	if err := l.PutOnLine(alice, aliceMAC, Session{aliceLine, acMAC}); err != nil {
		t.Fatal(err)
	}
	if err := l.PutOnLine(bob, bobMAC, Session{bobLine, acMAC}); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestToLine(t *testing.T) {
	l := withLines(t)
	packet := udpFrame(t, hostMAC, wireMAC, alice, outside, 80)
	verdict, out := try(t, l.objs.ToLan, packet)
	check(t, verdict, pass, out, packet, onLine(aliceMAC, acMAC, aliceLine, packet))
	if got, want := l.counters(t, alice), (Counters{TxPackets: 1, TxBytes: 100}); got != want {
		t.Errorf("counters of alice %+v, want %+v", got, want)
	}
}

func TestFromLine(t *testing.T) {
	plain := udpFrame(t, acMAC, aliceMAC, outside, alice, 80)
	lcp := pppoe.Frame{To: aliceMAC, From: acMAC, Session: aliceLine, PPP: []byte{0xc0, 0x21, 9, 1, 0, 8, 0, 0, 0, 0}}
	for _, tt := range []arrival{
		{"its session", onLine(acMAC, aliceMAC, aliceLine, plain), pass, plain, Counters{RxPackets: 1, RxBytes: 100},
			Refusals{}},
		{"another's session", onLine(acMAC, aliceMAC, bobLine, plain), shot, nil, Counters{Misdirected: 1}, Refusals{}},
		{"another's hardware address", onLine(acMAC, bobMAC, aliceLine, plain), shot, nil, Counters{Misdirected: 1},
			Refusals{}},
		{"from another concentrator", onLine(wireMAC, aliceMAC, aliceLine, plain), shot, nil, Counters{Misdirected: 1},
			Refusals{}},
		{"without a session", plain, shot, nil, Counters{Misdirected: 1}, Refusals{}},
		{"an address nobody has", onLine(acMAC, aliceMAC, aliceLine, udpFrame(t, acMAC, aliceMAC, outside, nobody, 80)), shot,
			nil, Counters{}, Refusals{Destination: 1}},
		{"an echo request, which the packet socket reads", lcp.Append(nil), pass, nil, Counters{}, Refusals{}},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, withLines(t)) })
	}
}
