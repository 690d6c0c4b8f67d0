// A benchmark of what a client notices of its rate limit: it sends TCP through the gateway beyond the limit, and echo
// requests beside that. newNetwork makes a LAN with alice and bob and a WAN with a server, and open starts a data path
// between them (main_test.go).

package ebpf

import (
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// The loads that BenchmarkFeel measures.
var (
	feelMbps  = flag.String("feel-mbps", "1,5,20,100", "limits, Mbit/s")
	feelConns = flag.String("feel-conns", "1,8", "connections at once")
	feelRTT   = flag.String("feel-rtt", "0s,20ms", "round trips without load")
	feelWarm  = flag.Duration("feel-warm", 5*time.Second, "before it is measured")
	feelFor   = flag.Duration("feel-for", 10*time.Second, "how long it is measured")
	feelTCP   = flag.String("feel-tcp", "cubic", "how TCP controls congestion")
	feelECN   = flag.Bool("feel-ecn", false, "the client asks for ECN")
	feelShape = flag.String("feel-shaping", "auto", "what becomes of packets beyond the rate: auto or never")
	feelJoin  = flag.Bool("feel-join", false, "packets arrive aggregated")
)

// lostPing is the round-trip time as which a lost echo request counts: a resolver asks again after that time.
const lostPing = time.Second

// BenchmarkFeel measures what a client with a rate limit notices of it: the payload of its connections as a share of
// the limit, packets lost, round trips beside the load, and how equally its connections share.
func BenchmarkFeel(b *testing.B) { eachFeel(b, func(b *testing.B, c limitLoad) { c.run(b) }) }

// eachFeel measures each load that flags select.
func eachFeel(b *testing.B, measure func(*testing.B, limitLoad)) {
	for _, rtt := range strings.Split(*feelRTT, ",") {
		for _, mbps := range strings.Split(*feelMbps, ",") {
			for _, conns := range strings.Split(*feelConns, ",") {
				for _, up := range []bool{true, false} {
					c := limitLoad{up: up}
					fmt.Sscan(mbps, &c.mbps)
					fmt.Sscan(conns, &c.conns)
					c.rtt, _ = time.ParseDuration(rtt)
					b.Run(c.String(), func(b *testing.B) { measure(b, c) })
				}
			}
		}
	}
}

// limitLoad is the traffic of one measurement: TCP connections in one direction, beyond a limit of both directions.
type limitLoad struct {
	mbps  float64
	conns int
	up    bool
	rtt   time.Duration
	warm  time.Duration // added to -feel-warm
}

func (c limitLoad) String() string {
	return fmt.Sprintf(
		"rtt=%v/mbps=%v/conns=%d/%s", c.rtt, c.mbps, c.conns, map[bool]string{true: "up", false: "down"}[c.up])
}

func (c limitLoad) run(b *testing.B) {
	n := newNetwork(b)
	d := n.open(b, func(c *Config) { c.Shaping = Shaping(*feelShape) })
	bps := uint64(c.mbps * 1e6)
	must(b, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true,
		Limits: datapath.Limits{UpBps: bps, DownBps: bps}}))
	n.farther(b)
	c.measure(b, n, d.fate(b, c.up))
}

// measure loads the network and reports what the client notices. fate counts the packets in the connections' direction.
func (c limitLoad) measure(b *testing.B, n network, fate func() (passed, dropped uint64)) {
	to := server
	if c.rtt > 0 {
		n.delay(b, c.rtt)
		to = distant
	}
	offload := map[bool]string{true: "on", false: "off"}[*feelJoin]
	run(b, `ip netns exec $client ethtool -K c0 tso `+offload+` gso `+offload+`; ip netns exec $server ethtool -K s0 tso `+
		offload+` gso `+offload, n.env()...)
	if *feelECN {
		run(b, "ip netns exec $client sysctl -qw net.ipv4.tcp_ecn=1; ip netns exec $server sysctl -qw net.ipv4.tcp_ecn=1",
			n.env()...)
	}
	ping := n.ping(b, to)
	var all []*stream
	for range c.conns {
		all = append(all, n.stream(b, to, c.up))
	}
	for range b.N {
		time.Sleep(*feelWarm + c.warm)
		f := observe(b, fate, all, ping, *feelFor)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(f.bps/(c.mbps*1e6), "goodput")
		b.ReportMetric(100*f.loss, "%loss")
		b.ReportMetric(100*f.again, "%again")
		b.ReportMetric(1e3*at(f.pings, 0.99).Seconds(), "ms-p99-ping")
		b.ReportMetric(1e3*at(f.pings, 0.5).Seconds(), "ms-p50-ping")
		b.ReportMetric(1e3*at(f.rtts, 0.99).Seconds(), "ms-p99-tcp")
		b.ReportMetric(1e3*at(f.rtts, 0.5).Seconds(), "ms-p50-tcp")
		b.ReportMetric(f.jain, "jain")
	}
}

