package capture

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Name is the measure's name in experiments and records.
const Name = "capture"

// KindCapture is the kind of the records of trials.
const KindCapture = "capture"

// Trial counts the frames of one window at one device. All counts are exact, and of this trial alone:
//
//	Intended ≥ Offered ≥ Passed,   Passed = Frames + Dropped + Waiting of each program + unexplained frames
//
// Frames that the generator had no time to send are intended but not offered: they are no loss (RFC 2285).
type Trial struct {
	result.Head
	Cell   result.Cell `json:"cell"`   // what was measured, by its dimensions
	Window int         `json:"window"` // counts from 0 within (block, cell)
	Host   string      `json:"host"`   // name of the capture host in the topology

	SetupSeconds float64 `json:"setup_seconds"` // time to build the block's lab
	SendSeconds  float64 `json:"send_seconds"`  // from the first frame to the end of the load
	LoadSeconds  float64 `json:"load_seconds"`  // between the readings of the CPU meters around the load

	// Counts of frames, RFC 2285's first.
	Intended   int64  `json:"intended"`             // frames that were due
	Offered    int64  `json:"offered"`              // frames that the generator's link took
	Switched   *int64 `json:"switched,omitempty"`   // frames that came into the splitter, where there is one
	Passed     int64  `json:"passed"`               // frames that passed the interface that is captured on
	Forwarded  *int64 `json:"forwarded,omitempty"`  // frames at the sink, each counted once, where there is a sink
	Reordered  int64  `json:"reordered,omitempty"`  // frames that reached the sink after a later frame
	Duplicates int64  `json:"duplicates,omitempty"` // frames that reached the sink again

	Engine   string         `json:"engine,omitempty"`   // engine that sent the frames: live or packet
	Programs []dut.Captured `json:"programs,omitempty"` // counts of each capture program

	// CPU of the capture host, exact ns: until the last frame was sent, and until nothing was left to do.
	NAPINs     int64            `json:"napi_ns"`              // polling threads, until the last frame was sent
	ProcessNs  int64            `json:"process_ns"`           // capture programs, likewise
	WaitNs     int64            `json:"wait_ns"`              // run-queue wait of both
	SettledNs  int64            `json:"settled_ns"`           // CPU of both until nothing was left to do
	ThreadNs   map[string]int64 `json:"thread_ns"`            // threads and processes by name
	Background float64          `json:"background,omitempty"` // CPUs that the background work used
	CPUs       float64          `json:"cpus"`                 // CPUs of the host; a slowed one counts as its share
	SharedCPU  bool             `json:"shared_cpu,omitempty"` // the programs' second CPU is also the generator's

	RouterShare float64        `json:"router_share,omitempty"` // share of its CPU's time that a slowed host had
	Machine     result.Machine `json:"machine"`                // /proc/stat over the window
}

// share returns n as a share of the passed frames.
func (t Trial) share(n int64) float64 { return float64(n) / float64(max(t.Passed, 1)) }

// unexplained returns the number of passed frames that a program neither took nor reports as lost, and that do not wait
// for it. It is negative if the program counts more frames than passed.
func (t Trial) unexplained(p dut.Captured) int64 { return t.Passed - p.Frames - p.Dropped - p.Waiting }

// arrived returns the number of frames that reached the sink; without a sink, of those that passed the capture
// interface.
func (t Trial) arrived() int64 {
	if t.Forwarded != nil {
		return *t.Forwarded
	}
	return t.Passed
}

// disagree is the share of the passed frames that may be unexplained, or wait for a program, without a flag.
const disagree = 0.001

// disagrees reports whether the statistics of a program leave more frames unexplained than disagree allows.
func (t Trial) disagrees() bool {
	for _, p := range t.Programs {
		if gap := t.share(t.unexplained(p)); p.Frames >= 0 && p.Dropped >= 0 && (gap > disagree || gap < -disagree) {
			return true
		}
	}
	return false
}

// tooManyWaiting reports whether more frames waited for a program at its end than disagree allows.
func (t Trial) tooManyWaiting() bool {
	return slices.ContainsFunc(t.Programs, func(p dut.Captured) bool { return t.share(p.Waiting) > disagree })
}

// killed reports whether a program did not end when it was asked to.
func (t Trial) killed() bool {
	return slices.ContainsFunc(t.Programs, func(p dut.Captured) bool { return p.Ended != "" })
}

// trial returns the record of station i. CPU times end when the last frame was sent; SettledNs ends when the programs
// had handled all frames. Counts of frames also end then.
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

// seconds returns how long frames were sent: the planned length, or longer if the last frame left later.
func (o *observation) seconds() float64 {
	return max(o.length.Seconds(), float64(o.sent.Frames.SentForNs)/1e9)
}
