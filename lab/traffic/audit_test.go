package traffic

import (
	"math"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/result"
)

// audit holds a run's books against its schedule from the first burst to the last.
// Nothing of it depends on how busy the machine is, so nothing of it is measured
// again when it does not come out:
//
//   - what was sent and what was given up never run ahead of the schedule,
//   - and stay behind it only by what sockets owe and by how late the thread was;
//   - when the pacer has stopped they are the schedule, to the byte;
//   - lateness beyond the catch-up was given up;
//   - no more arrives than was sent, and no connection comes or goes.
type audit struct {
	pacer             *pacer
	sender            *run
	receiver          *run // nil where another process has it
	streams           int
	broken            int     // connections that were to break, at each end
	interval, maxSeen float64 // ns from burst to burst; bytes all sockets may owe
	dueBytes          []checkpoint
	stopping          float64 // bytes of the schedule that were due at the last reading
}

// checkpoint waits for the sender's next bursts: their lateness says how far behind it may have
// been, and what was on its way into the kernel is counted then.
type checkpoint struct {
	at      time.Time
	bursts  int64
	account float64
	arrived int64
}

// newAudit begins to look at a run once its schedule has begun and all connections
// are counted. far is nil where the other end is another process.
func newAudit(t *testing.T, g *Generator, far *Server) *audit {
	t.Helper()
	a := &audit{pacer: g.pacer, sender: g.run}
	if far != nil {
		a.sender, a.receiver = runs(g, far)
		if !g.run.sends {
			labtest.Await(t, "the server's sender", func() bool {
				far.mu.Lock()
				defer far.mu.Unlock()
				a.pacer = far.runByID(g.run.id).pacer
				return a.pacer != nil
			})
		}
	}
	a.begin(t)
	return a
}

func (a *audit) begin(t *testing.T) {
	t.Helper()
	cfg := a.sender.cfg
	a.streams = cfg.Streams
	a.interval = float64(8*cfg.MSS*cfg.BurstSegments) / cfg.RateBps * 1e9
	a.maxSeen = float64(cfg.Streams * debtBursts * a.burst())
	labtest.Await(t, "all streams, and the schedule's begin", func() bool {
		return a.sender.open.Load() && a.counted(a.sender).Streams == a.streams &&
			(a.receiver == nil || a.counted(a.receiver).Streams == a.streams)
	})
}

func (a *audit) burst() int { return a.sender.cfg.MSS * a.sender.cfg.BurstSegments }

func (a *audit) counted(r *run) counts {
	var s Stats
	r.addToStats(&s)
	return r.counts(s)
}

// watchFor looks at the books again and again for as long.
func (a *audit) watchFor(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		a.readBooks(t)
	}
	a.readBooks(t)
}

// account is what of the schedule is sent or given up, bytes.
func account(s counts) float64 { return float64(s.SentBytes - s.PrimedBytes + s.ShortfallBytes) }

// schedule is what was to be sent until then, bytes.
func (a *audit) schedule(instant time.Time) float64 {
	return float64(instant.Sub(a.pacer.scheduleStart)) / a.interval * float64(a.burst())
}

func (a *audit) readBooks(t *testing.T) {
	t.Helper()
	var got counts
	if a.receiver != nil {
		got = a.counted(a.receiver)
	}
	before := time.Now()
	s := a.counted(a.sender)
	after := time.Now()
	// A burst leaves at any moment of its interval, so one may be ahead.
	if most := a.schedule(after) + float64(a.burst()); account(s) > most {
		t.Errorf("sent and given up are %.0f bytes ahead of the schedule: %s", account(s)-most, describe(s))
	}
	if s.Streams != a.streams || a.receiver != nil && got.Streams != a.streams || max(s.Broken, got.Broken) > a.broken {
		t.Errorf("%d and %d streams, want %d; broken %d and %d, want %d", s.Streams, got.Streams, a.streams, s.Broken,
			got.Broken, a.broken)
	}
	a.judgeReadings(t, s)
	a.dueBytes = append(a.dueBytes, checkpoint{before, s.Bursts, account(s), got.ReceivedBytes})
}

