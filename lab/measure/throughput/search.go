package throughput

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Name is the measure's name in experiments and records.
const Name = "throughput"

// KindSearch is the kind of the records of searches.
const KindSearch = "search"

// Search is the record of one search for the highest loads that a device forwards (RFC 9971).
type Search struct {
	result.Head
	DUT       string `json:"dut"`        // name of the device
	Clients   int    `json:"clients"`    // simulated clients
	Direction string `json:"direction"`  // of the frames
	Profile   string `json:"profile"`    // how packets look to the router
	FrameSize string `json:"frame_size"` // bytes without FCS, or a mix

	Dimensions result.Cell `json:"cell,omitzero"` // the whole cell, if it has more dimensions than the keys before

	// FrameBytes is the mean size of the frames, without FCS. It is 0 in old runs, where the name in FrameSize gives it.
	FrameBytes float64 `json:"frame_bytes,omitempty"`
	// WireBytes is what each frame takes on the wire besides FrameBytes: FCS, preamble and gap. It is 0 in old runs.
	WireBytes float64 `json:"wire_bytes,omitempty"`
	LineMbps  float64 `json:"line_mbps,omitempty"` // rate of the routers' slowest line; 0: the links have no rate

	SetupSeconds float64 `json:"setup_seconds"`    // time to build the lab, start the device and create the clients
	Engine       string  `json:"engine,omitempty"` // engine that sent the frames: live or packet
	// MaxKpps is the highest load of the search: the key max_kpps, or what the generator can send.
	MaxKpps float64 `json:"max_kpps"`
	// Watched means that trials record how long a CPU was away: `away_us` of each.
	Watched bool `json:"watched,omitempty"`
	// Closed means that the router has no agent: its CPU is not measured.
	Closed bool `json:"closed,omitempty"`
	// Unmetered is why the router's CPU is not measured although it has an agent; empty: it is.
	Unmetered   string  `json:"unmetered,omitempty"`
	RouterShare float64 `json:"router_share,omitempty"` // share of its CPU's time that a slowed router had
	Goals       []Goal  `json:"goals"`                  // in the experiment's order
	Trials      []Trial `json:"trials"`                 // in the order in which they were made
}

// Goal is the result of a search for one loss ratio. Loads are in thousand frames a second.
type Goal struct {
	LossRatio float64 `json:"loss_ratio"` // share of the frames that may be lost
	LowerKpps float64 `json:"lower_kpps"` // the highest load that loses no more
	UpperKpps float64 `json:"upper_kpps"` // the lowest load that loses more; 0: the highest load loses no more either
	// ThroughputKpps is what is forwarded at LowerKpps (RFC 9971's conditional throughput), less what the sender left
	// out.
	ThroughputKpps float64 `json:"throughput_kpps"`
	Regular        bool    `json:"regular"`         // the search found both bounds, as close as search_width asks
	RouterCorePct  float64 `json:"router_core_pct"` // router CPU at LowerKpps, percent of a core, mean of trials
	// Round-trip times of probes sent beside the frames at LowerKpps, µs, means of trials. Only for routers whose CPU is
	// not measured.
	RTTUs     float64 `json:"rtt_p50_us,omitempty"`
	RTTTailUs float64 `json:"rtt_p99_us,omitempty"`
}

// Trial is one trial of a search. Counts are those of RFC 2285.
type Trial struct {
	Kpps          float64 `json:"kpps"`                 // the load
	Seconds       float64 `json:"seconds"`              // planned length
	Intended      int64   `json:"intended"`             // frames that were due
	Offered       int64   `json:"offered"`              // of these, those that the generator's link took
	Forwarded     int64   `json:"forwarded"`            // of these, those that came to the other end
	Reordered     int64   `json:"reordered,omitempty"`  // frames that arrived after a later frame
	LossRatio     float64 `json:"loss_ratio"`           // of the offered frames
	RouterCorePct float64 `json:"router_core_pct"`      // router CPU, percent of a core
	RTTUs         float64 `json:"rtt_p50_us,omitempty"` // median of the round-trip probes: see Goal
	RTTTailUs     float64 `json:"rtt_p99_us,omitempty"` // their 99th percentile
	// SentSeconds is the time from the first frame to the last. It is longer than Seconds if the sender was held up.
	SentSeconds float64 `json:"sent_seconds,omitempty"`
	// AwayUs is the longest time, µs, for which a CPU of the lab was away: it worked for another guest or for the
	// firmware.
	AwayUs float64 `json:"away_us,omitempty"`
	// Void trials do not count and were repeated: the generator did not keep up, or a CPU was away.
	Void bool `json:"void,omitempty"`
}

// offeredShare returns the share of the due frames that was offered.
func (t Trial) offeredShare() float64 { return float64(t.Offered) / float64(max(t.Intended, 1)) }

// SetCell sets the search's dimensions. It sets Dimensions only if the other fields cannot hold the whole cell.
func (s *Search) SetCell(c result.Cell) {
	s.DUT, s.Clients, s.Direction = c.Text(result.DUT), c.Int(result.Clients), c.Text(result.Direction)
	s.Profile, s.FrameSize = c.Text(result.Profile), c.Text(result.FrameSize)
	if s.Cell() != c {
		s.Dimensions = c
	}
}

// Cell returns the search's dimensions.
func (s Search) Cell() result.Cell {
	if s.Dimensions != (result.Cell{}) {
		return s.Dimensions
	}
	return result.NewCell(result.DUT, s.DUT, result.Clients, s.Clients, result.Direction, s.Direction, result.Profile,
		s.Profile, result.FrameSize, s.FrameSize)
}

// withoutCPU reports whether the router's CPU is not known: the figures at a load are round-trip times then.
func (s Search) withoutCPU() bool { return s.Closed || s.Unmetered != "" }

// GoalName returns the name of a goal: "NDR" (no-drop rate) for loss 0, otherwise "PDR at 0.5 %" (partial drop rate).
func GoalName(loss float64) string {
	if loss == 0 {
		return "NDR"
	}
	return fmt.Sprintf("PDR at %g %%", 100*loss)
}

// metricOf returns a goal's prefix in names of metrics: "ndr_", "pdr_0.5_".
func metricOf(loss float64) string {
	if loss == 0 {
		return "ndr_"
	}
	return fmt.Sprintf("pdr_%g_", 100*loss)
}
