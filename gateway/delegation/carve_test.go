package delegation

import (
	"net/netip"
	"strings"
	"testing"
)

// TestSubnet: the /64s of delegated prefixes, or what the error has after a !.
func TestSubnet(t *testing.T) {
	for _, c := range []struct {
		prefix string
		number int
		want   string
	}{
		{"2001:db8:0:7::/64", 0, "2001:db8:0:7::/64"},
		{"2001:db8:0:7::/64", 1, "!too small: it has the /64s 0 to 0, and not 1"},
		{"2001:db8:0:ff00::/56", 0, "2001:db8:0:ff00::/64"},
		{"2001:db8:0:ff00::/56", 255, "2001:db8:0:ffff::/64"},
		{"2001:db8:0:ff00::/56", 256, "!0 to 255"},
		{"2001:db8::1/56", 3, "2001:db8:0:3::/64"}, // with bits beyond its length
		{"2001:db8::/16", 0x12345, "2001:0:1:2345::/64"},
		{"2001:db8::/65", 0, "!too long"},
		{"2001::/15", 0, "!shorter than any"},
		{"ff00::/56", 1, "!multicast"},
		{"192.0.2.0/24", 1, "!no valid length"},
	} {
		got, err := Subnet(netip.MustParsePrefix(c.prefix), c.number)
		problem, bad := strings.CutPrefix(c.want, "!")
		if (err != nil) != bad || err == nil && got.String() != c.want ||
			err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("subnet %d of %s is %v, %v; want %s", c.number, c.prefix, got, err, c.want)
		}
	}
	if _, err := Subnet(netip.Prefix{}, 0); err == nil {
		t.Error("there is a subnet of no prefix")
	}
}
