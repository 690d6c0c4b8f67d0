package traffic

import "testing"

// TestSegmentBytes: the payload of a full TCP segment or UDP datagram in an IPv4 packet of mtu bytes.
func TestSegmentBytes(t *testing.T) {
	for _, c := range []struct {
		mtu  int
		udp  bool
		want int
	}{{EthernetMTU, false, 1448}, {EthernetMTU, true, 1472}, {1492, false, 1440}} { // 1492: PPPoE (RFC 2516, 7)
		if got := SegmentBytes(c.mtu, c.udp); got != c.want {
			t.Errorf("packets of %d bytes, UDP %v, carry %d, want %d", c.mtu, c.udp, got, c.want)
		}
	}
	if MaxDatagram != 65507 || DefaultBurst*SegmentBytes(EthernetMTU, false) > 1<<16 {
		t.Errorf("the longest datagram has %d bytes, a burst %d segments", MaxDatagram, DefaultBurst)
	}
}
