package delegation

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestCarve: parts, as LINK or LINK+POOL for each network, or an error. Long: one line a case.
func TestCarve(t *testing.T) {
	for name, tt := range map[string]struct {
		prefix   string
		networks []Network
		want     string // parts, or what the error has after a !
	}{
		"none":         {"2001:db8::/56", nil, ""},
		"one of a /64": {"2001:db8:0:7::/64", []Network{{Number: 5}}, "2001:db8:0:7::/64"},
		"two of a /64": {"2001:db8::/64", []Network{{Number: 1}, {Number: 2}},
			"!too small: it has room for 1 networks, and network 2 is the 2nd"},
		"by number": {"2001:db8::/56", []Network{{Number: 3}, {Number: 1}}, "2001:db8:0:2::/64 2001:db8::/64"},
		"another comes": {"2001:db8::/56", []Network{{Number: 3}, {Number: 1}, {Number: 2}},
			"2001:db8:0:2::/64 2001:db8::/64 2001:db8:0:1::/64"},
		"the last":     {"2001:db8::/60", []Network{{Number: 0}, {Number: 15}}, "2001:db8::/64 2001:db8:0:f::/64"},
		"one too many": {"2001:db8::/60", []Network{{Number: 0}, {Number: 16}}, "!room for 16 networks"},
		"pools": {"2001:db8::/56", []Network{{1, 60}, {2, 60}},
			"2001:db8::/64+2001:db8:0:f0::/60 2001:db8:0:1::/64+2001:db8:0:e0::/60"},
		"pools of two lengths": {"2001:db8::/56", []Network{{1, 60}, {2, 58}},
			"2001:db8::/64+2001:db8:0:f0::/60 2001:db8:0:1::/64+2001:db8:0:80::/58"},
		"pools that overlap": {"2001:db8::/56", []Network{{1, 58}, {2, 60}}, "!give them one length"},
		"a pool over a link": {"2001:db8::/60", []Network{{1, 61}, {2, 61}}, "!take smaller pools"},
		"a pool of all":      {"2001:db8::/56", []Network{{1, 56}}, "!take smaller pools"},
		"too many pools": {"2001:db8::/56", []Network{{1, 57}, {2, 0}, {3, 57}},
			"!room for 2 pools of the length 57, and network 3's is the 3rd"},
		"a large pool":      {"2001:db8::/56", []Network{{1, 48}}, "!it may be 56 to 64"},
		"a long pool":       {"2001:db8::/56", []Network{{1, 65}}, "!it may be 56 to 64"},
		"a negative number": {"2001:db8::/56", []Network{{-2, 0}, {0, 0}}, "2001:db8::/64 2001:db8:0:2::/64"},
		"one number twice":  {"2001:db8::/56", []Network{{1, 0}, {1, 0}}, "!two networks have the number 1"},
		"of a provider":     {"2001:db8::/16", []Network{{0, 32}}, "2001::/64+2001:ffff::/32"},
		"multicast":         {"ff00::/56", []Network{{1, 0}}, "!multicast"},
		"no prefix":         {"", []Network{{1, 0}}, "!no valid length"},
		"IPv4":              {"192.0.2.0/24", []Network{{1, 0}}, "!no valid length"},
		"bits after it":     {"2001:db8::1/56", []Network{{1, 0}}, "2001:db8::/64"},
	} {
		t.Run(name, func(t *testing.T) {
			var prefix netip.Prefix
			if tt.prefix != "" {
				prefix = netip.MustParsePrefix(tt.prefix)
			}
			parts, err := Carve(prefix, tt.networks)
			var text []string
			for i, p := range parts {
				if p.Number != tt.networks[i].Number {
					t.Errorf("part %d is of network %d", i, p.Number)
				}
				text = append(text, p.Link.String())
				if p.Pool.IsValid() {
					text[i] += fmt.Sprintf("+%v", p.Pool)
				}
			}
			want, wrong := strings.CutPrefix(tt.want, "!")
			switch {
			case wrong && (err == nil || !strings.Contains(err.Error(), want) || parts != nil):
				t.Errorf("%v, %v; want an error with %q", parts, err, want)
			case !wrong && (err != nil || strings.Join(text, " ") != want):
				t.Errorf("%v, %v; want %s", text, err, want)
			}
		})
	}
}
