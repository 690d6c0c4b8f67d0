package dut

import (
	"slices"
	"strings"
	"testing"
)

// An Encapsulation lists the headers and the padding that a tunnel puts around each packet. Inner packets are those in
// the tunnel, outer ones those on the link between the gateways. Lengths are in bytes.

// TestEncapsulationFillsTheOuterLink: an inner packet of the tunnel's MTU fits into an outer one, and one byte more
// does not.
func TestEncapsulationFillsTheOuterLink(t *testing.T) {
	want := map[string]int{
		"ipip": 1480, "gre": 1476, "vxlan": 1450,
		"ipsec-null": 1470, "ipsec-aes-cbc-sha1": 1438, "ipsec-aes-gcm": 1446, "ipsec-chacha20": 1446, "ipsec-blowfish": 1446,
		"ipsec-user-aes-gcm": 1438, "ipsec-user-chacha20": 1438, "ipsec-user-aes-cbc-sha1": 1422,
		"openvpn-none": 1464, "openvpn-blowfish": 1435, "openvpn-aes-gcm": 1448, "openvpn-chacha20": 1448,
		"openvpn-dco": 1448,
		"wireguard":   1440, "wireguard-go": 1440,
		"ssh-w": 1406, "openconnect-tls": 1418, "openconnect-dtls": 1434,
	}
	for _, name := range tunnels() {
		d, err := New(name, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		e := d.(Encapsulating).Encapsulation()
		mtu := e.MTU(OuterLink)
		if most := d.(*Tunnel).maxMTU; d.(Encapsulating).MTU() != mtu && (most == 0 || d.(Encapsulating).MTU() != most) {
			t.Errorf("%s takes packets of %d bytes, of the %d that fit", name, d.(Encapsulating).MTU(), mtu)
		}
		if mtu != want[name] {
			t.Errorf("%s has an MTU of %d, want %d: %s", name, mtu, want[name], e)
		}
		if fits, over := e.Outer(mtu, mtu), e.Outer(mtu+1, mtu+1); fits > OuterLink || over <= OuterLink {
			t.Errorf("%s: %d bytes become %d, one more becomes %d", name, mtu, fits, over)
		}
	}
	if len(want) != len(tunnels()) {
		t.Errorf("%d tunnels, of which %d are tested: %v", len(tunnels()), len(want), tunnels())
	}
}

// TestEncapsulation: lengths of outer packets with headers, and with padding to a multiple of 16 bytes.
func TestEncapsulation(t *testing.T) {
	var none Encapsulation
	if none.Outer(100, 1500) != 100 || none.MTU(1500) != 1500 || none.String() != "nothing" {
		t.Errorf("without headers: %d, %d, %s", none.Outer(100, 1500), none.MTU(1500), none)
	}
	e := Encapsulation{
		Headers: []Header{ipv4, udp, {Name: "type", Bytes: 1, Padded: true}}, Pad: Pad{To: 16, Least: 2, ByMTU: true}}
	for inner, want := range map[int]int{13: 28 + 16, 14: 28 + 32, 29: 28 + 32, 90: 28 + 96, 97: 28 + 100, 100: 28 + 101} {
		if got := e.Outer(inner, 100); got != want {
			t.Errorf("%d bytes take %d, want %d", inner, got, want)
		}
	}
	for _, part := range []string{"IPv4 20", "UDP 8", "type 1 (filled up)", "multiple of 16", "at least 2", "MTU"} {
		if !strings.Contains(e.String(), part) {
			t.Errorf("%q does not say %q", e, part)
		}
	}
	if !slices.IsSorted(tunnels()) {
		t.Errorf("not sorted: %v", tunnels())
	}
}
