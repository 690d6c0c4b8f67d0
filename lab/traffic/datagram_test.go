package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this file send UDP datagrams from a generator in one network namespace to a server in another (newPair),
// or back (result.Down). A datagram has 1472 bytes of payload. near or sent, and far or got, are the counts of both
// ends: see counts. An audit checks a run against its schedule: see audit.

// serveDatagrams starts a server of UDP in s.
func (s *namespace) serveDatagrams(t testing.TB, ip netip.Addr) (*Server, netip.AddrPort) {
	t.Helper()
	srv := s.serve(t, ip, true)
	return srv, srv.addr(ip)
}

// dialDatagrams returns a function that makes a UDP socket in s, calls options with it, and connects it to addr.
func (s *namespace) dialDatagrams(addr netip.AddrPort, options ...func(fd int) error) DialFunc {
	return func(ctx context.Context, _ int) (fd int, err error) {
		s.Do(func() { fd, err = NewSocket(addr.Addr(), true) })
		for _, o := range options {
			err = errors.Join(err, o(fd))
		}
		if err != nil {
			return -1, err
		}
		return fd, Connect(ctx, fd, netip.Addr{}, addr)
	}
}

// startDatagrams starts a generator in s that sends to the server at addr, or receives from it.
func (s *namespace) startDatagrams(
	t testing.TB, cfg Config, addr netip.AddrPort, options ...func(fd int) error) *Generator {
	t.Helper()
	cfg.UDP = true
	g, err := Start(context.Background(), cfg, s.dialDatagrams(addr, options...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// TestDatagramsShareAndRate: the offered rate is sent, streams carry equal shares, and the kernel cuts each burst into
// datagrams, which arrive one by one. c.mbps is the rate of all streams together.
func TestDatagramsShareAndRate(t *testing.T) {
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	for _, c := range []struct {
		dir     string
		streams int
		mbps    float64
	}{{result.Up, 1, 100}, {result.Up, 100, 1000}, {result.Up, 1000, 1000}, {result.Down, 1, 100},
		{result.Down, 100, 1000}, {result.Down, 1000, 1000}} {
		t.Run(fmt.Sprintf("%s/%d/%gM", c.dir, c.streams, c.mbps), func(t *testing.T) {
			g := p.client.startDatagrams(t, Config{Streams: c.streams, RateBps: c.mbps * 1e6, Direction: c.dir}, addr)
			labtest.Await(t, "payload", func() bool { _, got := bothCounts(g, srv); return got.Datagrams.Received > 0 })
			check := newAudit(t, g, srv)
			sent0, got0 := bothCounts(g, srv)
			sender, receiver := p.client, p.server
			if c.dir == result.Down {
				sender, receiver = p.server, p.client
			}
			out0, in0 := labtest.Counters(t, sender.Space), labtest.Counters(t, receiver.Space)
			check.watchFor(t, time.Second)
			sent1, got1 := bothCounts(g, srv)
			out1, in1 := labtest.Counters(t, sender.Space), labtest.Counters(t, receiver.Space)
			perBuf := float64(sent1.Datagrams.Sent-sent0.Datagrams.Sent) / float64(
				out1["Udp:OutDatagrams"]-out0["Udp:OutDatagrams"])
			perPacket := float64(got1.Datagrams.Received-got0.Datagrams.Received) / float64(
				in1["Ip:InReceives"]-in0["Ip:InReceives"])
			t.Logf("sender   %s", describe(sent1))
			t.Logf("receiver %s", describe(got1))
			t.Logf("%.4f of the rate sent, %.4f received; %.1f datagrams a buffer, %.3f a packet, lost %d; CPU of the window: "+
				"sender %.1f %%, receiver %.1f %% of a core",
				rate(sent0, sent1)/c.mbps/1e6, rate(got0, got1)/c.mbps/1e6, perBuf, perPacket, got1.Datagrams.Lost,
				float64(sent1.CPUNs-sent0.CPUNs)/1e7, float64(got1.CPUNs-got0.CPUNs)/1e7)

			// The counters are not read at the same moment, so the limits are wide. If the kernel did not cut bursts, there
			// would be one datagram a buffer. If the receiver gathered packets, there would be several datagrams a packet.
			if perBuf < 30 || perBuf > 60 {
				t.Errorf("%.1f datagrams a buffer, want 44: the kernel does not cut bursts", perBuf)
			}
			if perPacket < 0.7 || perPacket > 1.4 {
				t.Errorf("%.2f datagrams a packet on the link, want 1", perPacket)
			}
			check.close(t, func() { g.Close() })
			checkArrived(t, g, srv)
			out, _ := runs(g, srv)
			checkShares(t, out, 2*44*1472)
		})
	}
}

// checkArrived ends the run and compares both ends' counts: each sent datagram was received or is lost. A few may be
// reordered: Linux puts a packet that a full ring refuses twice behind those that it refused before (dev_requeue_skb,
// net/sched/sch_generic.c).
func checkArrived(t *testing.T, g *Generator, s *Server) {
	t.Helper()
	g.Close()
	sent, got := bothCounts(g, s)
	if sent.Datagrams.Sent != got.Datagrams.Received+got.Datagrams.Lost ||
		got.Datagrams.Reordered > sent.Datagrams.Sent/100 {
		t.Errorf("sent %d, received %d, lost %d, reordered %d", sent.Datagrams.Sent, got.Datagrams.Received,
			got.Datagrams.Lost, got.Datagrams.Reordered)
	}
	checkBytes(t, sent, got)
}

// checkBytes requires 1472 bytes of payload for each datagram, at both ends.
func checkBytes(t *testing.T, sent, got counts) {
	t.Helper()
	if got.ReceivedBytes != 1472*got.Datagrams.Received || sent.SentBytes != 1472*sent.Datagrams.Sent {
		t.Errorf("%d bytes sent in %d datagrams, %d received in %d", sent.SentBytes, sent.Datagrams.Sent, got.ReceivedBytes,
			got.Datagrams.Received)
	}
}

// TestDatagrams10000: one process has the sockets of 10,000 clients.
func TestDatagrams10000(t *testing.T) {
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	for _, dir := range []string{result.Up, result.Down} {
		began := time.Now()
		g := p.client.startDatagrams(t, Config{Streams: 10000, RateBps: 5e8, Direction: dir, BurstSegments: 4}, addr)
		t.Logf("%s: said hello in %s", dir, time.Since(began))
		// A turn of all streams takes 0.9 s.
		awaitPayload(t, g, srv)
		check := newAudit(t, g, srv)
		check.watchFor(t, time.Second)
		sent1, got1 := bothCounts(g, srv)
		t.Logf("%s: sender %s", dir, describe(sent1))
		t.Logf("%s: receiver %s; lost %d", dir, describe(got1), got1.Datagrams.Lost)
		check.close(t, func() { g.Close() })
		checkArrived(t, g, srv)
	}
}

// TestArrivalsAreNumbered: lost and reordered datagrams are counted by the numbers of those that arrive.
func TestArrivalsAreNumbered(t *testing.T) {
	for _, c := range []struct {
		came            []int64 // numbers of the datagrams, in the order of their arrival
		lost, reordered int64
	}{
		{nil, 0, 0},
		{[]int64{0, 1, 2}, 0, 0},
		{[]int64{2}, 2, 0},
		{[]int64{0, 2, 1, 3}, 0, 1},
		{[]int64{0, 3, 1, 5}, 2, 1},
		{[]int64{0, 0}, 0, 1},
	} {
		var st stream
		for _, n := range c.came {
			st.arrived(n, 10)
		}
		want := Datagrams{Received: int64(len(c.came)), Lost: c.lost, Reordered: c.reordered}
		if got := st.datagramCounts(false); got != want || st.bytes.Load() != 10*int64(len(c.came)) {
			t.Errorf("%v: got %+v, want %+v", c.came, got, want)
		}
	}
}

func TestDatagramsIPv6(t *testing.T) {
	s := &namespace{netnstest.NewSpace(t)}
	srv, addr := s.serveDatagrams(t, netip.IPv6Loopback())
	for _, dir := range []string{result.Up, result.Down} {
		g := s.startDatagrams(t, Config{Streams: 4, RateBps: 1e8, Direction: dir}, addr)
		awaitPayload(t, g, srv)
		g.Close()
	}
}

func FuzzHead(f *testing.F) {
	hello := goodHeader(f).hello()
	f.Add(hello)
	f.Add(hello[:headSize])
	f.Add([]byte("GWUD"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := parseHead(b)
		if !ok {
			return
		}
		again := make([]byte, headSize)
		h.put(again)
		if !bytes.Equal(again, b[:headSize]) {
			t.Errorf("two forms of one head:\n%x\n%x", b[:headSize], again)
		}
	})
}

// BenchmarkDatagramBurst measures the sender's time for one burst over a veth, up to the receiver's socket. The kernel
// cuts the burst into datagrams ("cut"), or gets them one by one ("singly").
func BenchmarkDatagramBurst(b *testing.B) {
	for name, single := range map[string]bool{"cut": false, "singly": true} {
		b.Run(name, func(b *testing.B) {
			p := newPair(b)
			_, addr := p.server.serveDatagrams(b, labtest.ServerIP)
			g := p.client.startDatagrams(b, Config{RateBps: 1}, addr)
			g.pacer.Close()
			out := newOutbox(g.run)
			out.single = single
			payload := make([]byte, 44*1472)
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := out.write(&g.run.streams[0], payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
