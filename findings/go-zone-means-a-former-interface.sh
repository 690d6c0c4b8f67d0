#!/bin/bash
# A Go program that has once used an address with a zone (fe80::1%eth1) goes on using the index of the former interface
# for up to 60 s after an interface of that name was removed and made anew.
#
# Expected: the zone is a name, and names are looked up when they are used, as getaddrinfo and if_nametoindex do it. Daemons on
# routers see interfaces of the same name come back: VLANs, tunnels, PPP links, USB modems, containers.
#
# What happens: net.ListenUDP, Dial and their like use the index that the name had. Binding fails with "no such device",
# although the interface is there, has the address, and net.InterfaceByName tells its index in the line before. Each further
# try within 60 s fails too. net.Interfaces in between does not help.
#
# Why: zoneCache in net/interface.go is read anew at most once in 60 s as long as it knows the name; only a name that it does not
# know is looked up at once. No function empties it. The number of net.InterfaceByName, given as the zone, is used as it is.
#
# Seen with: go 1.26.8, Linux 6.18:
#   interface  index  zone   listen on its link-local address
#   first      50     zone0  ok
#   second     51     zone0  no such device
#   second     51     zone0  no such device (after net.Interfaces)
#   second     51     51     ok
# Needs: root, iproute2, Go. Exit: 0 as described, 1 no longer so, 2 not run.
set -euo pipefail

tmp=$(mktemp -d)
child=
trap '[ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null || true; chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
trap 'exit 2' HUP INT TERM
cd "$tmp"
export GOPATH=$tmp/go GOCACHE=$tmp/cache GOTOOLCHAIN=local CGO_ENABLED=0
cat >go.mod <<'end'
module finding
go 1.24
end
cat >main.go <<'end'
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// remake adds an interface zone0 of the given index with the address fe80::1, without duplicate address detection.
func remake(index string) {
	for _, line := range []string{
		"link del zone0",
		"link add zone0 index " + index + " type veth peer name peer0",
		"link set zone0 up",
		"link set peer0 up",
		"addr add fe80::1/64 dev zone0 nodad",
	} {
		out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
		if err != nil && !strings.HasPrefix(line, "link del") {
			fmt.Fprintf(os.Stderr, "ip %s: %v: %s", line, err, out)
			os.Exit(2)
		}
	}
}

func listen(zone string) error {
	c, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.ParseIP("fe80::1"), Zone: zone})
	if err == nil {
		c.Close()
	}
	return err
}

// show prints how listening on zone0's address by a zone ended.
func show(which, zone, when string, err error) {
	i, lookup := net.InterfaceByName("zone0")
	if lookup != nil {
		fmt.Fprintln(os.Stderr, lookup)
		os.Exit(2)
	}
	said := "ok"
	var e syscall.Errno
	if errors.As(err, &e) {
		said = e.Error()
	} else if err != nil {
		said = err.Error()
	}
	fmt.Printf("%-10s %-6d %-6s %s%s\n", which, i.Index, zone, said, when)
}

func main() {
	fmt.Println("interface  index  zone   listen on its link-local address")
	remake("50")
	first := listen("zone0")
	show("first", "zone0", "", first)
	remake("51")
	second := listen("zone0")
	show("second", "zone0", "", second)
	net.Interfaces()
	third := listen("zone0")
	show("second", "zone0", " (after net.Interfaces)", third)
	number := listen("51")
	show("second", "51", "", number)
	if first != nil || number != nil {
		fmt.Fprintln(os.Stderr, "not run: the address could not be bound at all")
		os.Exit(2)
	}
	if !errors.Is(second, syscall.ENODEV) || !errors.Is(third, syscall.ENODEV) {
		fmt.Fprintln(os.Stderr, "no longer as described")
		os.Exit(1)
	}
	fmt.Println("as described: the name means the former interface")
}
end
timeout 300 go build -o finding . >log 2>&1 || { cat log >&2; exit 2; }
go version | cut -d" " -f3
rc=0
timeout 30 unshare --net ./finding & child=$!
wait $child || rc=$?
child=
[ $rc -le 1 ] || rc=2
exit $rc
