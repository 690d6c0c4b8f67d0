package tunnel

import (
	"math"
	"testing"
)

// TestStudy4 compares payload rates with those of study 4, section 2, for frames of 1518 bytes without TCP options at
// 100 Mbit/s. The study prints 94.8 for IPsec where its formula gives 94.86. Its formulas for OpenVPN leave out the 20
// bytes of the outer IP header, but its results include them: 94.33 is with these bytes, 95.65 without.
func TestStudy4(t *testing.T) {
	mbpsWith := func(overhead int) float64 { // bytes that the tunnel adds to a packet
		return Packet{Inner: 1500 - overhead, Outer: 1500, Link: StudyHeader}.Mbps(100)
	}
	const ip, udp, encryption = 20, 8, 41
	for _, c := range []struct {
		what          string
		overhead      int
		want, printed float64
	}{
		{"direct", 0, 96.18, 96.18},
		{"IPsec", ip, 94.86, 94.8},
		{"OpenVPN", ip + udp, 94.33, 94.33},
		{"OpenVPN as the formula is printed", udp, 95.65, 0},
		{"OpenVPN with encryption", ip + udp + encryption, 91.63, 91.63},
		{"OpenVPN with encryption as the formula is printed", udp + encryption, 92.95, 0},
	} {
		if got := mbpsWith(c.overhead); math.Abs(got-c.want) > 0.006 || c.printed > 0 && math.Abs(got-c.printed) > 0.065 {
			t.Errorf("%s: %.3f Mbit/s, want %g, printed %g", c.what, got, c.want, c.printed)
		}
	}
}

// TestPacket: payload, rate and formula of a packet, and the mean length of packets that share TCP segments.
func TestPacket(t *testing.T) {
	p := Packet{Inner: 1464, Outer: 1500, Options: TimeStamps, Link: LinkHeader}
	if p.Payload() != 1412 || math.Abs(p.Mbps(100)-93.263) > 0.001 ||
		p.Formula() != "(1464 − 20 − 20 − 12) / (1500 + 14)" {
		t.Errorf("%d bytes, %g Mbit/s, %s", p.Payload(), p.Mbps(100), p.Formula())
	}
	if none := (Packet{Inner: 30, Outer: 100}); none.Share() != 0 {
		t.Errorf("a packet without payload has a share of %g", none.Share())
	}
	// Ten packets of 1400 bytes, each with a header of 4 bytes, are 14040 bytes. They fill 9.7 segments of 1448 bytes,
	// each in a frame of 1514 bytes.
	if got, want := Shared(1400, 4, 52, 1500, 14)+14, 14040./1448*1514/10; math.Abs(got-want) > 1e-9 {
		t.Errorf("%g bytes of the link a packet, want %g", got, want)
	}
}
