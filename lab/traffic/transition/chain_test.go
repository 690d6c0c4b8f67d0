package transition

import (
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// The tests of this file send probes through a router and compare the times that sender, receiver and taps note. A tap
// is an eBPF program at an interface that notes when frames pass.

// chain is two hosts with a router between them.
type chain struct {
	client, router, server *netnstest.Space
	way                    Way
}

var probesAt = netip.MustParseAddrPort("10.78.2.2:4242")

// newChain makes a chain. Its probes pass the taps "in" and "out" at the router and "arrive" at the server.
func newChain(t *testing.T) chain {
	t.Helper()
	c := chain{client: netnstest.NewSpace(t), router: netnstest.NewSpace(t), server: netnstest.NewSpace(t)}
	router := strconv.Itoa(c.router.TID())
	c.client.Run(t, "ip link add gwtc type veth peer name gwtr netns "+router)
	c.server.Run(t, "ip link add gwts type veth peer name gwtq netns "+router)
	const setUp = `sysctl -qw net.ipv4.ip_forward=1; up() { ip addr add "$2" dev "$1"; ip link set "$1" up; }
`
	c.router.Run(t, setUp+"up gwtr 10.78.1.1/24; up gwtq 10.78.2.1/24")
	c.client.Run(t, setUp+"up gwtc 10.78.1.2/24; ip route add default via 10.78.1.1")
	c.server.Run(t, setUp+"up gwts 10.78.2.2/24; ip route add default via 10.78.2.1")
	c.client.Run(t, `until ping -qc 1 -W 1 10.78.2.2 >/dev/null; do :; done`)
	c.way = Way{
		Run:   Run{Number: 7, To: probesAt, Count: 100, Bytes: 200, Gap: 2 * time.Millisecond},
		Stops: []Stop{{Tap: "in"}, {Tap: "out", Inside: true}, {Tap: "arrive"}},
	}
	return c
}

// observed has the readings of sender, receiver and all taps of a run.
type observed struct {
	sending   Sending
	receiving Receiving
	events    []Event
}

// run sends the way's probes.
func (c chain) run(t *testing.T) (o observed) {
	t.Helper()
	var r *Receiver
	var err error
	c.server.Do(func() { r, err = Receive(t.Context(), probesAt, func() error { return nil }) })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	taps := []*Tap{ // closed at the end: a chain may run again
		c.tap(t, c.router, Point{Name: "in", Interface: "gwtr"}, Point{Name: "out", Interface: "gwtq", Egress: true}),
		c.tap(t, c.server, Point{Name: "arrive", Interface: "gwts"}),
	}
	for _, tap := range taps {
		defer tap.Close()
	}
	c.client.Do(func() { o.sending, err = Send(t.Context(), c.way.Run) })
	if err != nil {
		t.Fatal(err)
	}
	for _, tap := range taps {
		list, err := tap.Read()
		if err != nil {
			t.Fatal(err)
		}
		o.events = append(o.events, list...)
	}
	labtest.Await(t, "the last probe", func() bool { o.receiving = r.Take(c.way.Run.Number); return o.receiving.Over })
	return o
}

// tap opens a tap at points of a host, for frames of the probes' length.
func (c chain) tap(t *testing.T, s *netnstest.Space, points ...Point) (tap *Tap) {
	t.Helper()
	var err error
	s.Do(func() { tap, err = OpenTap(points) })
	if err == nil {
		err = tap.Want([]int{c.way.Run.FrameBytes()})
	}
	if err != nil {
		t.Fatal(err)
	}
	return tap
}

// match puts together the times of each probe.
func (c chain) match(o observed) Passages {
	return Match(c.way, o.sending.Probes, o.receiving.Probes, o.events)
}

// TestProbesCrossARouter: each probe has all times, and they ascend from the sender to the receiver.
func TestProbesCrossARouter(t *testing.T) {
	c := newChain(t)
	o := c.run(t)
	m := c.match(o)
	if want := (Counts{Sent: c.way.Run.Count}); m.Counts.Resent == 0 && m.Counts != want || m.Counts.Sent != want.Sent {
		t.Errorf("counts: %+v, want %+v", m.Counts, want)
	}
	for i, p := range m.List {
		if way := slices.Concat([]int64{p.WriteNs, p.QueuedNs, p.LeftNs}, p.StopNs, []int64{p.ReadNs}); !slices.IsSorted(
			way) || way[0] == 0 {
			t.Errorf("probe %d: %v, want moments that follow each other", i, way)
		}
	}
	if n, err := Outer(c.way, o.sending.Probes, o.events); n != 0 || err != nil {
		t.Errorf("the length of a tunnel's packets is %d, %v, want 0 where there is no tunnel", n, err)
	}
	if o.sending.ClockErrorNs <= 0 || o.sending.ClockStepNs != 0 {
		t.Errorf("clocks: error %d ns, step %d ns", o.sending.ClockErrorNs, o.sending.ClockStepNs)
	}
}

// TestResentProbesAreLeftOut: the router drops some probes, which TCP sends again.
func TestResentProbesAreLeftOut(t *testing.T) {
	c := newChain(t)
	c.way.Run.Count, c.way.Run.Gap = 60, 4*time.Millisecond
	c.router.Run(t, `nft '
table ip t { chain c { type filter hook forward priority 0; meta length 252 tcp dport 4242 numgen inc mod 20 == 7 drop; }; }'`)
	o := c.run(t)
	m := c.match(o)
	if m.Counts.Resent == 0 {
		t.Errorf("counts: %+v, want some that were sent again", m.Counts)
	}
	if n := m.Counts; n.Sent != len(m.List)+n.Resent+n.Lost {
		t.Errorf("counts: %+v of %d in the list do not add up", n, len(m.List))
	}
	for i, p := range m.List {
		if slices.Contains(p.StopNs, 0) {
			t.Errorf("probe %d of the list was not seen everywhere: %v", i, p.StopNs)
		}
	}
}

// TestBadRuns: a run with a wrong field is not sent.
func TestBadRuns(t *testing.T) {
	good := Run{Number: 1, To: probesAt, Count: 1, Bytes: 200, Gap: time.Millisecond}
	for name, spoil := range map[string]func(*Run){
		"number": func(r *Run) { r.Number = 0 },
		"probes": func(r *Run) { r.Count = 0 },
		"bytes":  func(r *Run) { r.Bytes = MaxBytes + 1 },
		"gap":    func(r *Run) { r.Gap = 0 },
	} {
		bad := good
		spoil(&bad)
		if _, err := Send(t.Context(), bad); err == nil {
			t.Errorf("a run with a bad %s is sent", name)
		}
	}
}
