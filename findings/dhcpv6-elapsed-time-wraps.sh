#!/bin/bash
# The Elapsed Time option that insomniacslk/dhcp encodes begins again at 0 after 655.35 s: a client that has asked for 11
# minutes says that it has just begun.
#
# Expected: the option has 16 bits of hundredths of a second, and RFC 8415 (section 21.9) has a client say 0xffff for any
# longer time. Servers and relays read it to let a second server answer clients that the first one leaves waiting.
#
# What happens: OptElapsedTime takes any time.Duration. Its bytes are the lowest 16 bits of the number of hundredths. There is
# no error. The option's String shows the time that was asked for, not the one that is sent. Such times are valid input:
# a client asks without end while no server answers (section 18.2.1).
#
# Why: ToBytes in dhcpv6/option_elapsedtime.go converts the number to uint16.
#
# Seen with: github.com/insomniacslk/dhcp v0.0.0-20260901064844-234b97448fae, go 1.26.8:
#   asked      sent
#   10m55.35s  10m55.35s
#   10m55.36s  0s
#   11m0s      4.64s
# Needs: Go with a module proxy. Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail

tmp=$(mktemp -d)
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
trap 'exit 2' HUP INT TERM
mkdir "$tmp/finding"
cd "$tmp/finding"
export GOPATH=$tmp/go GOCACHE=$tmp/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0
cat >go.mod <<'end'
module finding
go 1.24
require github.com/insomniacslk/dhcp v0.0.0-20260901064844-234b97448fae
end
cat >main.go <<'end'
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

func main() {
	const unit = 10 * time.Millisecond
	asDescribed := true
	fmt.Println("asked      sent")
	for _, c := range [][2]time.Duration{{65535, 65535}, {65536, 0}, {66000, 464}} {
		asked, want := c[0]*unit, c[1]*unit
		b := dhcpv6.OptElapsedTime(asked).ToBytes()
		if len(b) != 2 {
			fmt.Println(asked, len(b), "bytes")
			os.Exit(2)
		}
		sent := time.Duration(binary.BigEndian.Uint16(b)) * unit
		fmt.Printf("%-10s %s\n", asked, sent)
		asDescribed = asDescribed && sent == want
	}
	if !asDescribed {
		fmt.Fprintln(os.Stderr, "no longer as described")
		os.Exit(1)
	}
	fmt.Println("as described: times beyond 655.35 s begin again at 0")
}
end
timeout 200 go mod tidy >log 2>&1 && timeout 300 go build -o finding . >>log 2>&1 || { cat log >&2; exit 2; }
go version | cut -d" " -f3
rc=0
./finding || rc=$?
[ $rc -le 1 ] || rc=2
exit $rc
