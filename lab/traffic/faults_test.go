package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this file disturb runs of TCP streams between a generator and a server, which are in two network
// namespaces (newPair) or in two processes (startProcess). An audit checks a run against its schedule: see audit.

// TestServerKilled: when the server's process is killed, all streams of the generator break, with an error.
func TestServerKilled(t *testing.T) {
	for _, dir := range []string{result.Up, result.Down} {
		s := &namespace{netnstest.NewSpace(t)}
		addr := netip.MustParseAddrPort("127.0.0.1:5402")
		server := startProcess(t, s, addr)
		g, err := Start(context.Background(), Config{Streams: 10, RateBps: 1e9, Direction: dir}, s.dial(addr))
		if err != nil {
			t.Fatal(err)
		}
		labtest.Await(t, "payload", func() bool { st := g.counts(); return st.SentBytes+st.ReceivedBytes > 1e7 })
		server.cmd.Process.Kill()
		labtest.Await(t, "all streams broken", func() bool { return g.counts().Broken == 10 })
		if st := g.counts(); st.FirstError == "" {
			t.Errorf("%s: no error kept: %s", dir, describe(st))
		}
		g.Close()
	}
}

// TestStreamReset resets one stream of a run. The others go on.
func TestStreamReset(t *testing.T) {
	p := newPair(t)
	srv, addr := p.serve(t)
	for _, dir := range []string{result.Up, result.Down} {
		g := p.start(t, Config{Streams: 8, RateBps: 2e8, Direction: dir}, addr)
		awaitPayload(t, g, srv)
		// As a middlebox would: the server's socket gets a reset it did not ask for.
		p.server.Run(t, "ss -K dst "+labtest.ClientIP.String()+" dport = "+
			fmt.Sprint(boundPort(g.run.streams[3].fd)))
		labtest.Await(t, "a broken stream", func() bool { return g.counts().Broken == 1 })
		var a, b counts
		check := newAudit(t, g, srv)
		check.broken = 1
		untilOnSchedule(t, func() error {
			a, _ = bothCounts(g, srv)
			check.watchFor(t, 500*time.Millisecond)
			b, _ = bothCounts(g, srv)
			if r := rate(a, b) / 2e8; r < 0.7 || r > 0.93 {
				return fmt.Errorf("%s: seven of eight streams carry %.3f of the rate, want 0.875", dir, r)
			}
			return nil
		})
		if b.ShortfallBytes <= a.ShortfallBytes {
			t.Errorf("%s: the lost stream's share is not in the shortfall", dir)
		}
		check.close(t, func() { g.Close() })
		if n := g.counts().Broken; n != 1 {
			t.Errorf("%s: %d streams broken after Close, want 1", dir, n)
		}
	}
}

