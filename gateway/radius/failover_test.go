// Tests of the choice between two servers, of which one is dead, silent or slow. newFreeRADIUS and startFreeRADIUS are
// real servers (freeradius_test.go), and newAttacker a socket in place of one, by which a test answers itself or keeps
// silent (hostile_test.go). newClient makes a Client of the servers in its Config, the first one first. loopbackPort is
// an address at which nobody listens.

package radius

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// accepted fails the test unless alice may log in.
func accepted(t *testing.T, c *Client, phase string) {
	t.Helper()
	if _, err := c.Authenticate(t.Context(), credentials("alice", "correct horse")); err != nil {
		t.Errorf("%s: %v", phase, err)
	}
}

func TestSilentServerIsPassedOver(t *testing.T) {
	first, second := startFreeRADIUS(t), startFreeRADIUS(t)
	c := newClient(t, Config{
		Servers: []Server{first.server(), second.server()},
		Timeout: time.Second, Retries: 1, DeadTime: time.Hour, // a live one may be slow on a busy machine
	})
	accepted(t, c, "with both")
	if n := c.Stats()[1].Requests; n != 0 {
		t.Errorf("the second server was asked %d times while the first lives", n)
	}
	first.freeze(t)
	accepted(t, c, "with a silent first")
	before := c.Stats()[0]
	if !before.Dead || before.Timeouts != 1 || before.Retransmits < 1 {
		t.Errorf("the silent server is counted as %+v", before)
	}
	for range 20 {
		accepted(t, c, "with a dead first")
	}
	if after := c.Stats()[0]; after.Requests != before.Requests {
		t.Errorf("a dead server was asked %d times", after.Requests-before.Requests)
	}
	// With the second one silent too, the first is asked although it counts as dead.
	second.freeze(t)
	first.thaw(t)
	accepted(t, c, "with a silent second")
	if s := c.Stats()[0]; s.Dead {
		t.Errorf("the server that answers is counted as %+v", s)
	}
	second.thaw(t)
}

func TestDeadServerIsTriedAgain(t *testing.T) {
	first, second := startFreeRADIUS(t), startFreeRADIUS(t)
	c := newClient(t, Config{
		Servers: []Server{first.server(), second.server()},
		Timeout: time.Second, Retries: 1, DeadTime: time.Millisecond,
	})
	first.freeze(t)
	accepted(t, c, "with a silent first")
	before := c.Stats()[0]
	await(t, "the dead time's end", func() bool { return !c.Stats()[0].Dead })
	accepted(t, c, "with the first on trial")
	if after := c.Stats()[0]; after.Requests != before.Requests+1 || after.Retransmits != before.Retransmits {
		t.Errorf("on trial it was sent %d packets and %d again, want one", after.Requests-before.Requests,
			after.Retransmits-before.Retransmits)
	}
	first.thaw(t)
	await(t, "the first server's return", func() bool {
		accepted(t, c, "with the first back")
		return c.Stats()[0].Answers > before.Answers
	})
}

// TestKilledServerIsNotWaitedFor: its kernel reports that the port is closed.
func TestKilledServerIsNotWaitedFor(t *testing.T) {
	first, second := startFreeRADIUS(t), startFreeRADIUS(t)
	c := newClient(t,
		Config{Servers: []Server{first.server(), second.server()}, Timeout: time.Minute, DeadTime: time.Hour})
	first.kill()
	accepted(t, c, "with a killed first") // or the test takes minutes
	if s := c.Stats()[0]; !s.Dead || s.Retransmits != 0 {
		t.Errorf("the killed server is counted as %+v", s)
	}
}

// TestOnlyServerReturns: a refusal by the only server does not end the request.
func TestOnlyServerReturns(t *testing.T) {
	f := newFreeRADIUS(t, loopback())
	c := newClient(t, Config{Servers: []Server{f.server()}, Timeout: 200 * time.Millisecond, Retries: maxRetries})
	outcome := make(chan error)
	go func() {
		_, err := c.Authenticate(t.Context(), credentials("alice", "correct horse"))
		outcome <- err
	}()
	await(t, "a retransmission", func() bool { return c.Stats()[0].Retransmits > 0 })
	f.start(t)
	if err := <-outcome; err != nil {
		t.Error(err)
	}
}

func TestNoServer(t *testing.T) {
	silent := startFreeRADIUS(t)
	silent.freeze(t)
	nobody := loopbackPort()
	stranger := startFreeRADIUS(t)
	wrong := stranger.server()
	wrong.Secret = "another secret of 30 characters"
	c := newClient(t, Config{
		Servers: []Server{silent.server(), {Address: nobody, Secret: testSecret}, wrong},
		Timeout: time.Second, Retries: -1,
	})
	_, err := c.Authenticate(t.Context(), credentials("alice", "correct horse"))
	if !errors.Is(err, ErrNoServer) || errors.Is(err, session.ErrRejected) {
		t.Fatalf("%v, want ErrNoServer", err)
	}
	for _, want := range []string{
		silent.Auth.String() + ": no answer",
		nobody.String() + ": nothing listens there",
		stranger.Auth.String() + ": no answer: does it know this gateway's address and secret?",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not say %q", err, want)
		}
	}
	silent.thaw(t)
}

