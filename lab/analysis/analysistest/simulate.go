// Package analysistest makes runs with known true values, for tests of packages that read results. The figures follow a
// small cost model with noise from a seeded generator, so the same Spec gives the same run.
package analysistest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Spec describes a simulated run. Every DUT is measured with every combination of
// profile, direction, clients and offered load.
type Spec struct {
	Seed       uint64
	Mode       string   // default result.ModeDuet
	Profiles   []string // default "per-packet"
	DUTs       []DUT
	Clients    []int
	Offered    []float64 // Mbit/s of payload
	Directions []string  // default "up"
	Blocks     int
	Windows    int // per block and cell
	AABlocks   int
	BlockSD    float64 // of the log ratio between blocks
	WindowSD   float64 // of the log ratio between windows of a block
	// MachineSD is the standard deviation of the log of both routers' CPU between windows. A duet cancels this noise.
	// Default 0.1.
	MachineSD float64
	// Clean is the clean router's true cost, the same in both profiles. Default 8 % of a core per Gbit/s.
	Clean Cost
	// PayloadBytes is the payload of a packet, by cell. Default 1448 everywhere.
	PayloadBytes func(result.Cell) float64
	Effects      Effects
	// RejectEvery rejects every n-th trial and repeats it. 0 rejects none, 1 rejects all without repeating them.
	RejectEvery int
}

// DUT is a simulated device under test.
type DUT struct {
	Name    string
	Ratio   float64 // true overhead ratio, where Cost is not given
	Cost    Cost    // true cost
	Process float64 // share of its CPU spent in processes
	MaxMbps float64 // most it delivers; 0 has no limit
	PSSMiB  float64
}

// Cost is a law of a router's CPU in % of one core: a constant, and additions for each Gbit/s of delivered payload,
// each client and each million packets a second.
type Cost struct {
	Constant, PerGbit, PerClient, PerMpps float64
	// BendGbit is the load above which each further Gbit/s costs BendFactor times PerGbit. 0: there is no bend.
	BendGbit, BendFactor float64
}

// CorePct returns the law's CPU, % of one core.
func (c Cost) CorePct(gbits float64, clients int, mpps float64) float64 {
	cpu := c.Constant + c.PerGbit*gbits + c.PerClient*float64(clients) + c.PerMpps*mpps
	if c.BendGbit > 0 && gbits > c.BendGbit {
		cpu += (c.BendFactor - 1) * c.PerGbit * (gbits - c.BendGbit)
	}
	return cpu
}

// Effects are disturbances that a good run does not have, in logarithms: 0.03 is about 3 %.
type Effects struct {
	RatioPerHour float64 // drift of the overhead ratio
	CleanPerHour float64 // drift of both routers' CPU
	Side         float64 // overhead ratio in lab a over that in lab b
	Later        float64 // overhead ratio in a load's later windows over its first
	LoadOrder    float64 // overhead ratio at a block's last load over its first
	// BlockPause is idle time at the beginning of each block, which makes the run longer.
	BlockPause time.Duration
	// RotateLoads begins every block with the next load; otherwise all blocks
	// go through the loads in the same order.
	RotateLoads bool
}

const (
	windowSeconds  = 2
	defaultPayload = 1448
	// packetsPerSegment is above 1 because acknowledgements count.
	packetsPerSegment = 1.05
)

type simulation struct {
	Spec
	rng   *rand.Rand
	run   result.Run
	clock time.Time
	count int
}

// Run simulates a run.
func Run(spec Spec) result.Run {
	spec = spec.withDefaults()
	s := &simulation{Spec: spec, rng: rand.New(rand.NewPCG(spec.Seed, 1)), clock: start}
	s.run.Environment = environment(spec.Mode)
	clean := DUT{Name: "clean", Ratio: 1}
	for _, profile := range spec.Profiles {
		for _, direction := range spec.Directions {
			for _, clients := range spec.Clients {
				cell := result.NewCell(result.Clients, clients, result.Direction, direction, result.Profile, profile)
				for block := range spec.AABlocks {
					s.block(clean, cell, block, true)
				}
				for block := range spec.Blocks {
					for _, d := range spec.DUTs {
						s.block(d, cell, block, false)
					}
				}
			}
		}
	}
	s.run.Environment.End = s.clock
	return s.run
}

