package datapathtest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netnstest"
)

// limits: admission ends by itself, and rates hold.
var limits = []behaviour{
	{"AdmissionEndsInTime", untilHolds, Shape{}},
	{"QuotasHoldToThePacket", quotasHold, Shape{}},
	{"RatesHoldUp", func(t *testing.T, w *World) { ratesHold(t, w, true) }, Shape{}},
	{"RatesHoldDown", func(t *testing.T, w *World) { ratesHold(t, w, false) }, Shape{}},
	{"StreamsKeepTheirRate", streamsKeepRate, Shape{}},
}

// untilHolds: at the given time the client is before login again.
func untilHolds(t *testing.T, w *World) {
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Begin()
	down.Begin()
	end := time.Now().Add(1500 * time.Millisecond)
	must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Until = end })))
	if time.Until(end) > 500*time.Millisecond { // else the machine is too busy to look
		up.Passes(t, "before its time is up")
		down.Passes(t, "before its time is up")
	}
	time.Sleep(time.Until(end) + 20*time.Millisecond)
	was := w.tally(t, w.Alice)
	up.Stops(t, "after its time")
	down.Stops(t, "after its time")
	if got := w.tally(t, w.Alice).minus(was); got != (tally{}) {
		t.Errorf("billed after its time: %+v", got)
	}
	if got, err := get(w.Alice, Server); err != nil {
		t.Errorf("after its time the portal answers %q, %v", got, err)
	}
	w.lists(t, w.Alice.Addr)
	must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Until = time.Now().Add(time.Hour) })))
	up.Passes(t, "with an hour more")
	down.Passes(t, "with an hour more")
	must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Until = time.Now().Add(-time.Hour) })))
	up.Stops(t, "with a time that was")
	down.Stops(t, "with a time that was")
}

// quotasHold: the packet that reaches a quota passes, the next does not.
func quotasHold(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Send(5)
	down.Send(5)
	const size = headers + FlowBytes
	w.bills(t, w.Alice, tally{}, tally{5 * size, 5, 5 * size, 5})
	for _, c := range []struct {
		name   string
		limits func(now tally) datapath.Limits
		passed tally // packets
	}{
		{"up", func(n tally) datapath.Limits { return datapath.Limits{UpBytes: n.upBytes + 3*size} }, tally{upPackets: 3, downPackets: 10}},
		{"up, within a packet", func(n tally) datapath.Limits { return datapath.Limits{UpBytes: n.upBytes + 2*size + 1} }, tally{upPackets: 3, downPackets: 10}},
		{"down", func(n tally) datapath.Limits { return datapath.Limits{DownBytes: n.downBytes + 4*size} }, tally{upPackets: 10, downPackets: 4}},
		{"total", func(n tally) datapath.Limits {
			return datapath.Limits{TotalBytes: n.upBytes + n.downBytes + 12*size}
		}, tally{upPackets: 10, downPackets: 2}},
		{"none left", func(n tally) datapath.Limits { return datapath.Limits{TotalBytes: 1} }, tally{}},
		{"none", func(n tally) datapath.Limits { return datapath.Limits{} }, tally{upPackets: 10, downPackets: 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := w.Counters(t, w.Alice.Addr)
			must(t, w.Set(w.Alice.client(admitted, func(e *datapath.Client) { e.Limits = c.limits(tallyOf(was)) })))
			from, fromDown := up.Came(), down.Came()
			up.Send(10)
			// One direction after the other, as their sum is what counts.
			w.judged(t, was, c.passed.upPackets, 10)
			down.Send(10)
			w.judged(t, was, c.passed.upPackets+c.passed.downPackets, 20)
			want := tally{c.passed.upPackets * size, c.passed.upPackets, c.passed.downPackets * size, c.passed.downPackets}
			w.bills(t, w.Alice, tallyOf(was), want)
			up.Settle()
			down.Settle()
			if up.Came()-from != want.upPackets || down.Came()-fromDown != want.downPackets {
				t.Errorf("%d and %d packets came, want %d and %d", up.Came()-from, down.Came()-fromDown, want.upPackets, want.downPackets)
			}
		})
	}
}

