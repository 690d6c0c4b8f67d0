package traffic

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// space is a network namespace without a name: it lives as long as its thread
// and the sockets made there, so a crashed test leaves nothing behind.
type space struct {
	tid  int
	work chan func()
	done chan struct{}
}

func newSpace(t testing.TB) *space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	s := &space{work: make(chan func()), done: make(chan struct{})}
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

// do runs f on the namespace's thread and waits for it.
func (s *space) do(f func()) {
	done := make(chan struct{})
	s.work <- func() { defer close(done); f() }
	<-done
}

// run executes a command inside; children inherit the thread's namespace.
func (s *space) run(t testing.TB, argv ...string) {
	t.Helper()
	s.do(func() {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(argv, " "), err, out)
		}
	})
}

func (s *space) sysctl(t testing.TB, key, value string) {
	t.Helper()
	s.do(func() {
		path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			t.Errorf("sysctl: %v", err)
		}
	})
}

// snmp reads one counter of the namespace, such as "Tcp", "OutSegs".
func (s *space) snmp(t testing.TB, proto, name string) int64 {
	t.Helper()
	value, ok := s.counters(t)[proto+":"+name]
	if !ok {
		t.Fatalf("no counter %s %s", proto, name)
	}
	return value
}

// counters reads all of them at one moment: two that are compared under load
// must not come from two readings.
func (s *space) counters(t testing.TB) map[string]int64 {
	t.Helper()
	var text []byte
	var err error
	s.do(func() { text, err = os.ReadFile("/proc/thread-self/net/snmp") })
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int64{}
	names := map[string][]string{}
	for sc := bufio.NewScanner(bytes.NewReader(text)); sc.Scan(); {
		words := strings.Fields(sc.Text())
		if names[words[0]] == nil {
			names[words[0]] = words
			continue
		}
		for i, n := range names[words[0]][1:] {
			values[words[0]+n], _ = strconv.ParseInt(words[i+1], 10, 64)
		}
	}
	return values
}

var (
	clientIP = netip.MustParseAddr("10.77.0.2")
	serverIP = netip.MustParseAddr("10.77.0.1")
)

// pair is a client and a server namespace joined by veth. Segmentation by the
// sending interface is off, as on the lab's links; aggregation on arrival is on.
type pair struct{ client, server *space }

func newPair(t testing.TB) pair {
	t.Helper()
	p := pair{newSpace(t), newSpace(t)}
	p.client.run(t, "ip", "link", "add", "gwt0", "type", "veth", "peer", "name", "gwt1", "netns", strconv.Itoa(p.server.tid))
	for _, side := range []struct {
		s    *space
		link string
		ip   netip.Addr
	}{{p.client, "gwt0", clientIP}, {p.server, "gwt1", serverIP}} {
		side.s.run(t, "ip", "addr", "add", side.ip.String()+"/16", "dev", side.link)
		side.s.run(t, "ethtool", "-K", side.link, "tso", "off", "gro", "on")
		side.s.run(t, "tc", "qdisc", "add", "dev", side.link, "root", "pfifo", "limit", "2000")
		side.s.run(t, "ip", "link", "set", side.link, "up")
		side.s.run(t, "ip", "route", "change", "10.77.0.0/16", "dev", side.link, "initcwnd", "64")
		side.s.sysctl(t, "net.ipv4.tcp_slow_start_after_idle", "0")
		side.s.sysctl(t, "net.ipv4.tcp_autocorking", "0")
	}
	return p
}

// listen opens the server's socket; the address is for dial.
func (s *space) listen(t testing.TB, ip netip.Addr) (fd int, addr netip.AddrPort) {
	t.Helper()
	var err error
	s.do(func() { fd, err = Listen(netip.AddrPortFrom(ip, 0)) })
	if err != nil {
		t.Fatal(err)
	}
	return fd, netip.AddrPortFrom(ip, localPort(t, fd))
}

func localPort(t testing.TB, fd int) uint16 {
	t.Helper()
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if sa, ok := sa.(*unix.SockaddrInet6); ok {
		return uint16(sa.Port)
	}
	return uint16(sa.(*unix.SockaddrInet4).Port)
}

// dial makes the socket in s and connects it from wherever it is called.
func (s *space) dial(addr netip.AddrPort) DialFunc {
	return func(ctx context.Context, _ int) (fd int, err error) {
		s.do(func() { fd, err = NewSocket(addr.Addr(), "") })
		if err != nil {
			return -1, err
		}
		if err := Connect(ctx, fd, netip.Addr{}, addr); err != nil {
			unix.Close(fd)
			return -1, err
		}
		return fd, nil
	}
}

// serve starts a server in p's server namespace.
func (p pair) serve(t testing.TB) (*Server, netip.AddrPort) {
	t.Helper()
	fd, addr := p.server.listen(t, serverIP)
	s, err := Serve(context.Background(), fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, addr
}

// start runs a generator in p's client namespace against addr.
func (p pair) start(t testing.TB, cfg Config, addr netip.AddrPort) *Generator {
	t.Helper()
	g, err := Start(context.Background(), cfg, p.client.dial(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// rate is payload bits per second between two readings.
func rate(a, b Stats) float64 {
	bytes := b.SentBytes - a.SentBytes + b.ReceivedBytes - a.ReceivedBytes
	return float64(bytes) * 8 / (float64(b.ElapsedNs-a.ElapsedNs) / 1e9)
}

func describe(s Stats) string {
	return fmt.Sprintf("streams %d sent %d received %d bursts %d shortfall %d late %d µs min %d max %d broken %d (%s) cpu %.1f %%",
		s.Streams, s.SentBytes, s.ReceivedBytes, s.Bursts, s.ShortfallBytes, s.MaxLatenessNs/1000, s.MinStreamBytes,
		s.MaxStreamBytes, s.Broken, s.FirstError, 100*float64(s.CPUNs)/float64(max(1, s.ElapsedNs)))
}