func (s Spec) withDefaults() Spec {
	s.Mode, s.MachineSD, s.Clean = cmp.Or(s.Mode, result.ModeDuet), cmp.Or(s.MachineSD, 0.1),
		cmp.Or(s.Clean, Cost{PerGbit: 8})
	if len(s.Profiles) == 0 {
		s.Profiles = []string{"per-packet"}
	}
	if len(s.Directions) == 0 {
		s.Directions = []string{"up"}
	}
	if s.PayloadBytes == nil {
		s.PayloadBytes = func(result.Cell) float64 { return defaultPayload }
	}
	return s
}

// start is the start of every simulated run.
var start = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

func environment(mode string) result.Environment {
	return result.Environment{
		Version: result.Version, Experiment: "simulated", Mode: mode,
		Command: "gateweigh run simulated", Start: start,
		GateweighVersion: "0.1.0", GateweighSHA256: "5d41402abc4b2a76b9719d911017c592ae1f1c1d7f5f4c8c2d7b2d1e0c9a8b7f",
		Kernel: "6.18.0", Arch: "x86_64", CPUModel: "Example CPU at 2.40 GHz", CPUs: 2, MemoryMiB: 23552,
		Virtualisation: "kvm",
		Placement:      "routers and DUT processes on CPU 0, endpoints on CPU 1",
		Offloads: []string{
			"tso off, gso off, gro on, gro_max_size 1500, threaded NAPI", "gso_max_segs 8 on the senders' links"},
		Tools:   map[string]string{"iproute2": "6.1.0", "nftables": "1.0.6"},
		Sysctls: map[string]string{"net.ipv4.ip_forward": "1"},
	}
}

// block simulates the windows of one pair of labs, and its block record. The
// cell lacks device and load.
func (s *simulation) block(d DUT, cell result.Cell, block int, aa bool) {
	begin := s.clock
	s.clock = s.clock.Add(s.Effects.BlockPause)
	shift := s.rng.NormFloat64() * s.BlockSD
	lab := string("ab"[block%2])
	if lab == "a" {
		shift += s.Effects.Side
	}
	cell = cell.With(result.DUT, d.Name)
	for place := range s.Offered {
		index := place
		if s.Effects.RotateLoads {
			index = (place + block) % len(s.Offered)
		}
		cell = cell.With(result.OfferedMbps, s.Offered[index])
		order := s.Effects.LoadOrder * float64(place) / float64(max(len(s.Offered)-1, 1))
		for window := range s.Windows {
			t := result.Trial{
				Version: result.Version, Kind: result.KindTrial, Cell: cell, AA: aa,
				Block: block, Window: window, DUTLab: lab, Accepted: true,
			}
			s.trial(t, d, shift+order)
		}
	}
	clients := cell.Int(result.Clients)
	ended := result.Block{
		Version: result.Version, Kind: result.KindBlock, DUT: d.Name, AA: aa, Clients: clients,
		Direction: cell.Text(result.Direction),
		Profile:   cell.Text(result.Profile), Block: block, DUTLab: lab, Start: begin, Seconds: s.clock.Sub(begin).Seconds(),
		SetupSeconds: 1.5 + 0.1*s.rng.Float64(),
	}
	stay := &cost.Stay{LeaseSeconds: 0.03 * float64(clients), LoginSeconds: 0.02 * float64(clients)}
	ended.Figures = stay
	for range clients {
		stay.LoginMs = append(stay.LoginMs, 18+4*s.rng.Float64())
	}
	if d.PSSMiB > 0 {
		stay.DaemonCore = 0.0036
	}
	s.run.Blocks = append(s.run.Blocks, ended)
}

// trial appends a trial. A rejected trial is followed by its repetition.
func (s *simulation) trial(t result.Trial, d DUT, shift float64) {
	s.count++
	for attempt := range 2 {
		t.Attempt, t.Accepted, t.Rejects, t.Figures = attempt, true, nil, &cost.Sides{}
		t.Start = s.clock
		s.clock = s.clock.Add(windowSeconds * time.Second)
		s.measure(&t, d, shift)
		if attempt == 0 && s.RejectEvery > 0 && s.count%s.RejectEvery == 0 {
			t.Accepted = false
			t.Rejects = []string{fmt.Sprintf("generator at %d %% of a core, limit 80 %%", 81+s.count%9)}
			cost.SidesOf(t).DUT.GeneratorCPU = 0.85
		}
		s.run.Trials = append(s.run.Trials, t)
		if t.Accepted || s.RejectEvery == 1 {
			return
		}
	}
}