// limitEffect is what Alice's connections notice of her limit under a load: rate, loss, fairness and round trips.
type limitEffect struct {
	bps         float64 // bit/s that arrived
	loss, again float64 // share of packets in their direction that the gateway dropped, and of segments sent again
	jain        float64 // Jain's fairness of the connections; 1: all have the same rate
	rtts, pings []time.Duration
}

// felt measures connections that all send up or all send down.
func (d *Datapath) felt(t testing.TB, all []*stream, ping *pinger, up bool, lasts time.Duration) limitEffect {
	t.Helper()
	return observe(t, d.fate(t, up), all, ping, lasts)
}

// fate returns a function that counts Alice's packets that passed in a direction, and her packets that were dropped.
func (d *Datapath) fate(t testing.TB, up bool) func() (passed, dropped uint64) {
	return func() (passed, dropped uint64) {
		c := counters(t, d, alice)
		if up {
			return c.UpPackets, c.DroppedPackets
		}
		return c.DownPackets, c.DroppedPackets
	}
}

// observe measures connections for some time.
func observe(t testing.TB, fate func() (passed, dropped uint64), all []*stream, ping *pinger, lasts time.Duration) (
	f limitEffect) {
	t.Helper()
	passed, dropped := fate()
	came, sent, again := totals(all)
	began := time.Now()
	ping.begin()
	f.rtts = sampleRTT(all, lasts)
	f.pings = ping.end()
	lasted := time.Since(began).Seconds()
	passed2, dropped2 := fate()
	came2, sent2, again2 := totals(all)
	var sum, squares float64
	for i := range came {
		x := float64(came2[i] - came[i])
		sum, squares = sum+x, squares+x*x
	}
	lost := float64(dropped2 - dropped)
	f.bps, f.loss = sum*8/lasted, lost/max(1, float64(passed2-passed)+lost)
	f.again = float64(again2-again) / max(1, float64(sent2-sent))
	f.jain = sum * sum / max(1, float64(len(came))*squares)
	return f
}

// farther puts a hub between the gateway and the server, as on a wire: packets that have crossed it are no longer
// charged to their sender's socket. Over a virtual link alone a sender is charged until its packets leave the gateway's
// queue, and therefore sends no more.
func (n network) farther(t testing.TB) {
	t.Helper()
	run(t, `ip -n $server link set s0 down; ip -n $server link set s0 netns $hub name w1; ip -n $hub link set w1 address 02:00:00:00:03:01
ip -n $server link add s0 address 02:00:00:00:02:02 type veth peer name w2 netns $hub
ip -n $hub link add sw type bridge forward_delay 0 ageing_time 0 mcast_snooping 0; ip -n $hub link add x0 type veth peer name x1; ip -n $hub link set x1 up
for i in x0 w1 w2; do ip -n $hub link set $i master sw up; done; ip -n $hub link set sw up
ip -n $server link set s0 up; ip -n $server addr add 192.0.2.2/24 dev s0; ip -n $server route add default via 192.0.2.1
ip netns exec $server sh -ec '`+netnstest.Up+`up s0'`, n.env()...)
}

// at returns a quantile.
func at(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return lostPing
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// stream is a TCP connection that sends as fast as it can.
type stream struct {
	from *net.TCPConn
	came atomic.Uint64 // bytes that the other end has read
}

// stream opens a connection through the gateway that sends as fast as it can. Long: it has both ends of the connection.
func (n network) stream(t testing.TB, to netip.Addr, up bool) *stream {
	t.Helper()
	var listener *net.TCPListener
	var client *net.TCPConn
	in(t, n.server, func() (err error) {
		listener, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: to.AsSlice()})
		return err
	})
	defer listener.Close()
	in(t, n.client, func() (err error) {
		client, err = net.DialTCP("tcp4", &net.TCPAddr{IP: alice.AsSlice()}, listener.Addr().(*net.TCPAddr))
		return err
	})
	served, err := listener.AcceptTCP()
	must(t, err)
	s := &stream{from: client}
	receiver := served
	if !up {
		s.from, receiver = served, client
	}
	raw, err := s.from.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, *feelTCP)
	}))
	must(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for b := make([]byte, 64<<10); ; {
			if _, err := s.from.Write(b); err != nil {
				return
			}
		}
	})
	running.Go(func() {
		for b := make([]byte, 64<<10); ; {
			k, err := receiver.Read(b)
			s.came.Add(uint64(k))
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		for _, c := range []*net.TCPConn{client, served} {
			c.SetLinger(0)
			c.Close()
		}
		running.Wait()
	})
	return s
}

