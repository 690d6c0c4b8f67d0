package dhcp6

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"
)

func TestFrameRoundTrip(t *testing.T) {
	for _, payload := range []string{"", "x", "even", "three"} {
		want := datagram{
			srcMAC: macOf(1), dstMAC: macOf(2), payload: []byte(payload),
			src: netip.MustParseAddrPort("[fe80::1]:547"), dst: netip.MustParseAddrPort("[fe80::2]:546"),
		}
		frame := want.frame()
		got, err := parseFrame(append(slices.Clone(frame), 0, 0, 0)) // Ethernet's padding
		if err != nil || got.src != want.src || got.dst != want.dst || got.srcMAC != want.srcMAC ||
			got.dstMAC != want.dstMAC || !bytes.Equal(got.payload, want.payload) {
			t.Errorf("%+v, %v", got, err)
		}
		if sum := checksum(uint32(17+len(frame)-54), frame[22:]); sum != 0xffff {
			t.Errorf("the datagram sums to %#x", sum)
		}
	}
}

// TestPartialChecksum: a sender on this machine leaves the checksum to hardware that a veth does not have.
func TestPartialChecksum(t *testing.T) {
	frame := stationOf(1).frame([]byte{1, 2, 3, 4})
	udp := frame[ethernetLen+ipv6Len:]
	binary.BigEndian.PutUint16(udp[6:], pseudoSum(frame[ethernetLen:], len(udp)))
	if _, err := parseFrame(frame); err != nil {
		t.Error(err)
	}
}

func TestParseFrameRefuses(t *testing.T) {
	good := stationOf(1).frame([]byte("0123456789"))
	for name, tt := range map[string]struct {
		edit func([]byte) []byte
		want error
	}{
		"empty":                 {func(b []byte) []byte { return nil }, errNoDatagram},
		"cut in the IP header":  {func(b []byte) []byte { return b[:50] }, errNoDatagram},
		"cut in the payload":    {func(b []byte) []byte { return b[:len(b)-1] }, errNoDatagram},
		"another EtherType":     {func(b []byte) []byte { b[12] = 8; return b }, errNoDatagram},
		"IPv4 in an IPv6 frame": {func(b []byte) []byte { b[14] = 0x45; return b }, errNoDatagram},
		"an extension header":   {func(b []byte) []byte { b[20] = 0; return b }, errNoDatagram},
		"a fragment":            {func(b []byte) []byte { b[20] = 44; return b }, errNoDatagram},
		"TCP":                   {func(b []byte) []byte { b[20] = 6; return b }, errNoDatagram},
		"IP length too small":   {func(b []byte) []byte { b[19] = 7; return b }, errNoDatagram},
		"IP length too large":   {func(b []byte) []byte { b[19] = 19; return b }, errNoDatagram},
		"UDP length too small":  {func(b []byte) []byte { b[59] = 17; return b }, errNoDatagram},
		"UDP length too large":  {func(b []byte) []byte { b[59] = 19; return b }, errNoDatagram},
		"no checksum":           {func(b []byte) []byte { b[60], b[61] = 0, 0; return b }, errChecksum},
		"another source":        {func(b []byte) []byte { b[37]++; return b }, errChecksum},
		"another payload":       {func(b []byte) []byte { b[70]++; return b }, errChecksum},
	} {
		if got, err := parseFrame(tt.edit(bytes.Clone(good))); !errors.Is(err, tt.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	fromGroup := station{mac: MAC{3, 0, 0, 0, 0, 1}, duid: duidOf(1)}
	if _, err := known(t, nil).read(fromGroup.frame([]byte{1, 0, 0, 1})); !errors.Is(err, errGroup) {
		t.Errorf("from a group's MAC: %v", err)
	}
}
