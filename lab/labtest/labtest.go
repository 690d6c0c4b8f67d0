// Package labtest is what tests of several of the lab's packages share.
package labtest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Await waits until ok reports true.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	netnstest.Until(t, what, ok)
}

// Counters reads all of /proc/net/snmp, "Tcp:OutSegs", at one moment: two that are
// compared under load must not come from two readings.
func Counters(t testing.TB, s *netnstest.Space) map[string]int64 {
	t.Helper()
	var text []byte
	var err error
	s.Do(func() { text, err = os.ReadFile("/proc/thread-self/net/snmp") })
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int64{}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := 0; i < len(lines); i += 2 { // names, and below them their values
		names, numbers := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for j, n := range names[1:] {
			values[names[0]+n], _ = strconv.ParseInt(numbers[j+1], 10, 64)
		}
	}
	return values
}

// Addresses of a Pair.
var (
	ClientIP = netip.MustParseAddr("10.77.0.2")
	ServerIP = netip.MustParseAddr("10.77.0.1")
)

// Pair is a client and a server namespace joined by veth. Segmentation by the
// sending interface is off, as on the lab's links; aggregation on arrival is on.
type Pair struct{ Client, Server *netnstest.Space }

// NewPair makes a pair of new namespaces; their link is up.
func NewPair(t testing.TB) Pair {
	t.Helper()
	p := Pair{netnstest.NewSpace(t), netnstest.NewSpace(t)}
	p.Client.Run(t, "ip link add gwt0 type veth peer name gwt1 netns "+strconv.Itoa(p.Server.TID()))
	const setUp = `ip addr add "$at/16" dev "$link"; ethtool -K "$link" tso off tx-udp-segmentation off gro on
tc qdisc add dev "$link" root pfifo limit 2000; ip link set "$link" up; ip route change 10.77.0.0/16 dev "$link" initcwnd 64
sysctl -qw net.ipv4.tcp_slow_start_after_idle=0 net.ipv4.tcp_autocorking=0`
	p.Client.Run(t, setUp, "link=gwt0", "at="+ClientIP.String())
	p.Server.Run(t, setUp, "link=gwt1", "at="+ServerIP.String())
	p.Client.Run(t, netnstest.Up+"up gwt0")
	return p
}

// Program puts an executable script on a PATH of the test's own.
func Program(t testing.TB, name, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// Greet answers each connection to the server with the address it comes from.
func Greet(t testing.TB, server *netnstest.Space) netip.AddrPort {
	t.Helper()
	addr := netip.AddrPortFrom(ServerIP, 7000)
	var l net.Listener
	var err error
	server.Do(func() { l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(addr)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr())
			c.Close()
		}
	}()
	return addr
}

// Children lists the processes that a process has started and that have a word in their command line.
func Children(t testing.TB, pid int, command string) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		args, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err == nil && fields[1] == strconv.Itoa(pid) && strings.Contains(string(args), "\x00"+command) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, child)
		}
	}
	return pids
}