// info returns the kernel's statistics of the sending end.
func (s *stream) info() (info unix.TCPInfo) {
	raw, err := s.from.SyscallConn()
	if err != nil {
		return info
	}
	raw.Control(func(fd uintptr) {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info = *i
		}
	})
	return info
}

// totals returns the bytes that came by each connection, and how many segments all have sent, and sent again.
func totals(all []*stream) (came []uint64, sent, again uint64) {
	for _, s := range all {
		i := s.info()
		came, sent, again = append(came, s.came.Load()), sent+uint64(i.Data_segs_out), again+uint64(i.Total_retrans)
	}
	return came, sent, again
}

// sampleRTT reads the connections' round-trip times again and again for some time.
func sampleRTT(all []*stream, lasts time.Duration) (rtts []time.Duration) {
	for began := time.Now(); time.Since(began) < lasts; time.Sleep(50 * time.Millisecond) {
		for _, s := range all {
			rtts = append(rtts, time.Duration(s.info().Rtt)*time.Microsecond)
		}
	}
	return rtts
}

// pinger sends echo requests of 56 bytes, 50 a second.
type pinger struct {
	out     *net.IPConn
	to      netip.Addr
	mu      sync.Mutex
	sent    map[uint16]time.Time
	rtts    []time.Duration
	running sync.WaitGroup
	stop    chan struct{}
}

func (n network) ping(t testing.TB, to netip.Addr) *pinger {
	t.Helper()
	p := &pinger{to: to, sent: map[uint16]time.Time{}}
	in(t, n.client, func() (err error) {
		p.out, err = net.DialIP("ip4:icmp", &net.IPAddr{IP: alice.AsSlice()}, &net.IPAddr{IP: to.AsSlice()})
		return err
	})
	p.running.Go(p.receive)
	t.Cleanup(func() { p.out.Close(); p.running.Wait() })
	return p
}

func (p *pinger) receive() {
	for b := make([]byte, 1500); ; {
		k, _, err := p.out.ReadFromIP(b) // without the IP header
		if err != nil {
			if os.IsTimeout(err) {
				continue
			}
			return
		}
		if k < 8 || b[0] != 0 {
			continue
		}
		seq := binary.BigEndian.Uint16(b[6:])
		p.mu.Lock()
		if before, ok := p.sent[seq]; ok {
			p.rtts = append(p.rtts, time.Since(before))
			delete(p.sent, seq)
		}
		p.mu.Unlock()
	}
}

func (p *pinger) begin() {
	p.stop = make(chan struct{})
	p.rtts = nil
	p.running.Go(func() {
		for seq := uint16(0); ; seq++ {
			select {
			case <-p.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			b := make([]byte, 64)
			b[0] = 8
			binary.BigEndian.PutUint16(b[6:], seq)
			var sum uint32
			for i := 0; i < len(b); i += 2 {
				sum += uint32(binary.BigEndian.Uint16(b[i:]))
			}
			sum = sum>>16 + sum&0xffff
			binary.BigEndian.PutUint16(b[2:], ^uint16(sum+sum>>16))
			p.mu.Lock()
			p.sent[seq] = time.Now()
			p.mu.Unlock()
			p.out.Write(b)
		}
	})
}

// end waits for late answers, and returns all round trips; lost ones last lostPing.
func (p *pinger) end() []time.Duration {
	close(p.stop)
	for range 100 {
		p.mu.Lock()
		left := len(p.sent)
		p.mu.Unlock()
		if left == 0 {
			break
		}
		time.Sleep(2 * lostPing / 100)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.sent {
		p.rtts = append(p.rtts, lostPing)
	}
	clear(p.sent)
	return p.rtts
}
