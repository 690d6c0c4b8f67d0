package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this file disturb runs of UDP datagrams between a generator and a server in two network namespaces
// (newPair): packets are lost, an end vanishes, datagrams are too long. A run's ends must count and report that.

// awaitSettled waits until each sent datagram has arrived or is known to be lost, and returns both ends' counts. The
// sender must have stopped.
func awaitSettled(t testing.TB, g *Generator, s *Server) (sender, receiver counts) {
	t.Helper()
	labtest.Await(t, "the last datagram", func() bool {
		sender, receiver = bothCounts(g, s)
		return receiver.Datagrams.Received+receiver.Datagrams.Lost == sender.Datagrams.Sent
	})
	return sender, receiver
}

// nft changes the namespace's rules.
func (s *namespace) nft(t testing.TB, rules string) {
	t.Helper()
	s.Run(t, "nft '"+rules+"'")
}

// TestDatagramsLost drops every tenth datagram on its way. The ends count the loss.
func TestDatagramsLost(t *testing.T) {
	for _, dir := range []string{result.Up, result.Down} {
		p := newPair(t)
		srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
		receiver := p.server
		if dir == result.Down {
			receiver = p.client
		}
		g := p.client.startDatagrams(t, Config{Streams: 5, RateBps: 5e7, Direction: dir, MaxSeconds: 2}, addr)
		awaitPayload(t, g, srv)
		if _, got := bothCounts(g, srv); got.Datagrams.Lost != 0 {
			t.Errorf("%s: %d lost of %d before any were dropped", dir, got.Datagrams.Lost, got.Datagrams.Received)
		}
		// The rule drops packets of 1500 bytes and more, and so no messages between the ends. It is removed before the last
		// datagram of a stream: if that one is lost, no later number shows it.
		receiver.nft(t, "table ip t { chain c { type filter hook input priority 0; meta length >= 1500 numgen inc mod 10 "+
			"== 3 counter drop; }; }")
		labtest.Await(t, "losses", func() bool { _, got := bothCounts(g, srv); return got.Datagrams.Lost > 100 })
		receiver.nft(t, "flush ruleset")
		near := g.pacer
		if dir == result.Down {
			near = srv.lastRun().pacer
		}
		<-near.Done()
		sent, got := awaitSettled(t, g, srv)
		t.Logf("%s: sent %d received %d lost %d reordered %d", dir, sent.Datagrams.Sent, got.Datagrams.Received,
			got.Datagrams.Lost, got.Datagrams.Reordered)
		checkArrived(t, g, srv)
	}
}

// lastRun returns the server's newest run.
func (a *Server) lastRun() *serverRun {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs[len(a.runs)-1]
}

// TestFirstDatagramsLost: the first datagrams do not reach the server.
func TestFirstDatagramsLost(t *testing.T) {
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	p.server.nft(t, "table ip t { chain c { type filter hook input priority 0; udp dport "+fmt.Sprint(addr.Port())+
		" drop; }; }")
	before := labtest.Counters(t, p.server.Space)["Ip:InReceives"]
	started := make(chan error, 1)
	var g *Generator
	go func() {
		var err error
		g, err = Start(context.Background(), Config{UDP: true, Streams: 2, RateBps: 1e7, Direction: result.Down},
			p.client.dialDatagrams(addr))
		started <- err
	}()
	labtest.Await(t, "hellos", func() bool { return labtest.Counters(t, p.server.Space)["Ip:InReceives"] >= before+4 })
	p.server.nft(t, "flush ruleset")
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	awaitPayload(t, g, srv)
}

// TestDatagramsWithoutPath cuts the path between both ends. Both must stop and say so.
func TestDatagramsWithoutPath(t *testing.T) {
	t.Parallel() // it waits for most of its time
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	var all []*Generator
	for _, dir := range []string{result.Up, result.Down} {
		all = append(all, p.client.startDatagrams(t, Config{Streams: 3, RateBps: 1e7, Direction: dir}, addr))
	}
	for _, g := range all {
		awaitPayload(t, g, srv)
	}
	for _, s := range []*namespace{p.client, p.server} {
		s.nft(t, "table ip t { chain c { type filter hook input priority 0; meta l4proto udp drop; }; }")
	}
	labtest.Await(t, "all streams to break", func() bool {
		far := srv.counts(2)
		return all[0].counts().Broken+all[1].counts().Broken == 6 && far[0].Broken+far[1].Broken == 6
	})
	for _, pacer := range []*pacer{all[0].pacer, srv.lastRun().pacer} {
		<-pacer.Done()
	}
	if st := all[0].counts(); !strings.Contains(st.FirstError, errSilent.Error()) {
		t.Errorf("the generator says %q", st.FirstError)
	}
	if st := srv.counts(1)[0]; !strings.Contains(st.FirstError, errSilent.Error()) {
		t.Errorf("the server says %q", st.FirstError)
	}
}

