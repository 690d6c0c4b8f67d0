// Tests of the log with a client, a server, and this namespace as a masquerading router between them (newWorld). start
// runs a log in a folder, whois searches it until it finds a flow, and holders tells which user has the client's
// address.

package flowlog

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) {
	netnstest.Main(m, "ip link set lo up; sysctl -qw net.ipv4.ip_forward=1")
}

// must fails the test on an error.
var must = netnstest.Must

// network is a client and a server, with this namespace as a masquerading router between them.
type network struct{ client, server *netnstest.Space }

// newWorld makes the network: the client is 10.1.0.9, the server 203.0.113.9, the router 10.1.0.1 and 203.0.113.5.
func newWorld(t testing.TB) network {
	t.Helper()
	w := network{netnstest.NewSpace(t), netnstest.NewSpace(t)}
	run(t, netnstest.Up+
		fmt.Sprintf(`ip link add lan0 type veth peer name c0 netns %d; ip link add wan0 type veth peer name s0 netns %d
ip addr add 10.1.0.1/24 dev lan0; ip addr add 203.0.113.5/24 dev wan0; ip link set lan0 up; ip link set wan0 up
nft 'table ip nat { chain out { type nat hook postrouting priority 100; oifname wan0 masquerade; }; chain in { type nat hook prerouting priority -100; iifname wan0 tcp dport 2222 dnat to 10.1.0.9:22; }; }'`,
			w.client.TID(), w.server.TID()))
	t.Cleanup(func() { run(t, "ip link del lan0; ip link del wan0; nft flush ruleset") })
	w.client.Run(t, netnstest.Up+
		"ip addr add 10.1.0.9/24 dev c0; ip link set c0 up; ip route add default via 10.1.0.1; up c0")
	w.server.Run(t, netnstest.Up+
		"ip addr add 203.0.113.9/24 dev s0; ip link set s0 up; up s0; nft 'table ip t { chain i { type filter hook input "+
		"priority 0; udp dport 1000-60000 drop; }; }'")
	run(t, netnstest.Up+"up lan0 wan0")
	return w
}

// run runs a shell script in the test's own namespace, the router.
var run = netnstest.Run

// holders is the table of sessions of these tests: it tells who holds the client's address.
type holders struct {
	mu    sync.Mutex
	who   Holder
	since time.Time
}

func (p *holders) set(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.who, p.since = Holder{"02:00:00:00:00:09", user, "s-" + user}, time.Now()
}

func (p *holders) get(addr netip.Addr, since time.Time) Holder {
	p.mu.Lock()
	defer p.mu.Unlock()
	if addr != netip.MustParseAddr("10.1.0.9") || since.Before(p.since) {
		return Holder{}
	}
	return p.who
}

func config(folder string, p *holders) Config {
	return Config{
		Folder: folder, KeepFor: 24 * time.Hour, Interface: "lan0", LAN: netip.MustParsePrefix("10.1.0.0/24"),
		Gateway:  netip.MustParseAddr("10.1.0.1"),
		HolderOf: p.get, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
}

// start runs a log until the test ends, or stop is called.
func start(t testing.TB, cfg Config) (log *Log, stop func()) {
	t.Helper()
	log, err := Open(cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- log.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		must(t, <-ended)
		must(t, log.Close())
	})
	t.Cleanup(stop)
	return log, stop
}

// whois calls FindFlows until it finds a flow for which ok returns true, and returns the flow.
func whois(t testing.TB, folder, name string, instant time.Time, ok func(Flow) bool) Flow {
	t.Helper()
	var flow Flow
	netnstest.Await(t, "the flow of "+name, func() error {
		found, err := FindFlows(folder, netip.MustParseAddrPort(name), instant)
		if err != nil {
			return err
		}
		for _, f := range found.Flows {
			if flow = f; ok(f) {
				return nil
			}
		}
		return fmt.Errorf("found %+v", found)
	})
	return flow
}

// flushConnections removes every IPv4 connection from the kernel's table, and flushConnections6 every IPv6 one.
func flushConnections(t testing.TB)  { t.Helper(); flushFamily(t, unix.AF_INET) }
func flushConnections6(t testing.TB) { t.Helper(); flushFamily(t, unix.AF_INET6) }

func flushFamily(t testing.TB, family byte) {
	t.Helper()
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	must(t, err)
	defer conn.Close()
	_, err = conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | 2,
		Flags: netlink.Request | netlink.Acknowledge}, Data: []byte{family, unix.NFNETLINK_V0, 0, 0}})
	must(t, err)
}

// udp opens a socket of the client's, and send sends from it.
func (w network) udp(t testing.TB) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	var err error
	w.client.Do(func() { c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 1, 0, 9)}) })
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t testing.TB, c *net.UDPConn, port int) {
	t.Helper()
	_, err := c.WriteToUDP([]byte("hello"), &net.UDPAddr{IP: net.IPv4(203, 0, 113, 9), Port: port})
	must(t, err)
}

