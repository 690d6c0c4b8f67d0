#!/bin/bash
# A PREF64 option that mdlayher/ndp encodes with a lifetime of 3 s has the lifetime 0: it withdraws the NAT64 prefix that it
# was to announce.
#
# Expected: the option has its lifetime in units of 8 s, and RFC 8781 (section 4.1) has senders round up, so that 1 to 8 s
# are one unit. Lifetime 0 means that the prefix is not to be used any longer.
#
# What happens: Marshal rounds to the nearest unit. Up to 3 s become 0. Such lifetimes are valid input: a router that
# announces a prefix until its own lease ends counts down to them. There is no error.
#
# Why: marshal in option.go calls math.Round on the seconds divided by 8.
#
# Seen with: github.com/mdlayher/ndp v1.1.0, go 1.26.8:
#   lifetime  encoded
#   3s        0s
#   4s        8s
#   11s       8s
#   12s       16s
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
	"time"

	"github.com/mdlayher/ndp"
)

func main() {
	asDescribed := true
	fmt.Println("lifetime  encoded")
	for _, c := range [][2]time.Duration{{3, 0}, {4, 8}, {11, 8}, {12, 16}} {
		lifetime, want := c[0]*time.Second, c[1]*time.Second
		b, err := ndp.MarshalMessage(&ndp.RouterAdvertisement{Options: []ndp.Option{
			&ndp.PREF64{Lifetime: lifetime, Prefix: netip.MustParsePrefix("64:ff9b::/96")},
		}})
		if err != nil || len(b) < 20 {
			fmt.Println(lifetime, len(b), err)
			os.Exit(2)
		}
		// Behind 16 bytes of the advertisement the option has its type, its length, and 13 bits of lifetime.
		got := time.Duration(uint16(b[18])<<8|uint16(b[19])) >> 3 * 8 * time.Second
		fmt.Printf("%-9s %s\n", lifetime, got)
		asDescribed = asDescribed && b[16] == 38 && got == want
	}
	if !asDescribed {
		fmt.Fprintln(os.Stderr, "no longer as described")
		os.Exit(1)
	}
	fmt.Println("as described: lifetimes are rounded to the nearest multiple of 8 s, short ones to 0")
}
end
timeout 100 go mod tidy >log 2>&1 && timeout 100 go build -o finding . >>log 2>&1 || { cat log >&2; exit 2; }
go version | cut -d" " -f3
rc=0
./finding || rc=$?
[ $rc -le 1 ] || rc=2
exit $rc
