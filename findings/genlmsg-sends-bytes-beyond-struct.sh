#!/bin/bash
# Genlmsg.Serialize of vishvananda/netlink returns four bytes of a struct that has two: what lies behind it in memory becomes
# the reserved field of the generic netlink header, and Linux refuses a request at random.
#
# Expected: a generic netlink header is command, version and a reserved field of two bytes that is 0 (genlmsghdr in
# linux/genetlink.h). A program that fills in Command and Version gets that.
#
# What happens: nl.Genlmsg has Command and Version alone, and Serialize reads SizeofGenlmsg = 4 bytes from its address. In
# an object of its own the bytes behind it are often 0, so programs work; where a field follows, it is sent. Since Linux 6.1
# families may refuse a reserved field other than 0: netdev does, with EINVAL ("invalid argument"), which names no field.
#
# Why: nl/genetlink_linux.go converts the pointer to *[4]byte. A struct with two more bytes around it is safe, as here.
#
# Seen with: github.com/vishvananda/netlink v1.3.1, go 1.26.8, kernel 6.18.44:
#   bytes behind the struct  serialized    dev-get of netdev
#   00 00                    01 01 00 00   ok
#   cd ab                    01 01 cd ab   invalid argument
#
# Needs: Linux 6.3, Go with a module proxy. Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail

tmp=$(mktemp -d)
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
trap 'exit 2' HUP INT TERM
cd "$tmp"
export GOPATH=$tmp/go GOCACHE=$tmp/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0
cat >go.mod <<'end'
module finding
go 1.23
require github.com/vishvananda/netlink v1.3.1
end
cat >main.go <<'end'
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func main() {
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	asDescribed := true
	fmt.Println("bytes behind the struct  serialized    dev-get of netdev")
	for behind, want := range map[[2]byte]error{{0, 0}: nil, {0xcd, 0xab}: unix.EINVAL} {
		m := &struct {
			nl.Genlmsg
			behind [2]byte
		}{nl.Genlmsg{Command: 1, Version: 1}, behind}
		sent := m.Genlmsg.Serialize()
		req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_DUMP)
		req.AddData(&m.Genlmsg)
		_, err := req.Execute(unix.NETLINK_GENERIC, 0)
		answer := "ok"
		if err != nil {
			answer = err.Error()
		}
		fmt.Printf("% x                    % x   %s\n", behind, sent, answer)
		asDescribed = asDescribed && bytes.Equal(sent, []byte{1, 1, behind[0], behind[1]}) && errors.Is(err, want)
	}
	if !asDescribed {
		fmt.Fprintln(os.Stderr, "no longer as described")
		os.Exit(1)
	}
	fmt.Println("as described: the header had the two bytes behind the struct")
}
end
timeout 100 go mod tidy >log 2>&1 && timeout 100 go build -o finding . >>log 2>&1 || { cat log >&2; exit 2; }
go version | cut -d" " -f3
echo "kernel $(uname -r)"
rc=0
./finding || rc=$?
[ $rc -le 1 ] || rc=2
exit $rc