// TestFullSocket: one peer never reads. Its stream falls short, and the other does not.
func TestFullSocket(t *testing.T) {
	p := newPair(t)
	_, addr := p.serve(t)
	lazy, lazyAddr := p.server.listen(t)
	defer unix.Close(lazy)
	_ = unix.SetsockoptInt(lazy, unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<10)
	go func() {
		if awaitEvent(context.Background(), lazy, unix.POLLIN, handshakeTimeout) != nil {
			return
		}
		if fd, _, err := unix.Accept(lazy); err == nil {
			unix.Write(fd, []byte{byte(accepted)}) // and never reads
			t.Cleanup(func() { unix.Close(fd) })
		}
	}()
	// The server waits for a second stream that never comes, and reads all the same.
	dials := []DialFunc{p.client.dial(lazyAddr), p.client.dial(addr)}
	g, err := Start(context.Background(), Config{Streams: 2, RateBps: 2e8}, func(ctx context.Context, i int) (int, error) {
		return dials[i](ctx, i)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	labtest.Await(t, "shortfall", func() bool { return g.counts().ShortfallBytes > 0 })
	check := newAudit(t, g, nil)
	untilOnSchedule(t, func() error {
		a, na := g.run.streams[1].bytes.Load(), g.counts().AtNs
		check.watchFor(t, 500*time.Millisecond)
		got := float64(g.run.streams[1].bytes.Load()-a) * 8 / (float64(g.counts().AtNs-na) / 1e9)
		if got < 0.7e8 || got > 1.1e8 {
			return fmt.Errorf("the healthy stream carries %.0f bit/s, want 1e8", got)
		}
		return nil
	})
	check.close(t, func() { g.Close() })
	st, burst := g.counts(), int64(g.run.cfg.burstBytes())
	debt := int64(g.run.streams[0].debt)
	if st.Broken != 0 || debt != debtBursts*burst || g.run.streams[1].debt != 0 {
		t.Errorf("debt %d and %d bytes, want %d and 0: %s", debt, g.run.streams[1].debt, debtBursts*burst, describe(st))
	}
}

// TestContextEnds: when the generator's context ends, both ends stop, and no stream counts as broken.
func TestContextEnds(t *testing.T) {
	p := newPair(t)
	srv, addr := p.serve(t)
	ctx, cancel := context.WithCancel(context.Background())
	g, err := Start(ctx, Config{Streams: 3, RateBps: 1e8, Direction: result.Down}, p.client.dial(addr))
	if err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "payload", func() bool { return g.counts().ReceivedBytes > 0 })
	cancel()
	labtest.Await(t, "the server's side to end",
		func() bool { return srv.ended(g.run.id) && srv.countsOf(g.run.id).Broken == 0 })
	if st := g.counts(); st.Broken != 0 {
		t.Errorf("an asked-for end counts as broken: %s", describe(st))
	}
	if _, err := Start(ctx, Config{RateBps: 1e6}, p.client.dial(addr)); !errors.Is(err, context.Canceled) {
		t.Errorf("start after the end: %v", err)
	}
}

// ended reports whether the server is done with a run.
func (s *Server) ended(id RunID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runByID(id)
	return r != nil && r.ended
}

// TestRunsApart: one server serves two generators at the same time, and many one after the other. It keeps their counts
// apart, and forgets old runs.
func TestRunsApart(t *testing.T) {
	p := newPair(t)
	srv, addr := p.serve(t)
	up := p.start(t, Config{Streams: 3, RateBps: 1e8}, addr)
	down := p.start(t, Config{Streams: 2, RateBps: 1e8, Direction: result.Down}, addr)
	labtest.Await(t, "payload of both",
		func() bool { return up.counts().SentBytes > 1e6 && down.counts().ReceivedBytes > 1e6 })
	list := srv.counts(2)
	if len(list) != 2 {
		t.Fatalf("%d runs, want two", len(list))
	}
	a, b := list[0], list[1]
	if a.Streams != 3 || b.Streams != 2 || a.SentBytes != 0 || b.ReceivedBytes != 0 || b.SentBytes == 0 {
		t.Errorf("mixed up:\n%s\n%s", describe(a), describe(b))
	}
	for range keepEnded + 3 {
		p.start(t, Config{RateBps: 1e6}, addr).Close()
	}
	labtest.Await(t, "old runs forgotten", func() bool {
		p.start(t, Config{RateBps: 1e6}, addr).Close()
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return len(srv.runs) <= keepEnded+4
	})
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.runByID(up.run.id) == nil {
		t.Error("a run that goes on was forgotten")
	}
}

// TestStartNamesTheClient: if one client cannot connect, the error names it, and the server ends the run that had
// begun.
func TestStartNamesTheClient(t *testing.T) {
	p := newPair(t)
	srv, addr := p.serve(t)
	dial := p.client.dial(addr)
	_, err := Start(
		context.Background(), Config{Streams: 50, RateBps: 1e6}, func(ctx context.Context, i int) (int, error) {
			if i == 17 {
				return -1, unix.ENETUNREACH
			}
			return dial(ctx, i)
		})
	if err == nil || !strings.Contains(err.Error(), "client 17") || !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("got %v", err)
	}
	labtest.Await(t, "the server to end what had begun", func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return len(srv.runs) == 0 || srv.runs[0].ended
	})
	if _, err := Start(context.Background(), Config{Streams: 60000, RateBps: 1e6}, dial); !errors.Is(
		err, errTooManyStreams) {
		t.Errorf("more streams than descriptors: %v", err)
	}
}