// TestDatagramServerGone: when the server closes its socket, all streams break, with an error.
func TestDatagramServerGone(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{result.Up, result.Down} {
		p := newPair(t)
		srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
		g := p.client.startDatagrams(t, Config{Streams: 4, RateBps: 1e7, Direction: dir}, addr)
		awaitPayload(t, g, srv)
		srv.Close()
		labtest.Await(t, "all streams broken", func() bool { return g.counts().Broken == 4 })
		if st := g.counts(); st.FirstError == "" {
			t.Errorf("%s: no error kept: %s", dir, describe(st))
		}
		g.Close()
	}
}

// TestDatagramsEnd: a run ends by itself after its time, and both ends stop when its context ends. None of that counts
// as a broken stream.
func TestDatagramsEnd(t *testing.T) {
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	g := p.client.startDatagrams(t, Config{Streams: 2, RateBps: 1e8, MaxSeconds: 1}, addr)
	<-g.pacer.Done() // by itself
	if st := g.counts(); st.SentBytes == 0 || st.Broken != 0 {
		t.Errorf("after its time: %s", describe(st))
	}
	for _, dir := range []string{result.Up, result.Down} {
		ctx, cancel := context.WithCancel(context.Background())
		g, err := Start(ctx, Config{UDP: true, Streams: 3, RateBps: 1e8, Direction: dir}, p.client.dialDatagrams(addr))
		if err != nil {
			t.Fatal(err)
		}
		awaitPayload(t, g, srv)
		cancel()
		r := srv.lastRun()
		labtest.Await(t, "the server's side to end", func() bool { srv.mu.Lock(); defer srv.mu.Unlock(); return r.ended })
		g.Close()
		if near, far := g.counts(), srv.counts(1)[0]; near.Broken+far.Broken != 0 {
			t.Errorf("%s: an asked-for end counts as broken: %s; %s", dir, describe(near), describe(far))
		}
		checkArrived(t, g, srv)
	}
}

// TestDatagramsWithoutSegmentation uses sockets without checksums, for which the kernel does not segment.
func TestDatagramsWithoutSegmentation(t *testing.T) {
	p := newPair(t)
	srv, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	g := p.client.startDatagrams(t, Config{Streams: 10, RateBps: 1e8, MaxSeconds: 1}, addr,
		func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1) })
	<-g.pacer.Done()
	sent, got := awaitSettled(t, g, srv)
	t.Logf("sender   %s", describe(sent))
	if sent.Datagrams.Sent != sent.Bursts*44 || sent.Broken != 0 {
		t.Errorf("%d datagrams in %d bursts of 44: %s", sent.Datagrams.Sent, sent.Bursts, describe(sent))
	}
	if got.Datagrams.Lost > sent.Datagrams.Sent/20 {
		t.Errorf("lost %d of %d", got.Datagrams.Lost, sent.Datagrams.Sent)
	}
	if before := labtest.Counters(t, p.client.Space)["Udp:OutDatagrams"]; before < sent.Datagrams.Sent {
		t.Errorf("%d buffers for %d datagrams: they were cut after all", before, sent.Datagrams.Sent)
	}
}

// TestDatagramsTooLong uses a link with a smaller MTU than the datagrams. They are not sent as fragments.
func TestDatagramsTooLong(t *testing.T) {
	p := newPair(t)
	_, addr := p.server.serveDatagrams(t, labtest.ServerIP)
	p.client.Run(t, "ip link set gwt0 mtu 1400")
	g := p.client.startDatagrams(t, Config{Streams: 2, RateBps: 1e7}, addr)
	labtest.Await(t, "broken streams", func() bool { return g.counts().Broken == 2 })
	if st := g.counts(); !strings.Contains(st.FirstError, "longer than the path takes") || st.Datagrams.Sent != 0 {
		t.Errorf("%d sent, error %q", st.Datagrams.Sent, st.FirstError)
	}
}

// TestDatagramsLeaveNothing: no descriptor and no thread is left after a run.
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
	down := p.client.startDatagrams(t, Config{Streams: 20, RateBps: 1e8, Direction: result.Down}, addr)
	if err := errors.Join(up.Close(), srv.Close(), down.Close(), up.Close(), srv.Close()); err != nil {
		t.Errorf("closing: %v", err)
	}
	if n := count(); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
}

// TestServersRefuseTheOtherProtocol: a server of TCP refuses a stream whose header asks for UDP, and the reverse.
func TestServersRefuseTheOtherProtocol(t *testing.T) {
	p := newPair(t)
	_, tcp := p.serve(t)
	h := goodHeader(t)
	h.cfg.UDP = true
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
	r := newRun(1, goodHeader(t).cfg) // of TCP
	if r.streams[0].fd, err = p.client.dialDatagrams(udp)(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	defer r.closeSockets()
	if a, err := r.introduceUDP(context.Background(), &r.streams[0]); a != refusedHeader {
		t.Errorf("a server of UDP answers a header of TCP %v, %v", a, err)
	}
}
