package datapathtest

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// limits are the behaviours of a client's limits: admission ends in time, and rates and quotas are kept.
var limits = []behaviour{
	{"AdmissionEndsInTime", untilHolds, Shape{}},
	{"QuotasHoldToThePacket", quotasHold, Shape{}},
	{"RatesHoldUp", func(t *testing.T, w *World) { ratesHold(t, w, true) }, Shape{}},
	{"RatesHoldDown", func(t *testing.T, w *World) { ratesHold(t, w, false) }, Shape{}},
	{"StreamsKeepTheirRate", streamsKeepRate, Shape{}},
}

// untilHolds: at the given time the client becomes unauthenticated.
func untilHolds(t *testing.T, w *World) {
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Begin()
	down.Begin()
	end := passesUntil(t, 1500*time.Millisecond, func(end time.Time) {
		must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Until = end })))
	}, up, down)
	time.Sleep(time.Until(end))
	// On a busy machine a thread may still be about to count a batch that it judged before.
	up.Ends(t, "after its time")
	down.Ends(t, "after its time")
	before := w.stableTraffic(t, w.Alice)
	up.Stops(t, "after its time")
	down.Stops(t, "after its time")
	if got := w.tally(t, w.Alice).minus(before); got != (tally{}) {
		t.Errorf("counted after its time: %+v", got)
	}
	if !w.path.PPPoEOnly { // these have no portal
		if got, err := get(w.Alice, Server); err != nil {
			t.Errorf("after its time the portal answers %q, %v", got, err)
		}
	}
	w.lists(t, w.Alice.Addr)
	must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Until = time.Now().Add(time.Hour) })))
	up.Passes(t, "with an hour more")
	down.Passes(t, "with an hour more")
	must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Until = time.Now().Add(-time.Hour) })))
	up.Stops(t, "with a time in the past")
	down.Stops(t, "with a time in the past")
}

// passesUntil calls let, which lets packets pass until a time, checks that packets of flows pass before it, and returns
// it. If the machine is too busy to send any before, it tries again with a time twice as far away.
func passesUntil(t *testing.T, lasts time.Duration, let func(end time.Time), flows ...*Flow) time.Time {
	t.Helper()
	for ; lasts < time.Minute; lasts *= 2 {
		end := time.Now().Add(lasts)
		let(end)
		var from []uint64
		for _, f := range flows {
			from = append(from, f.Sent())
		}
		few := func() bool {
			for i, f := range flows {
				if f.CameAfter(from[i]) < 20 {
					return true
				}
			}
			return false
		}
		for few() && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
		if !few() {
			return end
		}
	}
	t.Fatal("no packets pass before the time is up")
	return time.Time{}
}

// quotasHold: the packet that reaches a quota passes, the next does not. Long: most lines are the table of cases.
func quotasHold(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Send(5)
	down.Send(5)
	const size = headers + FlowBytes
	w.counts(t, w.Alice, tally{}, tally{5 * size, 5, 5 * size, 5})
	up.Whole(t, "upward") // what is counted has not yet come
	down.Whole(t, "downward")
	for _, c := range []struct {
		name   string
		limits func(now tally) datapath.Limits
		passed tally // packets
	}{
		{"up", func(n tally) datapath.Limits { return datapath.Limits{UpBytes: n.upBytes + 3*size} },
			tally{upPackets: 3, downPackets: 10}},
		{"up, within a packet", func(n tally) datapath.Limits { return datapath.Limits{UpBytes: n.upBytes + 2*size + 1} },
			tally{upPackets: 3, downPackets: 10}},
		{"down", func(n tally) datapath.Limits { return datapath.Limits{DownBytes: n.downBytes + 4*size} },
			tally{upPackets: 10, downPackets: 4}},
		{"total", func(n tally) datapath.Limits {
			return datapath.Limits{TotalBytes: n.upBytes + n.downBytes + 12*size}
		}, tally{upPackets: 10, downPackets: 2}},
		{"none left", func(n tally) datapath.Limits { return datapath.Limits{TotalBytes: 1} }, tally{}},
		{"none", func(n tally) datapath.Limits { return datapath.Limits{} }, tally{upPackets: 10, downPackets: 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := w.Counters(t, w.Alice.Addr)
			must(t, w.Set(w.Alice.client(admitted, func(e *datapath.Client) { e.Limits = c.limits(tallyOf(before)) })))
			from, fromDown := up.Came(), down.Came()
			up.Send(10)
			// One direction after the other, because a quota may be on their sum.
			w.judged(t, before, c.passed.upPackets, 10)
			down.Send(10)
			w.judged(t, before, c.passed.upPackets+c.passed.downPackets, 20)
			want := tally{c.passed.upPackets * size, c.passed.upPackets, c.passed.downPackets * size, c.passed.downPackets}
			w.counts(t, w.Alice, tallyOf(before), want)
			netnstest.Await(t, "what may pass", func() error {
				if up.Came()-from < want.upPackets || down.Came()-fromDown < want.downPackets {
					return fmt.Errorf("%d and %d packets came", up.Came()-from, down.Came()-fromDown)
				}
				return nil
			})
			up.Settle()
			down.Settle()
			if up.Came()-from != want.upPackets || down.Came()-fromDown != want.downPackets {
				t.Errorf("%d and %d packets came, want %d and %d", up.Came()-from, down.Came()-fromDown, want.upPackets,
					want.downPackets)
			}
		})
	}
}

