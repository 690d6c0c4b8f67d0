// Tests of rate limits with real traffic, over a path with a long round trip (delay). newNetwork makes a LAN with alice
// and bob and a WAN with a server, and open starts a data path between them (main_test.go).

package ebpf

import (
	"errors"
	"flag"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Parameters of TestRateBounds; flags select other paths and a long run.
var (
	rateBps  = flag.Uint64("rate-bps", 20_000_000, "limit of each client, bits a second")
	rateRTT  = flag.Duration("rate-rtt", 20*time.Millisecond, "round trip between clients and server")
	rateWarm = flag.Duration("rate-warm", 2*time.Second, "before rates are measured")
	rateFor  = flag.Duration("rate-for", 3*time.Second, "how long they are measured")
	rateOf   = flag.String("rate-of", "udp,cubic,bbr", "what is sent: udp, and how TCP controls congestion")
)

// distant is the server's address with a long round-trip time.
var distant = netip.MustParseAddr("198.18.0.2")

// delay gives the server a second address whose packets are delayed. The server's own packets are not, so the delay is
// the round-trip time. A TUN device holds the packets, because this kernel may lack netem.
func (n network) delay(t testing.TB, rtt time.Duration) {
	t.Helper()
	var tun *os.File
	in(t, n.server, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		req, err := unix.NewIfreq("t0")
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			return err
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		tun = os.NewFile(uintptr(fd), "tun")
		return nil
	})
	run(t, `ip route replace 198.18.0.2/32 via 192.0.2.2 dev $wan
nsenter --net=/run/netns/$server sysctl -qw net.ipv4.ip_forward=1 net.ipv4.ip_early_demux=0 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
ip -n $server link set t0 up txqueuelen 10000; ip -n $server addr add 198.18.0.2/32 dev lo
ip -n $server route add default dev t0 table 100
ip -n $server rule add pref 10 lookup local; ip -n $server rule add pref 5 iif s0 to 198.18.0.2 lookup 100; ip -n $server rule del pref 0`,
		n.env()...)
	hold(t, tun, rtt)
}

// hold returns each packet of a TUN device after a delay, in order, until the test ends.
func hold(t testing.TB, tun *os.File, rtt time.Duration) {
	type held struct {
		packet []byte
		until  time.Time
	}
	line := make(chan held, 100_000)
	var running sync.WaitGroup
	running.Go(func() {
		defer close(line)
		for {
			b := make([]byte, 2000)
			k, err := tun.Read(b)
			if err != nil {
				return
			}
			line <- held{b[:k], time.Now().Add(rtt)}
		}
	})
	running.Go(func() {
		for h := range line {
			time.Sleep(time.Until(h.until))
			tun.Write(h.packet)
		}
	})
	t.Cleanup(func() { tun.Close(); running.Wait() })
}

// load is a client's traffic above its limit, in one direction.
type load struct {
	kind string // "udp", or TCP's congestion control: "cubic", "bbr", "reno"
	up   bool
	addr netip.Addr // of the client
}

func (l load) String() string { return l.kind + map[bool]string{true: " up", false: " down"}[l.up] }

// begin sends until the test ends.
func (n network) begin(t *testing.T, l load) {
	t.Helper()
	if l.kind == "udp" {
		n.blast(t, l)
		return
	}
	var listener *net.TCPListener
	var client *net.TCPConn
	in(t, n.server, func() (err error) {
		listener, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: distant.AsSlice()})
		return err
	})
	defer listener.Close()
	in(t, n.client, func() (err error) {
		client, err = net.DialTCP("tcp4", &net.TCPAddr{IP: l.addr.AsSlice()}, listener.Addr().(*net.TCPAddr))
		return err
	})
	server, err := listener.AcceptTCP()
	must(t, err)
	from, to := client, server
	if !l.up {
		from, to = to, from
	}
	raw, err := from.SyscallConn()
	must(t, err)
	var failed error
	must(t, raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, l.kind)
	}))
	must(t, failed)
	var running sync.WaitGroup
	for _, move := range []func([]byte) (int, error){from.Write, to.Read} {
		running.Go(func() {
			for b := make([]byte, 64<<10); ; {
				if _, err := move(b); err != nil {
					return
				}
			}
		})
	}
	t.Cleanup(func() { client.Close(); server.Close(); running.Wait() })
}

