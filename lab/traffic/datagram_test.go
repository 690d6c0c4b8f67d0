package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// serveDatagrams starts a server in s.
func (s *space) serveDatagrams(t testing.TB, ip netip.Addr) (*DatagramServer, netip.AddrPort) {
	t.Helper()
	var fd int
	var err error
	s.Do(func() { fd, err = ListenDatagrams(netip.AddrPortFrom(ip, 0)) })
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(ip, localPort(t, fd))
	srv, err := ServeDatagrams(context.Background(), fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	return srv, addr
}

// dialDatagrams makes the socket in s, with the options given, and connects it.
func (s *space) dialDatagrams(addr netip.AddrPort, options ...func(fd int) error) DialFunc {
	return func(ctx context.Context, _ int) (fd int, err error) {
		s.Do(func() { fd, err = NewDatagramSocket(addr.Addr()) })
		for _, o := range options {
			err = errors.Join(err, o(fd))
		}
		if err != nil {
			return -1, err
		}
		return fd, Connect(ctx, fd, netip.Addr{}, addr)
	}
}

// startDatagrams runs a generator in s against addr.
func (s *space) startDatagrams(t testing.TB, cfg Config, addr netip.AddrPort, options ...func(fd int) error) *Generator {
	t.Helper()
	cfg.UDP = true
	g, err := Start(context.Background(), cfg, s.dialDatagrams(addr, options...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// ends are the sender's and the receiver's Stats of the server's newest run.
func ends(g *Generator, s *DatagramServer) (sender, receiver Stats) {
	far := s.Stats(1)[0]
	if g.run.sends {
		return g.Stats(), far
	}
	return far, g.Stats()
}

// settled waits until all that was sent has arrived or is known to be lost, and
// returns both ends' Stats. The sender has stopped.
func settled(t testing.TB, g *Generator, s *DatagramServer) (sender, receiver Stats) {
	t.Helper()
	labtest.Await(t, "the last datagram", func() bool {
		sender, receiver = ends(g, s)
		return receiver.Datagrams.Received+receiver.Datagrams.Lost == sender.Datagrams.Sent
	})
	return sender, receiver
}

func TestDatagramsShareAndRate(t *testing.T) {
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	for _, c := range []struct {
		dir     string
		streams int
		mbps    float64
	}{{Up, 1, 100}, {Up, 100, 1000}, {Up, 1000, 1000}, {Down, 1, 100}, {Down, 100, 1000}, {Down, 1000, 1000}} {
		t.Run(fmt.Sprintf("%s/%d/%gM", c.dir, c.streams, c.mbps), func(t *testing.T) {
			g := p.client.startDatagrams(t, Config{Streams: c.streams, RateBps: c.mbps * 1e6, Direction: c.dir}, addr)
			labtest.Await(t, "payload", func() bool { _, got := ends(g, srv); return got.Datagrams.Received > 0 })
			sent0, got0 := ends(g, srv)
			sender, receiver := p.client, p.server
			if c.dir == Down {
				sender, receiver = p.server, p.client
			}
			out0, in0 := sender.Counters(t), receiver.Counters(t)
			time.Sleep(time.Second)
			sent1, got1 := ends(g, srv)
			out1, in1 := sender.Counters(t), receiver.Counters(t)
			perBuf := float64(sent1.Datagrams.Sent-sent0.Datagrams.Sent) / float64(out1["Udp:OutDatagrams"]-out0["Udp:OutDatagrams"])
			perPacket := float64(got1.Datagrams.Received-got0.Datagrams.Received) / float64(in1["Ip:InReceives"]-in0["Ip:InReceives"])
			t.Logf("sender   %s", describe(sent1))
			t.Logf("receiver %s", describe(got1))
			t.Logf("%.4f of the rate sent, %.4f received; %.1f datagrams a buffer, %.3f a packet, lost %d; CPU of the window: sender %.1f %%, receiver %.1f %% of a core",
				rate(sent0, sent1)/c.mbps/1e6, rate(got0, got1)/c.mbps/1e6, perBuf, perPacket, got1.Datagrams.Lost,
				float64(sent1.CPUNs-sent0.CPUNs)/1e7, float64(got1.CPUNs-got0.CPUNs)/1e7)

			checkSchedule(t, c.mbps*1e6, sent0, sent1)
			if d := sent1.MaxStreamBytes - sent1.MinStreamBytes; d > 44*1472 {
				t.Errorf("streams differ by %d bytes, more than one burst", d)
			}
			if perBuf < 40 || perBuf > 44.5 {
				t.Errorf("%.1f datagrams a buffer, want 44: the kernel does not cut bursts", perBuf)
			}
			if perPacket < 0.95 || perPacket > 1.05 {
				t.Errorf("%.2f datagrams a packet on the link, want 1", perPacket)
			}
			if sent1.Broken+got1.Broken != 0 {
				t.Errorf("broken streams: %d and %d", sent1.Broken, got1.Broken)
			}
			checkArrived(t, g, srv)
		})
	}
}

// checkSchedule holds what was sent and what was given up against the schedule. What
// is not accounted for yet is less than the sender was ever late.
func checkSchedule(t *testing.T, bps float64, a, b Stats) {
	t.Helper()
	seconds := float64(b.ElapsedNs-a.ElapsedNs) / 1e9
	all := float64(b.SentBytes+b.ShortfallBytes-a.SentBytes-a.ShortfallBytes) * 8 / seconds / bps
	slack := 0.01 + float64(b.MaxLatenessNs)/1e9/seconds
	if all < 1-slack || all > 1+slack {
		t.Errorf("sent and given up are %.4f of the rate asked for, not within %.4f of it", all, slack)
	}
}

// checkArrived ends the run and holds both ends' counts against each other.
func checkArrived(t *testing.T, g *Generator, s *DatagramServer) {
	t.Helper()
	g.Close()
	sent, got := ends(g, s)
	if sent.Datagrams.Sent != got.Datagrams.Received+got.Datagrams.Lost || got.Datagrams.Reordered != 0 {
		t.Errorf("sent %d, received %d, lost %d, reordered %d", sent.Datagrams.Sent, got.Datagrams.Received, got.Datagrams.Lost, got.Datagrams.Reordered)
	}
	checkBytes(t, sent, got)
}

func checkBytes(t *testing.T, sent, got Stats) {
	t.Helper()
	if got.ReceivedBytes != 1472*got.Datagrams.Received || sent.SentBytes != 1472*sent.Datagrams.Sent {
		t.Errorf("%d bytes sent in %d datagrams, %d received in %d", sent.SentBytes, sent.Datagrams.Sent, got.ReceivedBytes, got.Datagrams.Received)
	}
}

// TestDatagrams10000 has all sockets of 10,000 clients in one process.
func TestDatagrams10000(t *testing.T) {
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	for _, dir := range []string{Up, Down} {
		began := time.Now()
		g := p.client.startDatagrams(t, Config{Streams: 10000, RateBps: 5e8, Direction: dir, BurstSegments: 4}, addr)
		t.Logf("%s: said hello in %s", dir, time.Since(began))
		// A turn of all streams takes 0.9 s.
		labtest.Await(t, "every stream's payload", func() bool { _, got := ends(g, srv); return got.MinStreamBytes > 0 })
		sent0, _ := ends(g, srv)
		time.Sleep(time.Second)
		sent1, got1 := ends(g, srv)
		t.Logf("%s: sender %s", dir, describe(sent1))
		t.Logf("%s: receiver %s; lost %d", dir, describe(got1), got1.Datagrams.Lost)
		checkSchedule(t, 5e8, sent0, sent1)
		if got1.Streams != 10000 || sent1.Broken+got1.Broken != 0 {
			t.Errorf("%s: streams %d, broken %d and %d", dir, got1.Streams, sent1.Broken, got1.Broken)
		}
		checkArrived(t, g, srv)
	}
}

// nft changes the namespace's rules.
func (s *space) nft(t testing.TB, rules string) {
	t.Helper()
	s.Run(t, "nft", rules)
}

// TestDatagramsLost drops every tenth datagram of data on its way and has it counted.
func TestDatagramsLost(t *testing.T) {
	for _, dir := range []string{Up, Down} {
		p := newPair(t)
		srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
		receiver := p.server
		if dir == Down {
			receiver = p.client
		}
		g := p.client.startDatagrams(t, Config{Streams: 5, RateBps: 5e7, Direction: dir, MaxSeconds: 2}, addr)
		labtest.Await(t, "payload", func() bool { _, got := ends(g, srv); return got.MinStreamBytes > 0 })
		if _, got := ends(g, srv); got.Datagrams.Lost != 0 {
			t.Errorf("%s: %d lost of %d before any were dropped", dir, got.Datagrams.Lost, got.Datagrams.Received)
		}
		// 1500 bytes and longer: not what the ends tell each other. The last one of a
		// stream is not missed where nothing comes after it, so the rule goes before that.
		receiver.nft(t, "table ip t { chain c { type filter hook input priority 0; meta length >= 1500 numgen inc mod 10 == 3 counter drop; }; }")
		labtest.Await(t, "losses", func() bool { _, got := ends(g, srv); return got.Datagrams.Lost > 100 })
		receiver.nft(t, "flush ruleset")
		near := g.pacer
		if dir == Down {
			near = srv.newest().pacer
		}
		<-near.done
		sent, got := settled(t, g, srv)
		t.Logf("%s: sent %d received %d lost %d reordered %d", dir, sent.Datagrams.Sent, got.Datagrams.Received, got.Datagrams.Lost, got.Datagrams.Reordered)
		checkArrived(t, g, srv)
	}
}

// newest is the run that came last.
func (a *arrivals) newest() *serverRun {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs[len(a.runs)-1]
}

func TestArrivalsAreNumbered(t *testing.T) {
	for _, c := range []struct {
		came            []int64
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
		if got := st.counted(false); got != want || st.bytes.Load() != 10*int64(len(c.came)) {
			t.Errorf("%v: got %+v, want %+v", c.came, got, want)
		}
	}
}

// TestHelloLost has a server that first hears nothing.
func TestHelloLost(t *testing.T) {
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	p.server.nft(t, "table ip t { chain c { type filter hook input priority 0; udp dport "+fmt.Sprint(addr.Port())+" drop; }; }")
	before := p.server.Counters(t)["Ip:InReceives"]
	started := make(chan error, 1)
	var g *Generator
	go func() {
		var err error
		g, err = Start(context.Background(), Config{UDP: true, Streams: 2, RateBps: 1e7, Direction: Down}, p.client.dialDatagrams(addr))
		started <- err
	}()
	labtest.Await(t, "hellos", func() bool { return p.server.Counters(t)["Ip:InReceives"] >= before+4 })
	p.server.nft(t, "flush ruleset")
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	labtest.Await(t, "payload", func() bool { _, got := ends(g, srv); return got.MinStreamBytes > 0 })
}

// TestDatagramsUnheard cuts both ends off from each other: both must stop, and say so.
func TestDatagramsUnheard(t *testing.T) {
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	var all []*Generator
	for _, dir := range []string{Up, Down} {
		all = append(all, p.client.startDatagrams(t, Config{Streams: 3, RateBps: 1e7, Direction: dir}, addr))
	}
	labtest.Await(t, "payload", func() bool {
		return all[1].Stats().MinStreamBytes > 0 && srv.Stats(2)[0].MinStreamBytes > 0
	})
	for _, s := range []*space{p.client, p.server} {
		s.nft(t, "table ip t { chain c { type filter hook input priority 0; meta l4proto udp drop; }; }")
	}
	labtest.Await(t, "all streams to break", func() bool {
		far := srv.Stats(2)
		return all[0].Stats().Broken+all[1].Stats().Broken == 6 && far[0].Broken+far[1].Broken == 6
	})
	for _, pacer := range []*pacer{all[0].pacer, srv.newest().pacer} {
		<-pacer.done
	}
	if st := all[0].Stats(); !strings.Contains(st.FirstError, errSilent.Error()) {
		t.Errorf("the generator says %q", st.FirstError)
	}
	if st := srv.Stats(1)[0]; !strings.Contains(st.FirstError, errSilent.Error()) {
		t.Errorf("the server says %q", st.FirstError)
	}
}

// TestDatagramServerGone closes the server's socket, and then has another one that
// knows of no run.
func TestDatagramServerGone(t *testing.T) {
	for _, dir := range []string{Up, Down} {
		p := newPair(t)
		srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
		g := p.client.startDatagrams(t, Config{Streams: 4, RateBps: 1e7, Direction: dir}, addr)
		labtest.Await(t, "payload", func() bool { _, got := ends(g, srv); return got.MinStreamBytes > 0 })
		srv.Close()
		labtest.Await(t, "all streams broken", func() bool { return g.Stats().Broken == 4 })
		if st := g.Stats(); st.FirstError == "" {
			t.Errorf("%s: no error kept: %s", dir, describe(st))
		}
		g.Close()
	}
}

func TestDatagramsEnd(t *testing.T) {
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	g := p.client.startDatagrams(t, Config{Streams: 2, RateBps: 1e8, MaxSeconds: 1}, addr)
	<-g.pacer.done // by itself
	if st := g.Stats(); st.SentBytes == 0 || st.Broken != 0 {
		t.Errorf("after its time: %s", describe(st))
	}
	for _, dir := range []string{Up, Down} {
		ctx, cancel := context.WithCancel(context.Background())
		g, err := Start(ctx, Config{UDP: true, Streams: 3, RateBps: 1e8, Direction: dir}, p.client.dialDatagrams(addr))
		if err != nil {
			t.Fatal(err)
		}
		labtest.Await(t, "payload", func() bool { _, got := ends(g, srv); return got.MinStreamBytes > 0 })
		cancel()
		r := srv.newest()
		labtest.Await(t, "the server's side to end", func() bool { srv.mu.Lock(); defer srv.mu.Unlock(); return r.ended })
		g.Close()
		if near, far := g.Stats(), srv.Stats(1)[0]; near.Broken+far.Broken != 0 {
			t.Errorf("%s: an asked-for end counts as broken: %s; %s", dir, describe(near), describe(far))
		}
		checkArrived(t, g, srv)
	}
}

// TestDatagramsUncut has sockets that the kernel cuts nothing for: those without
// checksums.
func TestDatagramsUncut(t *testing.T) {
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	g := p.client.startDatagrams(t, Config{Streams: 10, RateBps: 1e8, MaxSeconds: 1}, addr,
		func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1) })
	<-g.pacer.done
	sent, got := settled(t, g, srv)
	t.Logf("sender   %s", describe(sent))
	if sent.Datagrams.Sent != sent.Bursts*44 || sent.Broken != 0 {
		t.Errorf("%d datagrams in %d bursts of 44: %s", sent.Datagrams.Sent, sent.Bursts, describe(sent))
	}
	if got.Datagrams.Lost > sent.Datagrams.Sent/20 {
		t.Errorf("lost %d of %d", got.Datagrams.Lost, sent.Datagrams.Sent)
	}
	if before := p.client.Counters(t)["Udp:OutDatagrams"]; before < sent.Datagrams.Sent {
		t.Errorf("%d buffers for %d datagrams: they were cut after all", before, sent.Datagrams.Sent)
	}
}

// TestDatagramsTooLong has a link that does not take them: no fragments.
func TestDatagramsTooLong(t *testing.T) {
	p := newPair(t)
	_, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	p.client.Run(t, "ip", "link", "set", "gwt0", "mtu", "1400")
	g := p.client.startDatagrams(t, Config{Streams: 2, RateBps: 1e7}, addr)
	labtest.Await(t, "broken streams", func() bool { return g.Stats().Broken == 2 })
	if st := g.Stats(); !strings.Contains(st.FirstError, "longer than the path takes") || st.Datagrams.Sent != 0 {
		t.Errorf("%d sent, error %q", st.Datagrams.Sent, st.FirstError)
	}
}

func TestDatagramsIPv6(t *testing.T) {
	s := &space{labtest.NewSpace(t)}
	s.Run(t, "ip", "link", "set", "lo", "up")
	srv, addr := s.serveDatagrams(t, netip.IPv6Loopback())
	for _, dir := range []string{Up, Down} {
		g := s.startDatagrams(t, Config{Streams: 4, RateBps: 1e8, Direction: dir}, addr)
		labtest.Await(t, "payload", func() bool { _, got := ends(g, srv); return got.MinStreamBytes > 0 })
		g.Close()
	}
}

// TestDatagramsLeaveNothing looks for descriptors and threads that stay.
func TestDatagramsLeaveNothing(t *testing.T) {
	p := newPair(t)
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	before := count()
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	up := p.client.startDatagrams(t, Config{Streams: 20, RateBps: 1e8}, addr)
	down := p.client.startDatagrams(t, Config{Streams: 20, RateBps: 1e8, Direction: Down}, addr)
	if err := errors.Join(up.Close(), srv.Close(), down.Close(), up.Close(), srv.Close()); err != nil {
		t.Errorf("closing: %v", err)
	}
	if n := count(); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
}

func TestServersRefuseTheOtherProtocol(t *testing.T) {
	p := newPair(t)
	_, tcp := p.serve(t)
	h := goodHeader(t)
	h.cfg.UDP, h.cfg.Congestion = true, ""
	fd, err := p.client.dial(tcp)(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	b := h.encode()
	if _, err := unix.Write(fd, b[:]); err != nil {
		t.Fatal(err)
	}
	if a, err := readAnswer(context.Background(), fd); a != refusedHeader {
		t.Errorf("a server of TCP answers a header of UDP %v, %v", a, err)
	}
	_, udp := p.server.serveDatagrams(t, labtest.ServerIP)
	r := newRun(RunID{1}, goodHeader(t).cfg) // of TCP
	if r.streams[0].fd, err = p.client.dialDatagrams(udp)(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	defer r.closeSockets()
	if a, err := r.introduceUDP(context.Background(), &r.streams[0]); a != refusedHeader {
		t.Errorf("a server of UDP answers a header of TCP %v, %v", a, err)
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

// BenchmarkDatagramBurst is what one burst costs the sender, as far as the receiver's
// socket over a veth: cut by the kernel, or handed to it datagram by datagram.
func BenchmarkDatagramBurst(b *testing.B) {
	for name, single := range map[string]bool{"cut": false, "singly": true} {
		b.Run(name, func(b *testing.B) {
			p := newPair(b)
			_, addr := p.server.serveDatagrams(b, labtest.ServerIP)
			g := p.client.startDatagrams(b, Config{RateBps: 1}, addr)
			g.pacer.stop()
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
