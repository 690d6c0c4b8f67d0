// Cases of TestProblemsNameFileLineAndKey (errors_test.go) about addresses that no LAN can have. minimal is the
// shortest good file, of five lines, with the LAN's address on the second.

package config

import "strings"

// wrongLANs are addresses that no LAN can have.
var wrongLANs = []problem{
	{"a LAN of this machine", strings.Replace(minimal, "10.1.0.1/16", "127.0.5.1/24", 1),
		[]string{`x.toml:2: lan.address: must be … 127.0.5.0/24 … reaches itself: 127.0.0.0/8`}},
	{"a LAN of link-local addresses", strings.Replace(minimal, "10.1.0.1/16", "169.252.0.1/14", 1),
		[]string{`x.toml:2: lan.address: must be … 169.252.0.0/14 … 169.254.0.0/16`}},
	{"a LAN of no hosts", strings.Replace(minimal, "10.1.0.1/16", "0.1.0.1/16", 1),
		[]string{`x.toml:2: lan.address: must be … 0.1.0.0/16 … 0.0.0.0/8`}},
	{"a LAN of groups", strings.Replace(minimal, "10.1.0.1/16", "239.1.0.1/16", 1),
		[]string{`x.toml:2: lan.address: must be … 239.1.0.0/16 … 224.0.0.0/4`}},
	{"a LAN of class E", strings.Replace(minimal, "10.1.0.1/16", "240.1.0.1/16", 1),
		[]string{`x.toml:2: lan.address: must be … 240.1.0.0/16 … 240.0.0.0/4`}},
}