// measure fills both sides. The machine's noise is common to both and cancels
// in the ratio; the block's shift and the window's noise do not.
func (s *simulation) measure(t *result.Trial, d DUT, shift float64) {
	offered, hours := t.Cell.Number(result.OfferedMbps), t.Start.Sub(start).Hours()
	common := math.Exp(s.MachineSD*s.rng.NormFloat64() + s.Effects.CleanPerHour*hours)
	noise := math.Exp(shift + s.Effects.RatioPerHour*hours + s.WindowSD*s.rng.NormFloat64())
	if t.Window > 0 {
		noise *= math.Exp(s.Effects.Later)
	}
	t.Flags = nil
	delivered := offered
	if d.MaxMbps > 0 && d.MaxMbps < offered {
		delivered = d.MaxMbps
		t.Flags = []string{result.FlagSaturated}
	}
	sides := cost.SidesOf(*t)
	sides.Clean = s.measurement(t.Cell, offered, s.Clean, common, 0)
	if d.Cost == (Cost{}) {
		d.Cost, common = s.Clean, common*d.Ratio
	}
	sides.DUT = s.measurement(t.Cell, delivered, d.Cost, common*noise, d.Process)
	sides.DUT.PSSMiB = d.PSSMiB
	for _, m := range []*cost.Measurement{&sides.Clean, &sides.DUT} {
		p50 := 120 + 0.3*float64(t.Cell.Int(result.Clients)) + 10*s.rng.Float64()
		m.RTT = result.RTT{P50: p50, P99: 6 * p50, Probes: 200}
	}
	sides.DUT.Drops = int64((offered - delivered) / 20)
	sides.DUT.RetransmitRatio = 0.02 * (offered - delivered) / offered
}

// measurement returns a window of a router that delivers a load at its cost, multiplied by a factor.
func (s *simulation) measurement(
	cell result.Cell, delivered float64, takes Cost, factor, process float64) cost.Measurement {
	packets := packetsPerSegment * delivered * 1e6 * windowSeconds / 8 / s.PayloadBytes(cell)
	ns := factor * takes.CorePct(delivered/1000, cell.Int(result.Clients), packets/windowSeconds/1e6) * 1e7 * windowSeconds
	up, down := packets/packetsPerSegment, packets-packets/packetsPerSegment
	if cell.Text(result.Direction) == result.Down {
		up, down = down, up
	}
	return cost.Measurement{
		Seconds: windowSeconds, NAPINs: int64(ns * (1 - process)), ProcessNs: int64(ns * process), WaitNs: int64(ns / 50),
		LinkMbps: delivered * 1.046, DeliveredMbps: delivered, OfferedMbps: cell.Number(result.OfferedMbps),
		Packets:   int64(packets),
		PacketsUp: int64(up), PacketsDown: int64(down),
		AggregationFactor: 1, SegmentsPerBurst: 8, PacketsPerWakeup: 12,
		GeneratorCPU: 0.1 + cell.Number(result.OfferedMbps)/4000,
		Machine:      result.Machine{Usr: 5, Sys: 12, Soft: 8, Idle: 75}, MeterNs: 900_000,
		RoleNs:   map[string]int64{"router": int64(ns)},
		ThreadNs: map[string]int64{"napi/lan": int64(ns * (1 - process)), "daemon": int64(ns * process)},
	}
}

// Changed returns a trial with changed figures. The figures of the original trial stay as they are.
func Changed(t result.Trial, change func(*cost.Sides)) result.Trial {
	sides := *cost.SidesOf(t)
	change(&sides)
	t.Figures = &sides
	return t
}

// Write writes the folder of a simulated run, and makes it if it is missing. It does not flush each record as a real
// run does, so that large runs are quick.
func Write(dir string, run result.Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := result.WriteEnvironment(dir, run.Environment); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, result.TrialsFile))
	if err != nil {
		return err
	}
	defer file.Close()
	encoder := json.NewEncoder(file)
	records := slices.Concat(anyOf(run.Trials), anyOf(run.Blocks))
	for _, l := range run.MeasureRecords {
		records = append(records, l.Record)
	}
	for _, r := range records {
		if err := encoder.Encode(r); err != nil {
			return err
		}
	}
	return file.Close()
}

func anyOf[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}