// judged waits until Alice's counters have, since a reading, passed packets that passed, and the rest of all (of) as
// dropped.
func (w *World) judged(t *testing.T, since datapath.Counters, passed, of uint64) {
	t.Helper()
	netnstest.Await(t, "the counts of all packets", func() error {
		now := w.Counters(t, w.Alice.Addr)
		d := tallyOf(now).minus(tallyOf(since))
		if p, dropped := d.upPackets+d.downPackets, now.DroppedPackets-since.DroppedPackets; p != passed || p+dropped != of {
			return fmt.Errorf("%d passed and %d were dropped, want %d of %d to pass", p, dropped, passed, of)
		}
		return nil
	})
}

// rateBps is so low that a busy machine, or an emulated CPU, can offer three times as much.
var rateBps = flag.Uint64("client-bps", 4_000_000, "rate limit of clients, bits a second")

const rateBytes = 1428 // of IP packets

// bucket is a reference token bucket that starts full.
type bucket struct {
	rate   float64       // bytes a second
	burst  time.Duration // at this rate, when it is full
	passed float64       // bytes
	used   time.Time     // until when the rate is used up
}

// take counts a packet as passed if the bucket lets it pass.
func (b *bucket) take(now time.Time, bytes float64) {
	if full := now.Add(-b.burst); b.used.Before(full) {
		b.used = full
	}
	if after := b.used.Add(time.Duration(bytes / b.rate * 1e9)); !after.After(now) {
		b.used = after
		b.passed += bytes
	}
}

// offerThrice sends three times the bucket's rate for a while, takes each packet from the bucket too, and waits until
// the packets that pass have arrived.
func offerThrice(t *testing.T, w *World, f *Flow, offered *bucket) {
	began, sent := time.Now(), int(f.Sent())
	// A busy machine may need more time to offer more than the rate.
	for long := false; time.Since(began) < 1500*time.Millisecond || !long && w.Packets(t)["rate"] == 0; {
		long = time.Since(began) > 15*time.Second
		due := sent + int(3*offered.rate*time.Since(began).Seconds()/rateBytes)
		for n := min(64, due-int(f.Sent())); n > 0; n-- { // at most as many at once as fit into queues
			f.SendSized(rateBytes - headers)
			offered.take(time.Now(), rateBytes)
		}
		time.Sleep(time.Millisecond)
	}
	f.Settle()
}

// ratesHold offers three times a client's rate, upward or downward, and compares what passes with a token bucket that
// starts full. On a busy machine a path may stand still for longer than its burst, and passes less than the bucket. Or
// packets wait in it until its bucket is fuller than this one was when they were sent, and it passes more. Then it
// tries again.
func ratesHold(t *testing.T, w *World, upward bool) {
	l := datapath.Limits{UpBps: *rateBps}
	f, idle := w.Up(t, w.Alice), w.Down(t, w.Alice)
	if !upward {
		l, f, idle = datapath.Limits{DownBps: *rateBps}, idle, f
	}
	must(t, w.Set(w.Alice.client(admitted, func(c *datapath.Client) { c.Limits = l })))
	offered := bucket{rate: float64(*rateBps) / 8, burst: w.path.Burst}
	holds := false
	for tries := 0; tries < 3 && !holds; tries++ {
		before, passed := f.Came(), offered.passed
		offerThrice(t, w, f, &offered)
		got, want := float64((f.Came()-before)*rateBytes), offered.passed-passed
		t.Logf("%.0f bytes passed; a token bucket lets %.0f pass", got, want)
		holds = got >= 0.97*want && got <= 1.03*want
	}
	if !holds {
		t.Error("each time less or more passes than a token bucket lets pass")
	}
	c := w.Counters(t, w.Alice.Addr)
	if c.DroppedPackets == 0 || c.DroppedPackets+f.Came() > f.Sent() {
		t.Errorf("%d of %d packets were dropped, %d came", c.DroppedPackets, f.Sent(), f.Came())
	}
	if w.Packets(t)["rate"] == 0 {
		t.Error("no packet was counted as beyond its rate")
	}
	for range 6 { // the other direction has no limit
		idle.Send(50) // so few that all fit into the queue of a neighbour that is being resolved
		idle.Whole(t, "the other way")
	}
}

// streamsKeepRate: a connection in each direction gets at least half of its direction's rate and never exceeds it.
// Acknowledgements of the other connection count too.
func streamsKeepRate(t *testing.T, w *World) {
	must(t, w.Set(w.Alice.client(
		admitted, func(c *datapath.Client) { c.Limits = datapath.Limits{UpBps: *rateBps, DownBps: *rateBps} })))
	x, y := w.NewStream(t, w.Alice, Server), w.NewStream(t, w.Alice, Server)
	before, began := w.tally(t, w.Alice), time.Now()
	x.Begin(x.Client)
	y.Begin(y.Server)
	share := func(bytes uint64, of time.Duration) float64 {
		return float64(bytes) / (of.Seconds() * float64(*rateBps) / 8)
	}
	for last, then := before, began; ; { // on a busy machine connections may miss their rate for a while
		time.Sleep(2500 * time.Millisecond)
		now, instant := w.tally(t, w.Alice), time.Now()
		most := (instant.Sub(began)+w.path.Burst).Seconds()*float64(*rateBps)/8 + 65536
		if all := now.minus(before); float64(max(all.upBytes, all.downBytes)) > most {
			t.Errorf("%d bytes passed up and %d down, the limits allow %.0f", all.upBytes, all.downBytes, most)
		}
		window := now.minus(last)
		up, down := share(window.upBytes, instant.Sub(then)), share(window.downBytes, instant.Sub(then))
		t.Logf("up %.2f and down %.2f of what the limits allow", up, down)
		if min(up, down) >= 0.5 {
			return
		}
		if instant.Sub(began) > time.Minute {
			t.Fatal("in no window both got half of their rate")
		}
		last, then = now, instant
	}
}
