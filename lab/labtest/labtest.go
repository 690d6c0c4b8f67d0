// Package labtest is what tests of several packages share: network namespaces
// that leave nothing behind, and patience.
package labtest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Await waits until ok reports true, 30 s at most: long enough for a machine that
// is busy with other tests.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 12000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}

// Space is a network namespace without a name: it lives as long as its thread
// and the sockets made there, so a crashed test leaves nothing behind.
type Space struct {
	tid  int
	work chan func()
	done chan struct{}
}

// NewSpace makes a namespace that ends with the test.
func NewSpace(t testing.TB) *Space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	s := &Space{work: make(chan func()), done: make(chan struct{})}
	ready := make(chan error)
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread must not be used again
		err := unix.Unshare(unix.CLONE_NEWNET)
		s.tid = unix.Gettid()
		ready <- err
		for f := range s.work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("unshare: %v", err)
	}
	t.Cleanup(func() { close(s.work); <-s.done })
	return s
}

// Do runs f on the namespace's thread and waits for it.
func (s *Space) Do(f func()) {
	done := make(chan struct{})
	s.work <- func() { defer close(done); f() }
	<-done
}

// Run executes a command inside; children inherit the thread's namespace.
func (s *Space) Run(t testing.TB, argv ...string) {
	t.Helper()
	s.Do(func() {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(argv, " "), err, out)
		}
	})
}

// Counters reads all of /proc/net/snmp, "Tcp:OutSegs", at one moment: two that are
// compared under load must not come from two readings.
func (s *Space) Counters(t testing.TB) map[string]int64 {
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
type Pair struct{ Client, Server *Space }

// NewPair makes a pair of new namespaces; their link is up.
func NewPair(t testing.TB) Pair {
	t.Helper()
	p := Pair{NewSpace(t), NewSpace(t)}
	p.Client.Run(t, "ip", "link", "add", "gwt0", "type", "veth", "peer", "name", "gwt1", "netns",
		strconv.Itoa(p.Server.tid))
	const setUp = `ip addr add "$2/16" dev "$1"; ethtool -K "$1" tso off tx-udp-segmentation off gro on
tc qdisc add dev "$1" root pfifo limit 2000; ip link set "$1" up; ip route change 10.77.0.0/16 dev "$1" initcwnd 64
sysctl -qw net.ipv4.tcp_slow_start_after_idle=0 net.ipv4.tcp_autocorking=0`
	p.Client.Run(t, "sh", "-ec", setUp, "sh", "gwt0", ClientIP.String())
	p.Server.Run(t, "sh", "-ec", setUp, "sh", "gwt1", ServerIP.String())
	// The end that was up first drops what is sent through it until the kernel has
	// noticed the other.
	p.Client.Run(t, "sh", "-c", `until ip link show gwt0 | grep -q "state UP"; do sleep 0.01; done`)
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
func Greet(t testing.TB, server *Space) netip.AddrPort {
	t.Helper()
	at := netip.AddrPortFrom(ServerIP, 7000)
	var l net.Listener
	var err error
	server.Do(func() { l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at)) })
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
	return at
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