// TestRequestsUnderWayLeaveADeadServer: as soon as another request finds it dead.
func TestRequestsUnderWayLeaveADeadServer(t *testing.T) {
	silent, second := newAttacker(t), startFreeRADIUS(t)
	c := newClient(t, Config{
		Servers: []Server{silent.server(), second.server()},
		Timeout: 2 * time.Second, Retries: maxRetries, DeadTime: time.Hour,
	})
	go func() {
		silent.receive(t)
		c.auth.endpoints[0].unanswered(time.Now(), nil)
	}()
	accepted(t, c, "with the first found dead")
	if n := c.Stats()[0].Retransmits; n != 0 {
		t.Errorf("the dead server was asked again %d times", n)
	}
}

// TestImpatientCallersFindDeadServers: otherwise a portal with a deadline shorter than all transmissions would never
// reach the second server.
func TestImpatientCallersFindDeadServers(t *testing.T) {
	silent, second := newAttacker(t), startFreeRADIUS(t)
	c := newClient(t, Config{Servers: []Server{silent.server(), second.server()}, Timeout: 100 * time.Millisecond,
		Retries: maxRetries, DeadTime: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		silent.receive(t)
		silent.receive(t)
		cancel()
	}()
	if _, err := c.Authenticate(ctx, credentials("alice", "correct horse")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
	accepted(t, c, "when one was impatient")
}

func TestPlan(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name  string
		until []time.Duration // from now that each server is dead; 0: it lives
		want  []string        // servers by number, with their transmissions
	}{
		{"one", []time.Duration{0}, []string{"0 x3"}},
		{"one dead", []time.Duration{time.Hour}, []string{"0 x3"}},
		{"all live", []time.Duration{0, 0, 0}, []string{"0 x3", "1 x3", "2 x3"}},
		{"first dead", []time.Duration{time.Hour, 0, 0}, []string{"1 x3", "2 x3", "0 x3"}},
		{"first on trial", []time.Duration{-1, 0, 0}, []string{"0 x1", "1 x3", "2 x3"}},
		{"all dead", []time.Duration{time.Hour, time.Hour, time.Hour}, []string{"0 x1", "1 x1", "2 x3"}},
		{"all on trial", []time.Duration{-1, -1}, []string{"0 x1", "1 x3"}},
		{"one of each", []time.Duration{time.Hour, -1, 0}, []string{"1 x1", "2 x3", "0 x3"}},
	} {
		s := &service{tries: 3}
		numbers := map[*endpoint]int{}
		for i, until := range tt.until {
			e := &endpoint{deadTime: time.Hour}
			if until != 0 {
				e.deadUntil = now.Add(until)
			}
			numbers[e] = i
			s.endpoints = append(s.endpoints, e)
		}
		var got []string
		steps := s.plan(now)
		for i, st := range steps {
			got = append(got, fmt.Sprintf("%d x%d", numbers[st.endpoint], st.tries))
			if last := i == len(steps)-1; st.last != last {
				t.Errorf("%s: step %d says last %v", tt.name, i, st.last)
			}
		}
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// TestOneUnansweredRequestKillsNoServer: a server that answers others stays alive.
func TestOneUnansweredRequestKillsNoServer(t *testing.T) {
	e := &endpoint{deadTime: time.Hour}
	began := time.Now()
	e.answered()
	e.unanswered(began, nil)
	if e.isDead(time.Now()) {
		t.Error("dead although it answered since")
	}
	e.unanswered(time.Now(), nil)
	if !e.isDead(time.Now()) {
		t.Error("not dead although nothing was heard since")
	}
}

// inNamespace is set where this binary runs in a network of its own.
const inNamespace = "GATEWEIGH_RADIUS_NAMESPACE"

// TestNewSourceAddress: the WAN's address changes under open sockets.
func TestNewSourceAddress(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestNewSourceAddress$", "-test.v")
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("in a namespace (needs root): %v\n%s", err, out)
		}
		return
	}
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	ip("link set lo up")
	ip("addr add 192.0.2.1/32 dev lo")
	ip("addr add 192.0.2.10/32 dev lo")
	ip("route change table local local 192.0.2.1 dev lo src 192.0.2.10")
	f := newFreeRADIUS(t, netip.MustParseAddr("192.0.2.1"))
	f.start(t)
	c := newClient(t, Config{Servers: []Server{f.server()}, Timeout: 300 * time.Millisecond})
	accepted(t, c, "with the first address")

	ip("addr add 192.0.2.11/32 dev lo")
	ip("route change table local local 192.0.2.1 dev lo src 192.0.2.11")
	ip("addr del 192.0.2.10/32 dev lo")
	accepted(t, c, "with another address")
	if n := c.Stats()[0].Timeouts; n != 0 {
		t.Errorf("%d requests were given up", n)
	}
}

func TestNextWait(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		last, first time.Duration
		random      float64
		want        time.Duration
	}{
		{0, s, 0.5, s},
		{0, s, 0, 900 * time.Millisecond},
		{0, s, 1, 1100 * time.Millisecond},
		{s, s, 0.5, 2 * s},
		{2 * s, s, 0, 3800 * time.Millisecond},
		{2 * s, s, 1, 4200 * time.Millisecond},
		{8 * s, s, 0.5, 16 * s},
		{16 * s, s, 0.5, 16 * s},
		{16 * s, s, 1, 17600 * time.Millisecond},
		{60 * s, 60 * s, 0.5, 60 * s},
	} {
		if got := nextWait(tt.last, tt.first, tt.random); got.Round(time.Millisecond) != tt.want {
			t.Errorf("after %s, first %s, random %v: %s, want %s", tt.last, tt.first, tt.random, got, tt.want)
		}
	}
}
