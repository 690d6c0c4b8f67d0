#!/bin/bash
# ParseMessage of mdlayher/ndp returns a more-specific route of a router advertisement with a prefix that has lost bits: of
# 2001:db8:0:10::/60 what is left is 2001:db8::/60.
#
# Expected: the Route Information option (RFC 4191, section 2.3) has a prefix length in bits and 8 or 16 bytes of prefix; a
# decoder returns the bits up to that length.
#
# What happens: RouteInformation keeps only whole bytes of the length in bits. Lengths that are multiples of 8 come back as
# they were sent; of all others the bits beyond the last whole byte are 0. There is no error, so a host that installs the
# route sends packets for another network to the router, and none for the right one.
#
# Why: unmarshal in option.go takes length / 8 bytes of the prefix. Encoding is right.
#
# Seen with: github.com/mdlayher/ndp v1.1.0, go 1.26.8:
#   sent                   decoded
#   2001:db8:0:10::/60     2001:db8::/60
#   2001:db8:ab00::/41     2001:db8:ab00::/41
#   2001:db8:0:10::/64     2001:db8:0:10::/64
#   2001:db8:abf0::/44     2001:db8:ab00::/44
# Needs: Go with a module proxy. Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail

tmp=$(mktemp -d)
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
trap 'exit 2' HUP INT TERM
cd "$tmp"
export GOPATH=$tmp/go GOCACHE=$tmp/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0
cat >go.mod <<'end'
module finding
go 1.23
require github.com/mdlayher/ndp v1.1.0
end
cat >main.go <<'end'
package main

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/mdlayher/ndp"
)

func main() {
	asDescribed := true
	fmt.Println("sent                   decoded")
	for _, c := range [][2]string{
		{"2001:db8:0:10::/60", "2001:db8::/60"}, {"2001:db8:ab00::/41", "2001:db8:ab00::/41"},
		{"2001:db8:0:10::/64", "2001:db8:0:10::/64"}, {"2001:db8:abf0::/44", "2001:db8:ab00::/44"},
	} {
		p := netip.MustParsePrefix(c[0])
		b, err := ndp.MarshalMessage(&ndp.RouterAdvertisement{Options: []ndp.Option{
			&ndp.RouteInformation{PrefixLength: uint8(p.Bits()), Prefix: p.Addr(), RouteLifetime: 600e9},
		}})
		if err == nil {
			var m ndp.Message
			if m, err = ndp.ParseMessage(b); err == nil {
				r := m.(*ndp.RouterAdvertisement).Options[0].(*ndp.RouteInformation)
				got := netip.PrefixFrom(r.Prefix, int(r.PrefixLength)).String()
				fmt.Printf("%-22s %s\n", c[0], got)
				asDescribed = asDescribed && got == c[1]
			}
		}
		if err != nil {
			fmt.Println(c[0], err)
			asDescribed = false
		}
	}
	if !asDescribed {
		fmt.Fprintln(os.Stderr, "no longer as described")
		os.Exit(1)
	}
	fmt.Println("as described: prefixes lost the bits beyond their last whole byte")
}
end
timeout 100 go mod tidy >log 2>&1 && timeout 100 go build -o finding . >>log 2>&1 || { cat log >&2; exit 2; }
go version | cut -d" " -f3
rc=0
./finding || rc=$?
[ $rc -le 1 ] || rc=2
exit $rc