// blast sends datagrams at three times the limit. It wakes each millisecond and sends a burst.
func (n network) blast(t *testing.T, l load) {
	t.Helper()
	from, to, addr, here := n.client, n.server, distant, l.addr
	if !l.up {
		from, to, addr, here = to, from, here, addr
	}
	var out, receiver *net.UDPConn
	in(t, to, func() (err error) {
		receiver, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		return err
	})
	in(t, from, func() (err error) {
		out, err = net.DialUDP(
			"udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(here, 0)), receiver.LocalAddr().(*net.UDPAddr))
		return err
	})
	var running sync.WaitGroup
	running.Go(func() {
		b := make([]byte, 1400)
		perSecond := 3 * float64(*rateBps) / 8 / 1428
		for began, sent := time.Now(), 0; ; time.Sleep(time.Millisecond) {
			for ; sent < int(time.Since(began).Seconds()*perSecond); sent++ {
				if _, err := out.Write(b); errors.Is(err, net.ErrClosed) {
					return
				}
			}
		}
	})
	t.Cleanup(func() { out.Close(); receiver.Close(); running.Wait() })
}

// reading is the state of a rate limiter, read from its map.
type reading struct {
	at      uint64 // ns of CLOCK_MONOTONIC
	passed  uint64 // the traffic that has passed, as ns at the full rate
	left    uint64 // the traffic that may pass at once, as ns at the full rate
	dropped uint64 // packets
}

func (d *Datapath) limiter(t *testing.T, l load) (r reading) {
	t.Helper()
	place, err := d.placeOf(l.addr)
	must(t, err)
	var m gatewayMeters
	must(t, d.objs.ClientMeters.Lookup(place, &m))
	c := counters(t, d, l.addr)
	bytes, used := c.DownBytes, m.Down.Ns
	if l.up {
		bytes, used = c.UpBytes, m.Up.Ns
	}
	ps, burst := rate(*rateBps)
	r = reading{at: now(), passed: bytes * ps / 1000, dropped: c.DroppedPackets}
	r.left = min(r.at-min(used, r.at), burst)
	return r
}

// TestRateBounds: in each window of time no more passes than rate and burst allow, and a client that always sends gets
// at least 97 % of its rate in one of them, with UDP and with each congestion control of TCP. The part of the burst
// that is unused at a window's ends is left out of both checks.
func TestRateBounds(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	n.delay(t, *rateRTT)
	var loads []load
	for i, kind := range strings.Split(*rateOf, ",") {
		for k, up := range []bool{true, false} {
			l := load{kind, up, netip.AddrFrom4([4]byte{10, 1, 0, byte(20 + 2*i + k)})}
			run(t, "ip -n $client addr add "+l.addr.String()+"/24 dev c0", n.env()...)
			must(t, d.Set(datapath.Client{Addrs: []netip.Addr{l.addr}, MAC: aliceMAC, Admitted: true,
				Limits: datapath.Limits{UpBps: *rateBps, DownBps: *rateBps}}))
			n.begin(t, l)
			loads = append(loads, l)
		}
	}
	time.Sleep(*rateWarm)
	full := map[load]bool{}
	for window := 0; window < 20 && len(full) < len(loads); window++ {
		before := map[load]reading{}
		for _, l := range loads {
			before[l] = d.limiter(t, l)
		}
		time.Sleep(*rateFor)
		for _, l := range loads {
			earlier, current := before[l], d.limiter(t, l)
			passed, lasted := current.passed-earlier.passed, current.at-earlier.at
			if most := lasted + earlier.left; float64(passed) > 1.001*float64(most) {
				t.Errorf("%s: %.4f of what the limit allows passed", l, float64(passed)/float64(most))
			}
			share := (float64(passed) + float64(current.left) - float64(earlier.left)) / float64(lasted)
			if share >= 0.97 { // in another window a busy machine may have kept it from sending
				full[l] = true
			}
			t.Logf("%s: %.3f of the rate passed, %.3f of it was used, %d packets dropped", l, float64(passed)/float64(lasted),
				share, current.dropped-earlier.dropped)
		}
	}
	for _, l := range loads {
		if !full[l] {
			t.Errorf("%s never had its rate", l)
		}
	}
}
