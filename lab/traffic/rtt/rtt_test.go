package rtt

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// A prober sends probes to an echo over a link between two network namespaces (labtest.NewPair), and takes the
// round-trip times. config is {clients, probes a second of all, bytes of a probe, time after which a probe is lost}.

// TestNearestRank: percentiles in µs of sorted samples in ns. A percentile is the sample of the nearest rank.
func TestNearestRank(t *testing.T) {
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(i+1) * 1000
	}
	for _, c := range []struct {
		samples []int64
		q, want float64
	}{
		{nil, 0.5, 0}, {[]int64{7000}, 0.5, 7}, {[]int64{7000}, 0.99, 7}, {[]int64{1000, 2000}, 0.5, 1},
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100},
	} {
		if got := nearestRank(c.samples, c.q); got != c.want {
			t.Errorf("%d samples at %g: %g µs, want %g", len(c.samples), c.q, got, c.want)
		}
	}
}

// TestArrivalsAreSorted: answers arrive with round-trip times in any order, and percentiles are those of sorted times.
func TestArrivalsAreSorted(t *testing.T) {
	var p Prober
	for i := range int64(100) {
		p.record(answer{ns: (i*37%100 + 1) * 1000})
	}
	if got, want := p.Snapshot(), (Times{P50: 50, P99: 99, Probes: 100}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestCourseOfAWindow: the course of the window before the last Reset has one value for each step of 100 ms: the median
// of the round-trip times of the answers that arrived in it, µs; 0 without answers.
func TestCourseOfAWindow(t *testing.T) {
	const ms = int64(time.Millisecond)
	p := Prober{start: time.Now()}
	p.record(answer{1, 9000})
	p.Reset()
	for _, a := range []answer{{10, 1000}, {50, 3000}, {99, 2000}, {250, 7000}, {350, 4000}, {399, 5000}} {
		p.record(answer{p.began + a.at*ms, a.ns})
	}
	if got := p.Course(100 * time.Millisecond); !slices.Equal(got, []float64{9}) {
		t.Errorf("the first window: %v, want one step", got)
	}
	p.Reset()
	p.record(answer{p.began + 10*ms, 8000})
	if got := p.Course(100 * time.Millisecond); !slices.Equal(got, []float64{2, 0, 7, 4}) {
		t.Errorf("by steps: %v", got)
	}
}

// dial returns a socket of the calling thread's namespace for probes to an echo.
func dial(to netip.AddrPort) (fd int, err error) {
	if fd, err = socket.New(unix.SOCK_DGRAM, to.Addr()); err != nil {
		return -1, err
	}
	return fd, unix.Connect(fd, socket.Addr(to))
}

// startProbe starts an echo at p's server and a prober at its client, and waits for the first answer.
func startProbe(t testing.TB, p labtest.Pair, cfg config) (*Prober, *Echo) {
	t.Helper()
	var e *Echo
	var err error
	p.Server.Do(func() { e, err = ServeEcho(netip.AddrPortFrom(labtest.ServerIP, 0)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	bound, err := unix.Getsockname(e.fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(labtest.ServerIP, uint16(bound.(*unix.SockaddrInet4).Port))
	pr, err := startProbing(context.Background(), cfg, func(int) (fd int, err error) {
		p.Client.Do(func() { fd, err = dial(addr) })
		return fd, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pr.Close() })
	// A link that has just come up may lose the first ARP request, and the next
	// follows a second later.
	labtest.Await(t, "an answer", func() bool { r := pr.Snapshot(); return r.Probes > r.Lost })
	pr.Reset()
	return pr, e
}

// TestProbe: over an idle link hardly any probe is lost. Without an echo all are.
func TestProbe(t *testing.T) {
	p := labtest.NewPair(t)
	pr, e := startProbe(t, p, config{7, 200, 64, 200 * time.Millisecond})
	probeUntil(t, pr, 100, "an idle link",
		func(r Times) bool { return r.Lost*20 <= r.Probes && r.P50 > 0 && r.P99 >= r.P50 })
	e.Close() // the port answers with ICMP from now on
	pr.Reset()
	probeUntil(t, pr, 50, "no echo", func(r Times) bool { return r.Lost == r.Probes })
	pr.Close()
	if r := pr.Snapshot(); r.Lost < 50 {
		t.Errorf("nothing kept after Close: %+v", r)
	}
}

// TestProbeUnderDelay: a queue on the way is too slow for the probes.
func TestProbeUnderDelay(t *testing.T) {
	p := labtest.NewPair(t)
	pr, _ := startProbe(t, p, config{1, 500, 1000, 100 * time.Millisecond})
	// 500 probes a second of 8,336 bits need 4.2 Mbit/s: this queue fills up to
	// some 12 ms, and overflows.
	p.Client.Run(t, "tc qdisc replace dev gwt0 root tbf rate 2mbit burst 2000 limit 3000")
	time.Sleep(100 * time.Millisecond)
	pr.Reset()
	probeUntil(t, pr, 200, "a queue that half of the probes get through", func(r Times) bool {
		loss := float64(r.Lost) / float64(r.Probes)
		return loss >= 0.3 && loss <= 0.7 && r.P50 >= 5000 && r.P99 <= 100000
	})
}

// probeUntil takes probes probes and calls good with their times, until it returns true, at most 20 times: on a busy
// machine answers may come too late. what names the case in the error.
func probeUntil(t *testing.T, pr *Prober, probes int, what string, good func(Times) bool) {
	t.Helper()
	var r Times
	for range 20 {
		labtest.Await(t, "probes", func() bool { r = pr.Snapshot(); return int(r.Probes) >= probes })
		t.Logf("%+v", r)
		if good(r) {
			return
		}
		pr.Reset()
	}
	t.Errorf("%s: %+v", what, r)
}

// TestEchoAnswersOnlyProbes: the echo server answers nothing but probes.
func TestEchoAnswersOnlyProbes(t *testing.T) {
	p := labtest.NewPair(t)
	pr, _ := startProbe(t, p, config{1, 100, 64, time.Second})
	unanswered := func() int64 {
		c := labtest.Counters(t, p.Server)
		return c["Udp:InDatagrams"] - c["Udp:OutDatagrams"]
	}
	before := unanswered()
	sa, err := unix.Getpeername(pr.fds[0])
	if err != nil {
		t.Fatal(err)
	}
	var fd int
	p.Client.Do(func() {
		a := sa.(*unix.SockaddrInet4)
		fd, err = dial(netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for range 10 {
		socket.SendSome(fd, make([]byte, 64))
	}
	labtest.Await(t, "ten datagrams without an answer", func() bool {
		return unanswered()-before >= 10
	})
	if _, err := unix.Read(fd, make([]byte, 100)); err != unix.EAGAIN {
		t.Errorf("an answer to what is no probe: %v", err)
	}
}
