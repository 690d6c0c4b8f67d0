package capture

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Name is the measure's in experiments and records.
const Name = "capture"

// KindCapture is the kind of the records of trials.
const KindCapture = "capture"

// Trial is what became of the frames of one window at one device. All counts are exact, of the trial alone:
//
//	Intended ≥ Offered ≥ Passed,   Passed = Frames + Dropped + Waiting of each program + what nobody explains
//
// Frames that the generator had no time for were intended, not offered, and are no loss (RFC 2285).
type Trial struct {
	result.Head
	Cell   result.Cell `json:"cell"`   // what was measured, by its dimensions
	Window int         `json:"window"` // counts from 0 within (block, cell)
	Host   string      `json:"host"`   // that captured, by its name in the topology

	SetupSeconds float64 `json:"setup_seconds"` // of the block's lab
	SendSeconds  float64 `json:"send_seconds"`  // from the first frame to the end of the load
	LoadSeconds  float64 `json:"load_seconds"`  // between the readings of CPU around it

	// Counts of frames, RFC 2285's first.
	Intended   int64  `json:"intended"`             // frames that were due
	Offered    int64  `json:"offered"`              // frames that the generator's link took
	Switched   *int64 `json:"switched,omitempty"`   // frames that came into the splitter, where there is one
	Passed     int64  `json:"passed"`               // frames that passed the interface that is captured on
	Forwarded  *int64 `json:"forwarded,omitempty"`  // frames at the sink, counted once, where there is one
	Reordered  int64  `json:"reordered,omitempty"`  // there, after a later one
	Duplicates int64  `json:"duplicates,omitempty"` // there, again

	Engine   string         `json:"engine,omitempty"`   // that sent the frames: live or packet
	Programs []dut.Captured `json:"programs,omitempty"` // that captured

	// CPU of the capture host, exact ns: until the last frame was sent, and until nothing was left to do.
	NAPINs     int64            `json:"napi_ns"`              // polling threads, until the last frame was sent
	ProcessNs  int64            `json:"process_ns"`           // capture programs, likewise
	WaitNs     int64            `json:"wait_ns"`              // run-queue wait of both
	SettledNs  int64            `json:"settled_ns"`           // CPU of both until nothing was left to do
	ThreadNs   map[string]int64 `json:"thread_ns"`            // threads and processes by name
	Background float64          `json:"background,omitempty"` // CPUs that other work had
	CPUs       float64          `json:"cpus"`                 // that the host has, slowed ones less
	SharedCPU  bool             `json:"shared_cpu,omitempty"` // the programs' second CPU is also the generator's

	RouterShare float64        `json:"router_share,omitempty"` // of its CPU's time that a slowed host had
	Machine     result.Machine `json:"machine"`                // /proc/stat over the window
}

// share is n of the passed frames.
func (t Trial) share(n int64) float64 { return float64(n) / float64(max(t.Passed, 1)) }

// unexplained are the frames that a program neither took nor says it lost, and that do not wait for it either.
func (t Trial) unexplained(p dut.Captured) int64 { return t.Passed - p.Frames - p.Dropped - p.Waiting }

// arrived are the frames that came to the end: to the sink, or, where there is none, past the interface that is
// captured on.
func (t Trial) arrived() int64 {
	if t.Forwarded != nil {
		return *t.Forwarded
	}
	return t.Passed
}

// disagree is the share of the frames by which a program's own drops may differ from those that it did not take.
const disagree = 0.001

// disagrees reports whether a program's own statistics differ from the difference.
func (t Trial) disagrees() bool {
	for _, p := range t.Programs {
		if gap := t.share(t.unexplained(p)); p.Frames >= 0 && p.Dropped >= 0 && (gap > disagree || gap < -disagree) {
			return true
		}
	}
	return false
}

// tooManyWaiting reports whether frames that waited for a program at its end are more than statistics may differ by.
func (t Trial) tooManyWaiting() bool {
	return slices.ContainsFunc(t.Programs, func(p dut.Captured) bool { return t.share(p.Waiting) > disagree })
}

// killed reports whether a program did not end when it was asked to.
func (t Trial) killed() bool {
	return slices.ContainsFunc(t.Programs, func(p dut.Captured) bool { return p.Ended != "" })
}

// trial is the record of a station. CPU is that of the time until the last frame was sent, but for SettledNs, which
// lasts until nothing was left to do; frames are those of all of it.
func (o *observation) trial(i int) *Trial {
	s, before, end, after := o.lab.stations[i], o.before.stations[i], o.end.stations[i], o.after.stations[i]
	loaded, all := bench.UsageOf(before, end), bench.UsageOf(before, after)
	t := &Trial{
		Host: s.env.On, SendSeconds: o.seconds(), LoadSeconds: float64(end.MonotonicNs-before.MonotonicNs) / 1e9,
		Intended: o.sent.Frames.Intended, Offered: o.sent.Datagrams.Sent, Switched: o.switched(),
		Passed: s.passed(after) - s.passed(before),
		Engine: string(o.sent.Frames.Engine), Programs: o.captured[i],
		NAPINs: loaded.NAPINs, ProcessNs: loaded.ProcessNs, WaitNs: loaded.WaitNs, ThreadNs: loaded.ThreadNs,
		SettledNs:  all.NAPINs + all.ProcessNs,
		Background: o.background(i), CPUs: o.usable(s), SharedCPU: o.lab.sharesSecond(s),
		Machine: bench.Machine(after.Stat.Sub(before.Stat)),
	}
	if len(o.before.slow) > 0 {
		t.RouterShare = o.share()
	}
	if o.lab.sink != nil {
		n := o.got.Datagrams.Received
		t.Forwarded, t.Reordered, t.Duplicates = &n, o.got.Datagrams.Reordered, o.got.Frames.Duplicates
	}
	return t
}

// seconds is how long frames were sent: as long as asked for, or until the last one left.
func (o *observation) seconds() float64 {
	return max(o.length.Seconds(), float64(o.sent.Frames.LastNs)/1e9)
}
