package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this file send TCP streams from a generator to a server, or back (result.Down): in two network
// namespaces of one process (newPair), or in two processes (startProcess). An audit checks a run against its schedule:
// see audit.

// serveVar is an environment variable with an address. With it the test binary is a server at that address. Tests need
// another process where one may not open enough descriptors, or where the server is killed.
const serveVar = "GWT_SERVE"

func TestMain(m *testing.M) {
	if addr := os.Getenv(serveVar); addr != "" {
		serveProcess(netip.MustParseAddrPort(addr))
		return
	}
	runtime.GOMAXPROCS(8) // more than there are threads that tell Go's scheduler nothing, as in an agent
	os.Exit(m.Run())
}

// serveProcess serves until its standard input ends, then prints its Stats.
func serveProcess(addr netip.AddrPort) {
	s, err := Serve(context.Background(), addr, false)
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	json.NewEncoder(os.Stdout).Encode(s.counts(1)[0])
	s.Close()
}

// process is a running serveProcess.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startProcess starts a server in another process, in namespace s, and waits until it listens.
func startProcess(t *testing.T, s *namespace, addr netip.AddrPort) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), serveVar+"="+addr.String())
	p.cmd.Stderr = os.Stderr
	p.in, _ = p.cmd.StdinPipe()
	out, _ := p.cmd.StdoutPipe()
	p.out = bufio.NewReader(out)
	var err error
	s.Do(func() { err = p.cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	if line, err := p.out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("server process: %q, %v", line, err)
	}
	return p
}

// finish ends the process, and returns the counts that it printed.
func (p *process) finish(t *testing.T) (s counts) {
	t.Helper()
	p.in.Close()
	if err := json.NewDecoder(p.out).Decode(&s); err != nil {
		t.Fatal(err)
	}
	p.cmd.Wait() // its port is free only then
	return s
}

// TestStreamsShareAndRate: the offered rate is sent and arrives, streams carry equal shares, and bursts leave whole.
// Burst means 44 segments of 1448 bytes in one buffer. c.mbps is the rate of all streams together.
func TestStreamsShareAndRate(t *testing.T) {
	p := newPair(t)
	srv, addr := p.serve(t)
	for _, c := range []struct {
		dir     string
		streams int
		mbps    float64
	}{{result.Up, 1, 100}, {result.Up, 100, 1000}, {result.Down, 1, 100}, {result.Down, 100, 1000}, {result.Up, 30, 50}} {
		t.Run(fmt.Sprintf("%s/%d/%gM", c.dir, c.streams, c.mbps), func(t *testing.T) {
			cfg := Config{Streams: c.streams, RateBps: c.mbps * 1e6, Direction: c.dir}
			g := p.start(t, cfg, addr)
			check := newAudit(t, g, srv)
			check.watchFor(t, 500*time.Millisecond)
			sender := p.client
			if c.dir == result.Down {
				sender = p.server
			}
			var sent0, sent1, got0, got1 counts
			var before, after map[string]int64
			untilOnSchedule(t, func() error {
				sent0, got0 = bothCounts(g, srv)
				before = labtest.Counters(t, sender.Space)
				check.watchFor(t, 1500*time.Millisecond)
				sent1, got1 = bothCounts(g, srv)
				after = labtest.Counters(t, sender.Space)
				return checkRate(c.mbps*1e6, sent0, sent1, got0, got1)
			})
			out, _ := runs(g, srv)
			checkShares(t, out, 44*1448)
			perBuf := float64(after["Tcp:OutSegs"]-before["Tcp:OutSegs"]) / float64(
				after["Ip:OutRequests"]-before["Ip:OutRequests"])
			check.close(t, func() { g.Close() })
			t.Logf("sender   %s", describe(sent1))
			t.Logf("receiver %s", describe(got1))
			t.Logf("%.1f segments a buffer, CPU of the window: sender %.1f %%, receiver %.1f %% of a core", perBuf,
				float64(sent1.CPUNs-sent0.CPUNs)/1.5e7, float64(got1.CPUNs-got0.CPUNs)/1.5e7)

			if perBuf < 40 || perBuf > 44.5 {
				t.Errorf("%.1f segments a buffer, want 44: bursts are cut", perBuf)
			}
		})
	}
}

// untilOnSchedule calls window, which measures a rate for a time, until it returns no error, at most ten times. On a
// busy machine a sender may be behind its schedule for a whole window. Rules that hold on any machine are the audit's.
func untilOnSchedule(t *testing.T, window func() error) {
	t.Helper()
	var err error
	for range 10 {
		if err = window(); err == nil {
			return
		}
		t.Log(err)
	}
	t.Error("ten windows over:", err)
}

// checkRate compares what was sent and what arrived with the rate asked for. It leaves some room, because other tests
// run at the same time.
func checkRate(bps float64, sent0, sent1, got0, got1 counts) error {
	sent, got := rate(sent0, sent1)/bps, rate(got0, got1)/bps
	if sent < 0.8 {
		return fmt.Errorf("sent at %.3f of the rate asked for", sent)
	}
	if got < sent-0.05 || got > sent+0.05 {
		return fmt.Errorf("sent at %.3f and received at %.3f of the rate asked for", sent, got)
	}
	return nil
}

// TestStreams10000: server and generator have processes of their own, because 20,000 sockets do not fit into one.
func TestStreams10000(t *testing.T) {
	s := &namespace{netnstest.NewSpace(t)}
	s.Run(t, "sysctl -qw net.ipv4.tcp_slow_start_after_idle=0")
	addr := netip.MustParseAddrPort("127.0.0.1:5401")
	for _, dir := range []string{result.Up, result.Down} {
		server := startProcess(t, s, addr)
		began := time.Now()
		g, err := Start(
			context.Background(), Config{Streams: 10000, RateBps: 1e9, Direction: dir, BurstSegments: 8}, s.dial(addr))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: connected in %s", dir, time.Since(began))
		window := func() { time.Sleep(2 * time.Second) }
		var check *audit
		if dir == result.Up {
			check = newAudit(t, g, nil)
			window = func() { check.watchFor(t, 2*time.Second) }
		}
		var b counts
		untilOnSchedule(t, func() error {
			a := g.counts()
			window()
			b = g.counts()
			if r := rate(a, b) / 1e9; r < 0.7 || r > 1.1 {
				return fmt.Errorf("%s: %.3f of the rate asked for", dir, r)
			}
			return nil
		})
		checkShares(t, g.run, 8*1448*2)
		if dir == result.Up {
			check.read(t)
		}
		far := server.finish(t) // before Close: both ends still open
		g.Close()
		t.Logf("near %s", describe(b))
		t.Logf("far  %s", describe(far))
		if b.Streams != 10000 || far.Streams != 10000 || b.Broken+far.Broken != 0 {
			t.Errorf("%s: streams %d and %d, broken %d and %d", dir, b.Streams, far.Streams, b.Broken, far.Broken)
		}
	}
}

// TestEndsByItself: a generator stops sending after MaxSeconds, and its counts can still be read.
func TestEndsByItself(t *testing.T) {
	p := newPair(t)
	srv, addr := p.serve(t)
	g := p.start(t, Config{Streams: 2, RateBps: 1e8, MaxSeconds: 1}, addr)
	select {
	case <-g.pacer.Done():
	case <-time.After(2 * time.Minute):
		t.Fatal("still sending")
	}
	if s, _ := bothCounts(g, srv); s.SentBytes == 0 || s.CPUNs == 0 {
		t.Errorf("nothing kept: %s", describe(s))
	}
}
