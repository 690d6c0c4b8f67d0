// Package result has the records of a run. Only the run's folder goes from measuring to analysing. trials.jsonl has all
// figures, and environment.json and the experiment file say what was measured on which machine.
//
// A window is one measurement, of 1 s by default. A trial is a window that the self-tests judged, usually a pair: a
// window of the device and one of the clean router. A block builds both labs and measures all its windows in them. A
// sitting is the part of a run between two interruptions.
package result

import (
	"encoding/json"
	"fmt"
	"time"
)

// Version is the format version of every record that this package writes. Readers refuse records of a newer version.
const Version = 1

// Kinds of record in trials.jsonl.
const (
	KindTrial = "trial" // one measured pair of windows
	KindBlock = "block" // what is known of a whole block: set-up, login, daemons
)

// Directions of the payload.
const (
	Up   = "up"   // client to server
	Down = "down" // server to client
	Both = "both" // half of the load each way, at once
)

// Profiles say how packets look to the router.
const (
	PerPacket = "per-packet" // each packet handled alone, as on a NIC without GRO
	Bulk      = "bulk"       // GRO on
)

// Trial is one pair: a window of the DUT and one of the clean router. In duet mode the two windows are at the same time
// in two labs. In solo mode they follow each other. A rejected trial keeps its figures.
type Trial struct {
	Version int    `json:"version"`      // of the format: 1
	Kind    string `json:"kind"`         // trial
	Cell    Cell   `json:"cell"`         // what was measured, by its dimensions
	AA      bool   `json:"aa,omitempty"` // both sides are the clean router
	Block   int    `json:"block"`        // counts from 0 within (DUT, clients, profile, direction)
	Window  int    `json:"window"`       // counts from 0 within (block, cell)
	Attempt int    `json:"attempt"`      // 0, then 1 and 2 for redone trials
	// number of resumes of the run before this trial; a resume builds new labs
	Sitting  int       `json:"sitting,omitempty"`
	Node     string    `json:"node,omitempty"`    // of a campaign: the machine that measured it
	DUTLab   string    `json:"dut_lab"`           // "a" or "b": which lab carries the DUT
	Start    time.Time `json:"start"`             // UTC
	Elapsed  float64   `json:"elapsed,omitempty"` // s since the sitting began, by the monotonic clock; 0: not known
	Accepted bool      `json:"accepted"`          // all self-tests passed
	Rejects  []string  `json:"rejects,omitempty"` // one sentence a failed self-test
	// remarks that do not reject the trial, such as dut-saturated: the device could not carry the load
	Flags []string `json:"flags,omitempty"`
	// Figures are the measure's figures, of a type of the measure. In JSON their keys follow the other keys.
	Figures any `json:"-"`
}

// FullLoad is the smallest delivered share of the offered load that counts as carried.
const FullLoad = 0.98

// RouterShare is the name of the figure with the share of their CPUs' time that slowed routers had. It is computed from
// the task clock of the thread that took the rest.
const RouterShare = "router_share"

// OthersShare is the name of the figure with the share of the routers' CPUs, 0 to 1, that programs outside the lab
// took.
const OthersShare = "others_share"

// Flags of accepted trials.
const (
	// FlagSaturated: the DUT could not carry the offered load, although generator and clean router could. This is a
	// result, not a fault.
	FlagSaturated = "dut-saturated"
	// FlagLossy: more than 1 % of the segments through the DUT were retransmitted, or of UDP's datagrams lost, while the
	// clean router lost at most 1 % of datagrams.
	FlagLossy = "dut-lossy"
)

// Machine has the mpstat breakdown of /proc/stat, in percent of all CPUs. The kernel samples it by ticks, so it is
// recorded beside the exact figures and never used alone.
type Machine struct {
	Usr   float64 `json:"usr"`   // with nice
	Sys   float64 `json:"sys"`   // kernel
	Soft  float64 `json:"soft"`  // with irq
	Idle  float64 `json:"idle"`  // with iowait
	Steal float64 `json:"steal"` // taken by other guests of the host
}

