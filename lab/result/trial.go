// Package result holds the records a run leaves behind. Only the run's folder crosses
// from measuring to analysing: trials.jsonl holds all figures, environment.json and the
// experiment file say what they are of.
package result

import (
	"encoding/json"
	"fmt"
	"time"
)

// Version is the format version of every record written by this package.
// Readers refuse records of a newer version.
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

// Profiles: how packets look to the router.
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
	// how often the run had been resumed: labs do not last from one to the next
	Sitting  int       `json:"sitting,omitempty"`
	Node     string    `json:"node,omitempty"`    // of a campaign: the machine that measured it
	DUTLab   string    `json:"dut_lab"`           // "a" or "b": which lab carries the DUT
	Start    time.Time `json:"start"`             // UTC
	Elapsed  float64   `json:"elapsed,omitempty"` // s since the sitting began, by the monotonic clock; 0: not known
	Accepted bool      `json:"accepted"`          // all self-tests passed
	Rejects  []string  `json:"rejects,omitempty"` // one sentence a failed self-test
	// remarks that do not reject, such as dut-saturated: the device itself could not carry the load
	Flags []string `json:"flags,omitempty"`
	// Figures are the measure's own, of a type of the measure: their keys stand behind the others.
	Figures any `json:"-"`
}

// FullLoad is the share of the offered load from which on the load counts as carried.
const FullLoad = 0.98

// RouterShare is the figure of records with the share of their CPUs' time that slowed routers had,
// by the task clock of what took the rest.
const RouterShare = "router_share"

// OthersShare is the figure of records with the share of the routers' CPUs, 0 to 1, that programs had which are not of
// a lab.
const OthersShare = "others_share"

// Flags of a trial that stands.
const (
	// FlagSaturated: the DUT itself could not carry the offered load although
	// generator and clean router could: a result, not a fault.
	FlagSaturated = "dut-saturated"
	// FlagLossy: more than 1 % of the segments through the DUT were sent again, or of UDP's
	// datagrams lost, although the clean router lost at most 1 % of datagrams.
	FlagLossy = "dut-lossy"
)

// Machine is the mpstat breakdown of /proc/stat, in percent of all CPUs. It is
// sampled by ticks: recorded beside the exact figures, never used alone.
type Machine struct {
	Usr   float64 `json:"usr"`   // with nice
	Sys   float64 `json:"sys"`   // kernel
	Soft  float64 `json:"soft"`  // with irq
	Idle  float64 `json:"idle"`  // with iowait
	Steal float64 `json:"steal"` // taken by other guests of the host
}

// Block is written when a block ends, before the next begins.
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
	// as in a trial: a block that was interrupted is built again in the next
	Sitting      int       `json:"sitting,omitempty"`
	Node         string    `json:"node,omitempty"`    // as in a trial
	DUTLab       string    `json:"dut_lab"`           // as in a trial
	Start        time.Time `json:"start"`             // UTC
	Elapsed      float64   `json:"elapsed,omitempty"` // as in a trial, of the start
	Seconds      float64   `json:"seconds"`           // whole block with set-up and tear-down
	SetupSeconds float64   `json:"setup_seconds"`     // labs and DUT, without the clients
	// Figures are the measure's own, of a type of the measure: their keys stand behind the others.
	Figures any `json:"-"`

	Error string `json:"error,omitempty"` // what went wrong; trials before it stand
	// Leaving is what went wrong when the labs were left, such as a stop command that failed; all trials stand.
	Leaving string `json:"leaving,omitempty"`
	// Broke is how the DUT failed at this many clients although it took fewer: a result.
	Broke string `json:"broke,omitempty"`
	// LeftOut are cells that the machine cannot measure; the summary's warnings say why.
	LeftOut []Cell `json:"left_out,omitempty"`

	LoginRate float64 `json:"login_rate,omitempty"` // of a storm that failed
}

// Where clients get their addresses.
const (
	FromDevice = "device" // it leases them
	FromLab    = "lab"    // the lab's own DHCP server, where the device leases none
	Static     = "static" // the plan gives each client its own address
)

// Roles by which a record's CPU time is shared out.
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

// loginRate is a dimension that records of blocks have as a key of its own.
const loginRate Dimension = "login_rate"

// SetCell writes down the dimensions that are the same throughout the block: as keys of the record's own, and also as
// one cell where these keys do not say it all.
func (b *Block) SetCell(c Cell) {
	b.DUT, b.Clients, b.LoginRate = c.Text(DUT), c.Int(Clients), c.Number(loginRate)
	b.Direction, b.Profile, b.FrameSize = c.Text(Direction), c.Text(Profile), c.Text(FrameSize)
	if b.Cell() != c {
		b.Dimensions = c
	}
}

// Cell has the dimensions that are the same throughout the block.
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

// MarshalJSON writes the keys that trials of all measures have, and then those of the figures.
func (t Trial) MarshalJSON() ([]byte, error) {
	type head Trial
	return withFigures(head(t), t.Figures)
}

// MarshalJSON writes the keys that blocks of all measures have, and then those of the figures.
func (b Block) MarshalJSON() ([]byte, error) {
	type head Block
	return withFigures(head(b), b.Figures)
}

// withFigures is one JSON object of two.
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

// RTT is round-trip time under load, microseconds, by probes of their own.
type RTT struct {
	P50    float64 `json:"p50"`    // median
	P99    float64 `json:"p99"`    // 99th percentile
	Probes int     `json:"probes"` // sent
	Lost   int     `json:"lost"`   // of them
}
