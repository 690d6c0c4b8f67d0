#!/bin/bash
# A dump of the kernel's generic netlink family "netdev" has no NLM_F_MULTI in its messages, and vishvananda/netlink returns
# the first object of it without an error.
#
# Expected: messages of a dump have the flag NLM_F_MULTI and end with NLMSG_DONE, as rtnetlink's do and as the kernel's
# introduction to netlink says (userspace-api/netlink/intro). NetlinkRequest.Execute of vishvananda/netlink, which nearly
# every Go program for networks uses, returns all of them, for example the ids of all threads that poll interfaces (NAPI).
#
# What happens: Linux sends one message an object, all without the flag, and NLMSG_DONE. Execute takes a message without
# the flag for a whole answer and ends: of the objects of dev-get and napi-get it returns one, with a nil error. The same
# request over the library's own socket, read until NLMSG_DONE, gives all. So of three interfaces two look as if they had no
# polling thread.
#
# Why: nl/nl_linux.go, ExecuteIter: a message without NLM_F_MULTI ends its loop. net/core/netdev-genl.c puts its messages
# with genlmsg_iput, which sets no flags; dumps of rtnetlink set NLM_F_MULTI themselves.
#
# Seen with: github.com/vishvananda/netlink v1.3.1, go 1.26.8, kernel 6.18.44, three veth pairs with a polling thread each:
#   command   in the kernel's answer  with NLM_F_MULTI  returned by Execute
#   dev-get   7                       0                 1
#   napi-get  3                       0                 1
#
# Needs: root, Linux 6.8, Go with a module proxy, iproute2, ethtool. Exit: 0 as described, 1 no longer so, 2 not run.
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
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// header is a Genlmsg with the two reserved bytes that the library sends after it.
type header struct {
	nl.Genlmsg
	reserved uint16
}

func request(family int, command uint8) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(family, unix.NLM_F_DUMP)
	req.AddData(&(&header{Genlmsg: nl.Genlmsg{Command: command, Version: 1}}).Genlmsg)
	return req
}

func main() {
	family, err := netlink.GenlFamilyGet("netdev")
	check(err)
	asDescribed := true
	fmt.Println("command   in the kernel's answer  with NLM_F_MULTI  returned by Execute")
	for _, c := range []struct {
		name    string
		command uint8
		objects int
	}{{"dev-get", 1, 7}, {"napi-get", 11, 3}} {
		returned, err := request(int(family.ID), c.command).Execute(unix.NETLINK_GENERIC, 0)
		check(err)
		s, err := nl.Subscribe(unix.NETLINK_GENERIC)
		check(err)
		check(s.SetReceiveTimeout(&unix.Timeval{Sec: 5}))
		check(s.Send(request(int(family.ID), c.command)))
		objects, multi := 0, 0
		for done := false; !done; {
			messages, _, err := s.Receive()
			check(err)
			for _, m := range messages {
				if done = m.Header.Type == unix.NLMSG_DONE || m.Header.Type == unix.NLMSG_ERROR; done {
					break
				}
				objects++
				if m.Header.Flags&unix.NLM_F_MULTI != 0 {
					multi++
				}
			}
		}
		s.Close()
		fmt.Printf("%-8s  %-22d  %-16d  %d\n", c.name, objects, multi, len(returned))
		asDescribed = asDescribed && objects == c.objects && multi == 0 && len(returned) == 1
	}
	if !asDescribed {
		fmt.Fprintln(os.Stderr, "no longer as described")
		os.Exit(1)
	}
	fmt.Println("as described: Execute returned the first object of each dump")
}
end
timeout 100 go mod tidy >log 2>&1 && timeout 100 go build -o finding . >>log 2>&1 || { cat log >&2; exit 2; }
rc=0
timeout -k 2 30 unshare --net --mount --propagation private sh -ec '
mount -t sysfs none /sys
for i in 1 2 3; do
	ip link add a$i type veth peer name b$i
	ip link set a$i up
	ip link set b$i up
	ethtool -K a$i gro on
	echo 1 >/sys/class/net/a$i/threaded
done
go version | cut -d" " -f3
echo "kernel $(uname -r)"
./finding' || rc=$?
[ $rc -le 1 ] || rc=2
exit $rc
