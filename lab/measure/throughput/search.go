package throughput

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Name is the measure's in experiments and records.
const Name = "throughput"

// KindSearch is the kind of the records of searches.
const KindSearch = "search"

// Search is one search for the highest loads that a device forwards (RFC 9971).
type Search struct {
	result.Head
	DUT       string `json:"dut"`        // name of the device
	Clients   int    `json:"clients"`    // simulated clients
	Direction string `json:"direction"`  // of the frames
	Profile   string `json:"profile"`    // how packets look to the router
	FrameSize string `json:"frame_size"` // bytes without FCS, or a mix

	Dimensions result.Cell `json:"cell,omitzero"` // where the keys before do not say all

	// FrameBytes is the mean size of the frames; 0 in runs of before it was recorded, whose sizes have names that are
	// known.
	FrameBytes float64 `json:"frame_bytes,omitempty"`
	// WireBytes is what each frame takes on the wire besides; 0 in runs of before it was recorded.
	WireBytes float64 `json:"wire_bytes,omitempty"`
	LineMbps  float64 `json:"line_mbps,omitempty"` // of the routers' slowest line; 0: the links have no rate

	SetupSeconds float64 `json:"setup_seconds"`    // lab, device and clients
	Engine       string  `json:"engine,omitempty"` // that sent the frames: live or packet
	// MaxKpps is the highest load of the search: what was asked for, or what the generator can send.
	MaxKpps float64 `json:"max_kpps"`
	// Watched means that trials know how long a CPU was away: `away_us` of each.
	Watched bool `json:"watched,omitempty"`
	// Closed means that the router has no agent: nothing is known of its CPU.
	Closed      bool    `json:"closed,omitempty"`
	RouterShare float64 `json:"router_share,omitempty"` // of its CPU's time that a slowed router had
	Goals       []Goal  `json:"goals"`                  // in the experiment's order
	Trials      []Trial `json:"trials"`                 // in the order in which they were made
}

// Goal is what a search found for one loss ratio, loads in thousand frames a second.
type Goal struct {
	LossRatio float64 `json:"loss_ratio"` // share of the frames that may be lost
	LowerKpps float64 `json:"lower_kpps"` // the highest load that loses no more
	UpperKpps float64 `json:"upper_kpps"` // the lowest load that does; 0: none, even the highest load satisfies the goal
	// ThroughputKpps is what is forwarded at LowerKpps (RFC 9971's conditional throughput), less what the sender left out.
	ThroughputKpps float64 `json:"throughput_kpps"`
	Regular        bool    `json:"regular"`         // both bounds are there, and close
	RouterCorePct  float64 `json:"router_core_pct"` // router CPU at LowerKpps, mean
	// Round-trip times of probes beside the frames, µs at LowerKpps, of routers without an agent; means of trials.
	RTTUs     float64 `json:"rtt_p50_us,omitempty"`
	RTTTailUs float64 `json:"rtt_p99_us,omitempty"`
}

// Trial is one trial of a search. Counts are those of RFC 2285.
type Trial struct {
	Kpps          float64 `json:"kpps"`                 // the load
	Seconds       float64 `json:"seconds"`              // that were asked for
	Intended      int64   `json:"intended"`             // frames that were due
	Offered       int64   `json:"offered"`              // of these, those that the generator's link took
	Forwarded     int64   `json:"forwarded"`            // of these, those that came to the other end
	Reordered     int64   `json:"reordered,omitempty"`  // came after a later one
	LossRatio     float64 `json:"loss_ratio"`           // of the offered frames
	RouterCorePct float64 `json:"router_core_pct"`      // router CPU
	RTTUs         float64 `json:"rtt_p50_us,omitempty"` // median of the round-trip probes: see Goal
	RTTTailUs     float64 `json:"rtt_p99_us,omitempty"` // their 99th percentile
	// SentSeconds is the time from the first frame to the last: longer than Seconds where the sender was held up.
	SentSeconds float64 `json:"sent_seconds,omitempty"`
	// AwayUs is the longest time for which a CPU of the lab worked for nobody.
	AwayUs float64 `json:"away_us,omitempty"`
	// Void trials were made again: the generator did not keep up, or a CPU was away.
	Void bool `json:"void,omitempty"`
}

// offeredShare is the share of the due frames that was offered.
func (t Trial) offeredShare() float64 { return float64(t.Offered) / float64(max(t.Intended, 1)) }

// SetCell writes the search's dimensions down, as one cell too where its own keys do not say all.
func (s *Search) SetCell(c result.Cell) {
	s.DUT, s.Clients, s.Direction = c.Text(result.DUT), c.Int(result.Clients), c.Text(result.Direction)
	s.Profile, s.FrameSize = c.Text(result.Profile), c.Text(result.FrameSize)
	if s.Cell() != c {
		s.Dimensions = c
	}
}

// Cell has the search's dimensions.
func (s Search) Cell() result.Cell {
	if s.Dimensions != (result.Cell{}) {
		return s.Dimensions
	}
	return result.NewCell(result.DUT, s.DUT, result.Clients, s.Clients, result.Direction, s.Direction, result.Profile,
		s.Profile, result.FrameSize, s.FrameSize)
}

// GoalName is what a rate with that loss is called: NDR without loss, else PDR.
func GoalName(loss float64) string {
	if loss == 0 {
		return "NDR"
	}
	return fmt.Sprintf("PDR at %g %%", 100*loss)
}

// metricOf is a goal's prefix in names of metrics: "ndr_", "pdr_0.5_".
func metricOf(loss float64) string {
	if loss == 0 {
		return "ndr_"
	}
	return fmt.Sprintf("pdr_%g_", 100*loss)
}