// TestNoDescriptorOrThreadIsLeft counts descriptors and threads before and after.
func TestNoDescriptorOrThreadIsLeft(t *testing.T) {
	p := newPair(t)
	count := func(dir string) int {
		names, err := os.ReadDir("/proc/self/" + dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	// The package names its threads gw-…; threads of Go's runtime come and go. The process's first thread never ends: a
	// sender may run on it as on any other, and its name stays.
	first := fmt.Sprint(os.Getpid())
	isOurs := func(task string) bool {
		b, _ := os.ReadFile("/proc/self/task/" + task + "/comm")
		return strings.HasPrefix(string(b), "gw-")
	}
	before := isOurs(first)
	threads := func() (n int) {
		names, _ := os.ReadDir("/proc/self/task")
		for _, e := range names {
			if isOurs(e.Name()) && !(e.Name() == first && before) {
				n++
			}
		}
		return n
	}
	fds := count("fd")
	srv, addr := p.serve(t)
	up := p.start(t, Config{Streams: 20, RateBps: 1e8}, addr)
	down := p.start(t, Config{Streams: 20, RateBps: 1e8, Direction: result.Down}, addr)
	labtest.Await(t, "four threads", func() bool { return threads() == 4 })
	if n := count("fd") - fds; n < 80 {
		t.Errorf("%d descriptors for 40 streams of two ends each", n)
	}
	up.Close()
	srv.Close() // the server first: the other generator's streams break
	down.Close()
	before = before || isOurs(first)
	labtest.Await(t, "no thread left", func() bool { return threads() == 0 })
	if n := count("fd"); n != fds {
		t.Errorf("%d descriptors before, %d after", fds, n)
	}
	if err := errors.Join(up.Close(), down.Close(), srv.Close()); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

// TestServerOutOfDescriptors: when the server has no descriptor left, it tells clients at once, and goes on when it has
// one again.
func TestServerOutOfDescriptors(t *testing.T) {
	s := &namespace{netnstest.NewSpace(t)}
	addr := netip.MustParseAddrPort("127.0.0.1:5403")
	server := startProcess(t, s, addr)
	var old unix.Rlimit
	if err := unix.Prlimit(
		server.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 30, Max: 20000}, &old); err != nil {
		t.Fatal(err)
	}
	_, err := Start(context.Background(), Config{Streams: 60, RateBps: 1e6}, s.dial(addr))
	if err == nil || !strings.Contains(err.Error(), "waiting for the server to accept") || errors.Is(err, errTimeout) {
		t.Errorf("got %v", err)
	}
	if err := unix.Prlimit(server.cmd.Process.Pid, unix.RLIMIT_NOFILE, &old, nil); err != nil {
		t.Fatal(err)
	}
	g, err := Start(context.Background(), Config{Streams: 60, RateBps: 1e8, Direction: result.Down}, s.dial(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	// The server counts a stream a little after it has accepted it, and then sends to it.
	labtest.Await(t, "payload of every stream", func() bool { least, _ := g.run.carried(); return least > 0 })
	if far := server.finish(t); far.Streams != 60 {
		t.Errorf("%d streams after the limit was lifted, want 60", far.Streams)
	}
}

func TestStreamsIPv6(t *testing.T) {
	s := &namespace{netnstest.NewSpace(t)}
	srv := s.serve(t, netip.IPv6Loopback(), false)
	addr := srv.addr(netip.IPv6Loopback())
	g, err := Start(
		context.Background(), Config{Streams: 4, RateBps: 1e8}, func(ctx context.Context, _ int) (fd int, err error) {
			s.Do(func() { fd, err = NewSocket(addr.Addr(), false) })
			if err == nil {
				err = Connect(ctx, fd, netip.IPv6Loopback(), addr)
			}
			return fd, err
		})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	awaitPayload(t, g, srv)
}

// TestSpareDescriptorIsReopened: the server keeps a spare descriptor. If it has no other, it closes the spare one to
// accept and refuse a client, and opens it again. refuseOne must also open a spare one that is missing.
func TestSpareDescriptorIsReopened(t *testing.T) {
	var srv Server
	fd, err := srv.listenTCP(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	s := srv.protocol.(*streamServer)
	s.spare.Close()
	s.spare = nil
	if !s.refuseOne() || s.spare == nil {
		t.Fatal("no spare descriptor although there are some")
	}
	defer s.spare.Close()
	if s.refuseOne() {
		t.Error("a client was refused, and no client was waiting")
	}
}
