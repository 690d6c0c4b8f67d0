// Tests of the form of routes in Framed-Route.

package radius

import (
	"net/netip"
	"testing"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
)

// TestFramedRoutes are the forms of RFC 2865, 5.22, and some that are none.
func TestFramedRoutes(t *testing.T) {
	for text, want := range map[string]string{
		"192.168.1.0/24 192.168.1.1 1": "192.168.1.0/24", "192.168.1.0/24 192.168.1.1 1 2 -1 400": "192.168.1.0/24",
		"192.168.1.0 192.168.1.1 1": "192.168.1.0/24", "172.16.0.0": "172.16.0.0/16", "10.0.0.0 0.0.0.0 1": "10.0.0.0/8",
		"198.51.100.7/32 0.0.0.0": "198.51.100.7/32",
		"":                        "", "0.0.0.0/0 0.0.0.0 1": "", "192.168.1.1/24 0.0.0.0 1": "", "2001:db8::/32 :: 1": "",
		"10.1/16": "", "x": "", "10.0.0.0/33": "",
	} {
		got, err := parseRoute(text)
		if want == "" && err == nil || want != "" && (err != nil || got != netip.MustParsePrefix(want)) {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
	}
	var many radius.Packet
	for i := range maxRoutes + 1 {
		many.Add(rfc2865.FramedRoute_Type, radius.Attribute(netip.AddrFrom4([4]byte{192, 0, byte(i), 0}).String()))
	}
	if _, err := framedRoutes(&many); err == nil {
		t.Error("too many were taken")
	}
}