// judgeReadings judges the readings since which the sender has tried two bursts: the first may
// have been under way already.
func (a *audit) judgeReadings(t *testing.T, s counts) {
	t.Helper()
	for len(a.dueBytes) > 0 && s.Bursts >= a.dueBytes[0].bursts+2 {
		r := a.dueBytes[0]
		a.dueBytes = a.dueBytes[1:]
		late := float64(s.MaxLatenessNs)/a.interval*float64(a.burst()) + 2*float64(a.burst())
		a.stopping = a.schedule(r.at) - late
		if least := a.stopping - a.maxSeen; r.account < least {
			t.Errorf("%s after the begin sent and given up are %.0f bytes behind the schedule, more than lateness and debts "+
				"explain: %s",
				r.at.Sub(a.pacer.scheduleStart), least-r.account, describe(s))
		}
		if r.arrived > s.SentBytes {
			t.Errorf("%d bytes received of %d sent", r.arrived, s.SentBytes)
		}
	}
}

// close ends the run and balances the books: of what was due, each byte was sent, was given
// up, or is owed by a socket.
func (a *audit) close(t *testing.T, end func()) {
	t.Helper()
	a.readBooks(t)
	labtest.Await(t, "the bursts after the last reading", func() bool {
		a.judgeReadings(t, a.counted(a.sender))
		return len(a.dueBytes) == 0
	})
	end()
	labtest.Await(t, "the sender's end", func() bool {
		select {
		case <-a.pacer.Done():
			return true
		default:
			return false
		}
	})
	owed := int64(0)
	for i := range a.sender.streams {
		owed += int64(a.sender.streams[i].debt)
	}
	s := a.counted(a.sender)
	forgotten := math.Round(float64(a.pacer.t0.Sub(a.pacer.scheduleStart)) / a.interval)
	if all, want := account(s)+float64(owed), (float64(a.pacer.sent)+forgotten)*float64(a.burst()); all != want {
		t.Errorf("%d bursts and %.0f forgotten are %.0f bytes, and %.0f are accounted for, %d of them owed: %s",
			a.pacer.sent, forgotten, want, all, owed, describe(s))
	} else if all < a.stopping {
		t.Errorf("%.0f bytes of the schedule are missing: %s", a.stopping-all, describe(s))
	}
	allowed := max(float64(catchUpTime), catchUpBursts*a.interval)
	if least := math.Floor((float64(s.MaxLatenessNs) - allowed) / a.interval); forgotten < least-1 {
		t.Errorf("%.0f bursts forgotten, and the thread was late by at least %.0f more than it may make up for: %s",
			forgotten, least, describe(s))
	}
	if a.receiver != nil && a.broken == 0 && a.sender.cfg.Direction == result.Up && !a.sender.cfg.UDP {
		labtest.Await(t, "all that was sent", func() bool { return a.counted(a.receiver).ReceivedBytes == s.SentBytes })
	}
}

// TestPacerWithFullSockets has a kernel that takes bursts in part or not at all, and keeps the thread for
// longer than it may make up for: what a busy machine does at times, done each time.
func TestPacerWithFullSockets(t *testing.T) {
	cfg, err := Config{Streams: 3, RateBps: 1e9, UDP: true}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(0, cfg)
	r.accepted.Store(int64(cfg.Streams))
	calls := 0
	p, err := startPacer(r, func(st *stream, payload []byte) (int, error) {
		calls++
		switch {
		case calls%100 == 0:
			time.Sleep(40 * time.Millisecond)
		case calls%100 < 30: // ten turns of each stream
			return 0, nil
		case calls%7 == 0:
			return len(payload) / 3, nil
		}
		return len(payload), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	books := &audit{pacer: p, sender: r}
	books.begin(t)
	books.watchFor(t, time.Second)
	labtest.Await(t, "something given up", func() bool { return r.shortfall.Load() > 0 })
	books.close(t, func() { p.Close() })
}
