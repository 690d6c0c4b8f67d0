package routeradv

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/framelink"
)

var hostAddr = netip.MustParseAddr("fe80::10")

func TestParseFrame(t *testing.T) {
	router, err := Message(everything())
	if err != nil {
		t.Fatal(err)
	}
	source := []byte{optSourceMAC, 1, 2, 0, 0, 0, 0, 0x10}
	for _, tt := range []struct {
		name  string
		frame []byte
		want  heard
	}{
		{"without an address", frameOf(macOf(16), netip.IPv6Unspecified(), allRouters, solicitation()),
			heard{from: Client{MAC: macOf(16)}, src: netip.IPv6Unspecified()}},
		{"with an address", frameOf(macOf(16), hostAddr, allRouters, solicitation(source...)),
			heard{from: Client{MAC: macOf(16)}, src: hostAddr}},
		{"in a PPPoE session",
			framelink.Frame(Client{MAC: macOf(1), Session: 7}, macOf(16), Packet(hostAddr, allRouters, solicitation())),
			heard{from: Client{MAC: macOf(16), Session: 7}, src: hostAddr}},
		{"padded", append(frameOf(macOf(16), hostAddr, allRouters, solicitation()), 1, 2, 3),
			heard{from: Client{MAC: macOf(16)}, src: hostAddr}},
		{"with an unknown option", frameOf(macOf(16), hostAddr, allRouters, solicitation(0xfe, 1, 0, 0, 0, 0, 0, 0)),
			heard{from: Client{MAC: macOf(16)}, src: hostAddr}},
		{"an advertisement", frameOf(macOf(16), hostAddr, allNodes, router),
			heard{Client{MAC: macOf(16)}, hostAddr, true, netip.MustParsePrefix("2001:db8:1::/64")}},
		{"an advertisement without a prefix", frameOf(macOf(16), hostAddr, allNodes, router[:raHeaderLen]),
			heard{from: Client{MAC: macOf(16)}, src: hostAddr, advert: true}},
	} {
		if got, err := parseFrame(tt.frame); got != tt.want || err != nil {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
}

func TestParseFrameRefuses(t *testing.T) {
	source := []byte{optSourceMAC, 1, 2, 0, 0, 0, 0, 0x10}
	router, err := Message(everything())
	if err != nil {
		t.Fatal(err)
	}
	good := frameOf(macOf(16), hostAddr, allRouters, solicitation())
	edited := func(i int, b byte) []byte {
		frame := bytes.Clone(good)
		frame[i] = b
		return frame
	}
	message := func(change func([]byte)) []byte {
		b := solicitation()
		change(b)
		return frameOf(macOf(16), hostAddr, allRouters, b)
	}
	cutPrefix := append(router[:raHeaderLen:raHeaderLen], optPrefix, 4, 64, 0, 0, 0, 0, 0)
	global := netip.MustParseAddr("2001:db8::1")
	for name, frame := range map[string][]byte{
		"empty":                    nil,
		"cut":                      good[:len(good)-1],
		"IPv4":                     edited(12, 8),
		"version 4":                edited(14, 0x45),
		"from a group":             edited(6, 3),
		"from nobody":              frameOf(MAC{}, hostAddr, allRouters, solicitation()),
		"an extension header":      edited(20, 0),
		"forwarded":                edited(21, 254),
		"longer than the frame":    edited(19, 9),
		"without its checksum":     edited(57, good[57]+1),
		"code 1":                   message(func(b []byte) { b[1] = 1 }),
		"a neighbour solicitation": message(func(b []byte) { b[0] = 135 }),
		"an advertisement cut":     message(func(b []byte) { b[0] = typeRA }),
		"from a global address":    frameOf(macOf(16), global, allRouters, solicitation()),
		"to a global address":      frameOf(macOf(16), hostAddr, global, solicitation()),
		"an option of no length":   frameOf(macOf(16), hostAddr, allRouters, solicitation(0xfe, 0, 0, 0, 0, 0, 0, 0)),
		"an option that is cut":    frameOf(macOf(16), hostAddr, allRouters, solicitation(0xfe, 2, 0, 0, 0, 0, 0, 0)),
		"half an option":           frameOf(macOf(16), hostAddr, allRouters, solicitation(0xfe, 1, 0, 0)),
		"a MAC without an address": frameOf(macOf(16), netip.IPv6Unspecified(), allRouters, solicitation(source...)),
		"advertised by nobody":     frameOf(macOf(16), netip.IPv6Unspecified(), allNodes, router),
		"advertised from a global": frameOf(macOf(16), global, allNodes, router),
		"a prefix that is cut":     frameOf(macOf(16), hostAddr, allNodes, cutPrefix),
	} {
		if got, err := parseFrame(frame); !errors.Is(err, errFrame) || got != (heard{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// FuzzSolicitation: whatever a frame has, what is heard comes from a station of this link.
func FuzzSolicitation(f *testing.F) {
	router, err := Message(everything())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frameOf(macOf(16), netip.IPv6Unspecified(), allRouters, solicitation()))
	f.Add(frameOf(macOf(16), hostAddr, allRouters, solicitation(optSourceMAC, 1, 2, 0, 0, 0, 0, 0x10)))
	f.Add(frameOf(macOf(16), hostAddr, allNodes, router))
	f.Add(framelink.Frame(Client{MAC: macOf(1), Session: 7}, macOf(16), Packet(hostAddr, allRouters, solicitation())))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) >= ethernetLen+ipv6Len+rsHeaderLen { // a right checksum leads further in
			message := frame[ethernetLen+ipv6Len:]
			src, dst := netip.AddrFrom16([16]byte(frame[22:])), netip.AddrFrom16([16]byte(frame[38:]))
			copy(message, Packet(src, dst, message)[ipv6Len:])
		}
		h, err := parseFrame(frame)
		if err != nil {
			if h != (heard{}) || !errors.Is(err, errFrame) {
				t.Errorf("%+v, %v", h, err)
			}
			return
		}
		if h.from.MAC[0]&1 != 0 || !h.src.IsLinkLocalUnicast() && (h.advert || !h.src.IsUnspecified()) ||
			h.from.Session == 0 && frame[21] != hopLimit ||
			h.prefix.IsValid() && (!h.advert || h.prefix != h.prefix.Masked()) {
			t.Errorf("%+v of %x", h, frame)
		}
	})
}
