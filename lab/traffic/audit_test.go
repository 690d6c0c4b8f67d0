package traffic

import (
	"math"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/result"
)

// A pacer sends bursts of all streams by a schedule. Bytes of the schedule that are not sent are either owed by a
// socket that was full and will send them later (debt), or given up (shortfall). An audit compares these counts with
// the schedule while a run goes on.

// audit checks a run's counts against its schedule, from the first burst to the last. None of its rules depends on how
// busy the machine is, so a test never measures again when one of them is broken:
//
//   - the bytes sent and given up are never more than the schedule has;
//   - they are less only by the bytes that sockets owe, and by the lateness of the sending thread;
//   - when the pacer has stopped, sent, given up and owed bytes are exactly those of the schedule;
//   - bursts that are later than the pacer may catch up were given up;
//   - no more bytes arrive than were sent, and no connection comes or goes.
type audit struct {
	pacer    *pacer
	sender   *run
	receiver *run // nil if it is in another process
	streams  int
	broken   int          // connections that the test breaks, at each end
	interval float64      // from one burst to the next, ns
	maxDebt  float64      // bytes that all sockets together may owe
	readings []checkpoint // readings that are not judged yet
	stopping float64      // bytes of the schedule that were due at the last judged reading
}

// checkpoint is one reading of the counts. It is judged after the sender's next bursts: their lateness says how far the
// sender may have been behind its schedule at the reading.
type checkpoint struct {
	at      time.Time
	bursts  int64   // bursts sent so far
	account float64 // bytes sent or given up
	arrived int64   // bytes received
}

// newAudit begins to look at a run once its schedule has begun and all connections are counted. g is the client's end
// and far the server's; far is nil if that is in another process.
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

// begin waits until the schedule has begun and all streams are open, and computes the limits from the configuration.
func (a *audit) begin(t *testing.T) {
	t.Helper()
	cfg := a.sender.cfg
	a.streams = cfg.Streams
	a.interval = float64(8*cfg.MSS*cfg.BurstSegments) / cfg.RateBps * 1e9
	a.maxDebt = float64(cfg.Streams * debtBursts * a.burst())
	labtest.Await(t, "all streams, and the schedule's begin", func() bool {
		return a.sender.open.Load() && a.counted(a.sender).Streams == a.streams &&
			(a.receiver == nil || a.counted(a.receiver).Streams == a.streams)
	})
}

// burst is the length of a burst, bytes.
func (a *audit) burst() int { return a.sender.cfg.MSS * a.sender.cfg.BurstSegments }

// counted reads the counts of one end.
func (a *audit) counted(r *run) counts {
	var s Stats
	r.addToStats(&s)
	return r.counts(s)
}

// watchFor reads and judges the counts every 20 ms for the time d.
func (a *audit) watchFor(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		a.read(t)
	}
	a.read(t)
}

// account is the part of the schedule that was sent or given up, bytes.
func account(s counts) float64 { return float64(s.SentBytes - s.PrimedBytes + s.ShortfallBytes) }

// schedule is the part of the schedule that is due until an instant, bytes.
func (a *audit) schedule(instant time.Time) float64 {
	return float64(instant.Sub(a.pacer.scheduleStart)) / a.interval * float64(a.burst())
}

// read reads both ends' counts, and judges this reading and earlier ones as far as possible.
func (a *audit) read(t *testing.T) {
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
	a.readings = append(a.readings, checkpoint{before, s.Bursts, account(s), got.ReceivedBytes})
}

// judgeReadings judges the readings since which the sender has sent two bursts: the first of them may have been under
// way at the reading.
func (a *audit) judgeReadings(t *testing.T, s counts) {
	t.Helper()
	for len(a.readings) > 0 && s.Bursts >= a.readings[0].bursts+2 {
		r := a.readings[0]
		a.readings = a.readings[1:]
		late := float64(s.MaxLatenessNs)/a.interval*float64(a.burst()) + 2*float64(a.burst())
		a.stopping = a.schedule(r.at) - late
		if least := a.stopping - a.maxDebt; r.account < least {
			t.Errorf("%s after the begin sent and given up are %.0f bytes behind the schedule, more than lateness and debts "+
				"explain: %s",
				r.at.Sub(a.pacer.scheduleStart), least-r.account, describe(s))
		}
		if r.arrived > s.SentBytes {
			t.Errorf("%d bytes received of %d sent", r.arrived, s.SentBytes)
		}
	}
}

// close ends the run by calling end, and checks its last counts: each byte that was due was sent, was given up, or is
// owed by a socket.
func (a *audit) close(t *testing.T, end func()) {
	t.Helper()
	a.read(t)
	labtest.Await(t, "the bursts after the last reading", func() bool {
		a.judgeReadings(t, a.counted(a.sender))
		return len(a.readings) == 0
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

// TestPacerWithFullSockets: the function that sends takes bursts in part or not at all, and at times keeps the thread
// for longer than the pacer may catch up. A busy machine does the same at times.
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
	a := &audit{pacer: p, sender: r}
	a.begin(t)
	a.watchFor(t, time.Second)
	labtest.Await(t, "bytes given up", func() bool { return r.shortfall.Load() > 0 })
	a.close(t, func() { p.Close() })
}