// Block is the record that is written when a block ends, before the next one begins.
type Block struct {
	Version    int    `json:"version"`              // of the format: 1
	Kind       string `json:"kind"`                 // block
	DUT        string `json:"dut"`                  // as in a trial's cell, as the next ones
	AA         bool   `json:"aa,omitempty"`         // both sides are the clean router
	Clients    int    `json:"clients"`              // simulated clients
	Direction  string `json:"direction"`            // of the payload
	Profile    string `json:"profile"`              // how packets look to the router
	FrameSize  string `json:"frame_size,omitempty"` // of frames only
	Dimensions Cell   `json:"dimensions,omitzero"`  // where the keys before do not say all
	Block      int    `json:"block"`                // as in a trial
	// number of resumes of the run before this block; an interrupted block is measured again after the next one
	Sitting      int       `json:"sitting,omitempty"`
	Node         string    `json:"node,omitempty"`    // as in a trial
	DUTLab       string    `json:"dut_lab"`           // as in a trial
	Start        time.Time `json:"start"`             // UTC
	Elapsed      float64   `json:"elapsed,omitempty"` // as in a trial, of the start
	Seconds      float64   `json:"seconds"`           // whole block with set-up and tear-down
	SetupSeconds float64   `json:"setup_seconds"`     // labs and DUT, without the clients
	// Figures are the measure's figures, of a type of the measure. In JSON their keys follow the other keys.
	Figures any `json:"-"`

	Error string `json:"error,omitempty"` // what went wrong; trials before it stand
	// Leaving is the error when the labs were closed, such as a stop command that failed. All trials are valid.
	Leaving string `json:"leaving,omitempty"`
	// Broke says how the DUT failed at this number of clients although it works with fewer. This is a result.
	Broke string `json:"broke,omitempty"`
	// LeftOut are cells that the machine cannot measure. The summary's warnings give the reason.
	LeftOut []Cell `json:"left_out,omitempty"`

	LoginRate float64 `json:"login_rate,omitempty"` // of a storm that failed
}

// Sources of the clients' addresses.
const (
	FromDevice = "device" // it leases them
	FromLab    = "lab"    // the lab's own DHCP server, where the device leases none
	Static     = "static" // the plan gives each client its own address
)

// Roles among which a record's CPU time is divided.
const (
	RoleRouter = "router" // polling threads and the device's processes
	RoleClient = "client" // client hosts
	RoleServer = "server" // the server's agent and polling thread
	RoleRadius = "radius" // programs of the server: the RADIUS a device asks
	RoleAgents = "agents" // the router's agent
)

// Skip says why a DUT was left out of a run.
type Skip struct {
	DUT    string `json:"dut"`    // its name
	Reason string `json:"reason"` // what it lacks here
}

// loginRate is a dimension that records of blocks have as a key of their own.
const loginRate Dimension = "login_rate"

// SetCell records the dimensions that are the same throughout the block. They become keys of the record. Where these
// keys cannot express all of them, the record also has the cell.
func (b *Block) SetCell(c Cell) {
	b.DUT, b.Clients, b.LoginRate = c.Text(DUT), c.Int(Clients), c.Number(loginRate)
	b.Direction, b.Profile, b.FrameSize = c.Text(Direction), c.Text(Profile), c.Text(FrameSize)
	if b.Cell() != c {
		b.Dimensions = c
	}
}

// Cell returns the dimensions that are the same throughout the block.
func (b Block) Cell() Cell {
	if b.Dimensions != (Cell{}) {
		return b.Dimensions
	}
	cell := NewCell(DUT, b.DUT, Clients, b.Clients, Direction, b.Direction, Profile, b.Profile, FrameSize, b.FrameSize)
	if b.Direction == "" {
		cell = cell.With(loginRate, b.LoginRate)
	}
	return cell
}

// MarshalJSON writes the keys that trials of all measures have, then those of the figures.
func (t Trial) MarshalJSON() ([]byte, error) {
	type head Trial
	return withFigures(head(t), t.Figures)
}

// MarshalJSON writes the keys that blocks of all measures have, then those of the figures.
func (b Block) MarshalJSON() ([]byte, error) {
	type head Block
	return withFigures(head(b), b.Figures)
}

// withFigures joins two JSON objects into one.
func withFigures(head, figures any) ([]byte, error) {
	text, err := json.Marshal(head)
	if err != nil || figures == nil {
		return text, err
	}
	more, err := json.Marshal(figures)
	switch empty := string(more); {
	case err != nil || empty == "{}" || empty == "null":
		return text, err
	case more[0] != '{':
		return nil, fmt.Errorf("figures of type %T are no JSON object", figures)
	}
	return append(append(text[:len(text)-1], ','), more[1:]...), nil
}

// RTT has round-trip times under load, microseconds, measured with separate probes.
type RTT struct {
	P50    float64 `json:"p50"`    // median
	P99    float64 `json:"p99"`    // 99th percentile
	Probes int     `json:"probes"` // sent
	Lost   int     `json:"lost"`   // of them
}