// TestConnections: FindFlows finds real connections by both of their addresses, with bytes and user, while they are
// open and afterwards. Close restores the kernel's settings and rules. Long: the steps of one run, each of which needs
// the state that the one before left.
func TestConnections(t *testing.T) {
	w, p, folder := newWorld(t), &holders{}, t.TempDir()
	settings := "sysctl net.netfilter.nf_conntrack_acct net.netfilter.nf_conntrack_timestamp " +
		"net.netfilter.nf_conntrack_events; nft list ruleset"
	before := run(t, settings)
	p.set("ann")
	log, stop := start(t, config(folder, p))
	inside := w.udp(t)
	send(t, inside, 5000)
	client := inside.LocalAddr().String()
	open := whois(t, folder, client, time.Now(), func(flow Flow) bool { return flow.Event == Begins })
	if open.User != "ann" || open.Session != "s-ann" || open.MAC != "02:00:00:00:00:09" ||
		open.Outside.Addr() != netip.MustParseAddr("203.0.113.5") ||
		open.Peer != netip.MustParseAddrPort("203.0.113.9:5000") || open.Protocol != 17 || open.Inbound {
		t.Errorf("found %+v", open)
	}
	p.set("bob") // the flow stays ann's
	send(t, inside, 5000)
	send(t, inside, 5001)
	whois(t, folder, client, time.Now(), func(flow Flow) bool { return flow.User == "bob" && flow.Peer.Port() == 5001 })
	flushConnections(t)
	closed := whois(
		t, folder, open.Outside.String(), open.Start,
		func(flow Flow) bool { return flow.Event == Ends && flow.Peer.Port() == 5000 })
	if closed.User != "ann" || closed.UpPkts != 2 || closed.UpBytes != 2*33 || closed.DownPkts != 0 ||
		closed.Client != open.Client || closed.End.Before(closed.Start) {
		t.Errorf("found %+v", closed)
	}
	if !closed.Start.Equal(open.Start) {
		t.Errorf("the starts of the two lines are %v apart", closed.Start.Sub(open.Start))
	}

	// TCP that the server begins, by the forwarded port, and ICMP.
	w.client.Run(t, "busybox nc -l -p 22 >/dev/null 2>&1 </dev/null & until ss -ltn | grep -q :22; do sleep 0.01; done")
	w.server.Run(t, "echo hello | timeout 5 busybox nc 203.0.113.5 2222 || :")
	in := whois(t, folder, "203.0.113.5:2222", time.Now(), func(flow Flow) bool { return flow.Inbound })
	if in.Client != netip.MustParseAddrPort("10.1.0.9:22") || in.Protocol != 6 || in.User != "bob" ||
		in.Peer.Addr() != netip.MustParseAddr("203.0.113.9") {
		t.Errorf("found %+v", in)
	}
	w.client.Run(t, "ping -q -c 1 -e 4242 203.0.113.9") // the identifier
	ping := whois(t, folder, "10.1.0.9:4242", time.Now(), func(flow Flow) bool { return flow.Protocol == 1 })
	if ping.ICMPType != 8 || ping.ICMPCode != 0 || ping.Client.Port() != 4242 ||
		ping.Outside.Addr() != netip.MustParseAddr("203.0.113.5") {
		t.Errorf("found %+v", ping)
	}
	for i, change := range []string{"delete", "flush"} { // as another program might
		run(t, "nft "+change+" table ip gatewayd-flows-lan0")
		netnstest.Await(t, "the rule after "+change, func() error {
			if n := log.Stats().Restored; n != uint64(i+1) {
				return fmt.Errorf("put back %d times", n)
			}
			return nil
		})
	}
	stop()
	if after := run(t, settings); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
	files, err := filepath.Glob(folder + "/*")
	must(t, err)
	if len(files) != 1 {
		t.Errorf("left: %v", files)
	}
	info, err := os.Stat(files[0])
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

// TestAllFlowsLogged begins 100,000 flows, 10,000 a second: the log must have as many as the kernel counts. Long: the
// steps of one run, each of which needs the state that the one before left.
func TestAllFlowsLogged(t *testing.T) {
	const rate, seconds = 10_000, 10
	w, p, folder := newWorld(t), &holders{}, t.TempDir()
	p.set("ann")
	run(t, "sysctl -qw net.netfilter.nf_conntrack_udp_timeout=600")
	log, stop := start(t, config(folder, p))
	sockets := make([]*net.UDPConn, 10)
	for i := range sockets {
		sockets[i] = w.udp(t)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for n := range rate * seconds {
		if n%(rate/100) == 0 {
			<-tick.C
		}
		send(t, sockets[n%len(sockets)], 1000+n/len(sockets))
	}
	took := time.Since(began)
	kernels := func() uint64 {
		n, err := strconv.ParseUint(run(t, "cat /proc/sys/net/netfilter/nf_conntrack_count"), 10, 64)
		must(t, err)
		return n
	}
	before := kernels()
	netnstest.Await(t, "all beginnings", func() error {
		if stats := log.Stats(); stats.Started < before {
			return fmt.Errorf("%+v of %d", stats, before)
		}
		return nil
	})
	flushConnections(t)
	netnstest.Await(t, "all ends", func() error {
		if stats := log.Stats(); stats.Ended < before {
			return fmt.Errorf("%+v of %d", stats, before)
		}
		return nil
	})
	stop()
	stats := log.Stats()
	t.Logf("%d flows in %v: %+v", before, took, stats)
	if before < rate*seconds || stats.Started != before || stats.Ended != before || stats.Lost != 0 {
		t.Errorf("the kernel had %d connections; %+v", before, stats)
	}
	if got := run(t, "cat "+folder+"/*.ndjson | grep -c '\"event\":\"end\"'; "); strings.TrimSpace(got) != fmt.Sprint(
		before) {
		t.Errorf("%s ends are in the files, of %d", got, before)
	}
}