// judged waits until so many of all packets passed and the rest was counted as
// dropped.
func (w *World) judged(t *testing.T, since datapath.Counters, passed, of uint64) {
	t.Helper()
	netnstest.Await(t, "a verdict", func() error {
		now := w.Counters(t, w.Alice.Addr)
		d := tallyOf(now).minus(tallyOf(since))
		if p, dropped := d.upPackets+d.downPackets, now.DroppedPackets-since.DroppedPackets; p != passed || p+dropped != of {
			return fmt.Errorf("%d passed and %d were dropped, want %d of %d to pass", p, dropped, passed, of)
		}
		return nil
	})
}

// The rate of the limits' tests: low enough for a busy machine to offer thrice as
// much.
const rateBps = 16_000_000

// ratesHold offers thrice the rate and holds what passes against a token bucket
// that began full.
func ratesHold(t *testing.T, w *World, upward bool) {
	l := datapath.Limits{UpBps: rateBps}
	f, idle := w.Up(t, w.Alice), w.Down(t, w.Alice)
	if !upward {
		l, f, idle = datapath.Limits{DownBps: rateBps}, idle, f
	}
	must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Limits = l })))
	const size = 1400
	began, offered := time.Now(), 0
	for last := began; time.Since(began) < 1500*time.Millisecond; last = time.Now() {
		due := int(3 * rateBps / 8 * time.Since(began).Seconds())
		for ; offered < due; offered += size + headers {
			f.SendSized(size)
		}
		if gap := time.Since(last); gap > w.path.Burst {
			t.Logf("nothing was offered for %v", gap)
		}
		time.Sleep(time.Millisecond)
	}
	f.Settle()
	elapsed := time.Since(began)
	got := float64(f.Came()) * (size + headers)
	bucket := w.path.Burst.Seconds() * rateBps / 8
	least, most := 1.5*rateBps/8, elapsed.Seconds()*rateBps/8+bucket+2*(size+headers)
	t.Logf("%.3f of the rate for 1.5 s; bucket %.3f", got/least, bucket/least)
	if got < 0.97*least || got > most {
		t.Errorf("%.0f bytes passed, want %.0f to %.0f", got, least, most)
	}
	c := w.Counters(t, w.Alice.Addr)
	if c.DroppedPackets == 0 || c.DroppedPackets+f.Came() > f.Sent() {
		t.Errorf("%d of %d packets were dropped, %d came", c.DroppedPackets, f.Sent(), f.Came())
	}
	if w.Packets(t)["rate"] == 0 {
		t.Error("no packet was counted as beyond its rate")
	}
	idle.Send(300) // the other way there is no limit
	netnstest.Await(t, "the other way", func() error {
		if idle.Came() != 300 {
			return errors.New("packets are missing")
		}
		return nil
	})
}

// streamsKeepRate: a connection gets near its rate, and never beyond; those the
// other way do not count.
func streamsKeepRate(t *testing.T, w *World) {
	must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Limits = datapath.Limits{UpBps: rateBps, DownBps: rateBps} })))
	x, y := w.NewStream(t, w.Alice, Server), w.NewStream(t, w.Alice, Server)
	was, began := w.tally(t, w.Alice), time.Now()
	x.Begin(x.Client)
	y.Begin(y.Server)
	time.Sleep(2500 * time.Millisecond)
	now, elapsed := w.tally(t, w.Alice).minus(was), time.Since(began)
	most := (elapsed+w.path.Burst).Seconds()*rateBps/8 + 65536
	for name, bytes := range map[string]uint64{"up": now.upBytes, "down": now.downBytes} {
		got := float64(bytes)
		t.Logf("%s: %.2f of what the limit allows", name, got/most)
		if got > most || got < 0.5*most {
			t.Errorf("%s: %.0f bytes passed of %.0f", name, got, most)
		}
	}
}
