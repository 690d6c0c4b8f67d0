// Tests of the [garden] keys: destinations that clients reach without login. minimal is the shortest good file, of five
// lines (errors_test.go); parse reads a text that must be good, and wantProblems one that must cause the listed errors.

package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestGardenValues: each mistake has its own words, with file, line and key, and what can be understood is. Long: most
// lines are the table of cases.
func TestGardenValues(t *testing.T) {
	label := strings.Repeat("a", 64)
	for _, tt := range []struct{ key, value, want string }{ // want: the value as it is understood, or words of the error
		{"garden.ports", "login.example.org:443", "login.example.org:443"},
		{"garden.ports", "Login.Example.org.:443/TCP", "login.example.org:443"},
		{"garden.ports", "*.Bücher.example.:53/udp", "*.xn--bcher-kva.example:53/udp"},
		{"garden.ports", "例え。テスト:443", "xn--r8jz45g.xn--zckzah:443"},
		{"garden.ports", "192.0.2.0/24:53/UDP", "192.0.2.0/24:53/udp"},
		{"garden.ports", "192.0.2.7/32:80", "192.0.2.7:80"},
		{"garden.ports", "192.0.2.7/24:53/udp",
			`"192.0.2.7/24:53/udp" is an address with a length: use "192.0.2.0/24:53/udp" or "192.0.2.7:53/udp"`},
		{"garden.ports", "0.0.0.0/0:53", `/8 or longer, and "0.0.0.0/0:53" is a large part of the Internet`},
		{"garden.ports", "192.0.2.0/33:53", `"192.0.2.0/33:53" has not: write it as in "192.0.2.0/24:53"`},
		{"garden.ports", "192.0.2.0:53/24", `has it behind: write "192.0.2.0/24:53"`},
		{"garden.ports", "224.0.0.1:53", `must be an address that a host can have, and "224.0.0.1:53" is none`},
		{"garden.ports", "[2001:db8::1]:443", "is IPv6"},
		{"garden.ports", "2001:db8::1", "is IPv6"},
		{"garden.ports", "2001:db8::/32:443", "is IPv6"},
		{"garden.ports", "example.org",
			`must end in a port, and "example.org" has none: write "example.org:443"; all ports are for garden.domains`},
		{"garden.ports", "192.0.2.7", `write "192.0.2.7:443"; all ports are for garden.prefixes`},
		{"garden.ports", "https://example.org/login", `is a web address: write "example.org:443"`},
		{"garden.ports", "https://example.org:8443/", `write "example.org:8443"`},
		{"garden.ports", "example.org:443-445/udp",
			`has several: write a value for each, "example.org:443/udp", "example.org:445/udp"`},
		{"garden.ports", "example.org:80,443", `has several: write a value for each, "example.org:80", "example.org:443"`},
		{"garden.ports", "example.org:https", `must have a port from 1 to 65535, and "example.org:https" has "https"`},
		{"garden.ports", "example.org:", `has ""`},
		{"garden.ports", "example.org:0", `has "0"`},
		{"garden.ports", "example.org:65536", `has "65536"`},
		{"garden.ports", "example.org:53/icmp",
			`must have "tcp" or "udp" behind the port, and "example.org:53/icmp" has "icmp"`},
		{"garden.ports", ":443", "is empty"},
		{"garden.ports", "*:443", "is every name"},
		{"garden.ports", "*.com:443",
			`is a large part of the Internet: write what clients need of it, such as "*.example.com"`},
		{"garden.ports", "a.*.example:443", "has a star in another place"},
		{"garden.ports", ".example.org:443", `begins with a dot: write "*.example.org"`},
		{"garden.ports", "a..example:443", "has nothing before a dot, or between two"},
		{"garden.ports", "a b.example:443", "has a space in it"},
		{"garden.ports", "-a.example:443", `has a hyphen at an end of "-a"`},
		{"garden.ports", "a!.example:443", "has the character '!'"},
		{"garden.ports", label + ".example:443", "has 64 characters between two dots"},
		{"garden.ports", "192.0.2:443", "is a number, no name"},
		{"garden.ports", "a\u202e.example:443", "is no name that the DNS can have"},
		{"garden.domains", "Straße.Example.", "xn--strae-oqa.example"},
		{"garden.domains", "192.0.2.0/24", "put it into garden.prefixes"},
		{"garden.domains", "example.org:443", "put it into garden.ports"},
		{"garden.domains", "https://example.org", "is a web address: write its name alone"},
		{"garden.domains", "*.com.", "is a large part of the Internet"},
		{"garden.prefixes", "192.0.2.7/24", `use "192.0.2.0/24" or "192.0.2.7"`},
		{"garden.prefixes", "2001:db8::/32", "is IPv6"},
		{"garden.prefixes", "192.0.2.0/255.255.255.0", "must have the bits of its network behind the slash"},
		{"garden.prefixes", "example.org", "not \"example.org\""},
	} {
		t.Run(tt.key+" "+tt.value, func(t *testing.T) {
			c, err := Parse("x.toml", fmt.Appendf(nil, "%s%s = [%q]\n", minimal, tt.key, tt.value))
			if err == nil {
				var got []string
				for _, p := range c.Garden.Ports {
					got = append(got, p.String())
				}
				if got = append(got, c.Garden.Domains...); !slices.Equal(got, []string{tt.want}) {
					t.Errorf("read as %q, want %s", got, tt.want)
				}
			} else if !strings.HasPrefix(err.Error(), "x.toml:6: "+tt.key+": each value must ") ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v\nwant %s", err, tt.want)
			}
		})
	}
	c := parse(t, minimal+"portal.name = \"Gäste.example.\"\n")
	if c.Portal.Name != "xn--gste-loa.example" {
		t.Errorf("portal.name is read as %s", c.Portal.Name)
	}
}

// TestOwnAddressesRefused: the LAN and the gateway itself are refused where they have no effect.
func TestOwnAddressesRefused(t *testing.T) {
	const inbound = minimal + "nat.masquerade = true\nnat.inbound = "
	parse(t, inbound+"[\"0.0.0.0/0\"]\n")
	parse(t, inbound+"[\"10.0.0.0/8\"]\n") // which has others, too
	wantProblems(t, inbound+"[\"10.1.0.0/16\", \"10.1.2.3\"]\n", []string{
		"x.toml:7: nat.inbound: 10.1.0.0/16 is in the LAN, … wan0 … take it out",
		"x.toml:7: nat.inbound: 10.1.2.3 is in the LAN, … out"})
	wantProblems(t, minimal+"garden.ports = [\"10.1.0.1:443\", \"10.1.7.0/24:80\", \"10.0.0.0/8:53/udp\"]\n", []string{
		"x.toml:6: garden.ports: 10.1.0.1:443 is the gateway itself, … out",
		"x.toml:6: garden.ports: 10.1.7.0/24:80 overlaps the LAN, 10.1.0.0/16: …",
		"x.toml:6: garden.ports: 10.0.0.0/8:53/udp overlaps the LAN, …"})
	wantProblems(t, minimal+"garden.prefixes = [\"10.1.0.1\"]\n",
		[]string{"x.toml:6: garden.prefixes: 10.1.0.1/32 is the gateway itself, … out"})
}
