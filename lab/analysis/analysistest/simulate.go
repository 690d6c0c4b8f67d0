// Package analysistest makes runs with known truth, for tests of what reads
// results. Nothing is measured: the figures follow a small cost model with
// noise from a seeded generator, so the same Spec gives the same run.
package analysistest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Spec describes a simulated run. Every DUT is swept over every combination of
// clients, offered load and direction.
type Spec struct {
	Seed       uint64
	Mode       string // default result.ModeDuet
	Profile    string // default "per-packet"
	DUTs       []DUT
	Clients    []int
	Offered    []float64 // Mbit/s of payload
	Directions []string  // default "up"
	Blocks     int
	Windows    int // per block and cell
	AABlocks   int
	BlockSD    float64 // of the log ratio between blocks
	WindowSD   float64 // of the log ratio between windows of a block
	// RejectEvery rejects every n-th trial and redoes it; 0 rejects none, 1 all (without redoing).
	RejectEvery int
}

// DUT is a simulated device under test.
type DUT struct {
	Name    string
	Ratio   float64 // true overhead ratio
	Process float64 // share of its CPU spent in processes
	MaxMbps float64 // most it delivers; 0 has no limit
	PSSMiB  float64
}

const (
	windowSeconds = 2
	// nsPerBitClean is the clean router's true cost: 8 % of a core at 1 Gbit/s.
	nsPerBitClean = 0.08
	bitsPerPacket = 1448 * 8
)

type simulation struct {
	Spec
	rng   *rand.Rand
	run   result.Run
	clock time.Time
	count int
}

// Run simulates.
func Run(spec Spec) result.Run {
	if spec.Mode == "" {
		spec.Mode = result.ModeDuet
	}
	if spec.Profile == "" {
		spec.Profile = "per-packet"
	}
	if len(spec.Directions) == 0 {
		spec.Directions = []string{"up"}
	}
	s := &simulation{Spec: spec, rng: rand.New(rand.NewPCG(spec.Seed, 1)), clock: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	s.run.Environment = environment(spec.Mode)
	clean := DUT{Name: "clean", Ratio: 1}
	for _, direction := range spec.Directions {
		for _, clients := range spec.Clients {
			for block := range spec.AABlocks {
				s.block(clean, clients, direction, block, true)
			}
			for block := range spec.Blocks {
				for _, d := range spec.DUTs {
					s.block(d, clients, direction, block, false)
				}
			}
		}
	}
	s.run.Environment.End = s.clock
	return s.run
}

func environment(mode string) result.Environment {
	return result.Environment{
		Version: result.Version, Experiment: "simulated", Mode: mode,
		Command: "gateweigh run simulated", Start: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC),
		GateweighVersion: "0.1.0", GateweighSHA256: "5d41402abc4b2a76b9719d911017c592ae1f1c1d7f5f4c8c2d7b2d1e0c9a8b7f",
		Kernel: "6.18.0", Arch: "x86_64", CPUModel: "Example CPU at 2.40 GHz", CPUs: 2, MemoryMiB: 23552, Virtualisation: "kvm",
		Placement: "routers and DUT processes on CPU 0, endpoints on CPU 1",
		Offloads:  []string{"tso off, gso off, gro on, gro_max_size 1500, threaded NAPI", "gso_max_segs 8 on the senders' links"},
		Tools:     map[string]string{"iproute2": "6.1.0", "nftables": "1.0.6"},
		Sysctls:   map[string]string{"net.ipv4.ip_forward": "1"},
	}
}

// block simulates the windows of one pair of labs, and its block record.
func (s *simulation) block(d DUT, clients int, direction string, block int, aa bool) {
	shift := s.rng.NormFloat64() * s.BlockSD
	lab := string("ab"[block%2])
	begin := s.clock
	for _, offered := range s.Offered {
		cell := result.Cell{DUT: d.Name, Clients: clients, OfferedMbps: offered, Direction: direction, Profile: s.Profile}
		for window := range s.Windows {
			t := result.Trial{
				Version: result.Version, Kind: result.KindTrial, Cell: cell, AA: aa,
				Block: block, Window: window, DUTLab: lab, Accepted: true,
			}
			s.trial(t, d, shift)
		}
	}
	ended := result.Block{
		Version: result.Version, Kind: result.KindBlock, DUT: d.Name, AA: aa, Clients: clients, Direction: direction,
		Profile: s.Profile, Block: block, DUTLab: lab, Start: begin, Seconds: s.clock.Sub(begin).Seconds(),
		SetupSeconds: 1.5 + 0.1*s.rng.Float64(), LeaseSeconds: 0.03 * float64(clients), LoginSeconds: 0.02 * float64(clients),
	}
	for range clients {
		ended.LoginMs = append(ended.LoginMs, 18+4*s.rng.Float64())
	}
	if d.PSSMiB > 0 {
		ended.DaemonCore = 0.0036
	}
	s.run.Blocks = append(s.run.Blocks, ended)
}

// trial appends a trial, and its repetition when it is rejected.
func (s *simulation) trial(t result.Trial, d DUT, shift float64) {
	s.count++
	for attempt := range 2 {
		t.Attempt, t.Accepted, t.Rejects = attempt, true, nil
		t.Start = s.clock
		s.clock = s.clock.Add(windowSeconds * time.Second)
		s.measure(&t, d, shift)
		if attempt == 0 && s.RejectEvery > 0 && s.count%s.RejectEvery == 0 {
			t.Accepted = false
			t.Rejects = []string{fmt.Sprintf("generator at %d %% of a core, limit 80 %%", 81+s.count%9)}
			t.DUT.GeneratorCPU = 0.85
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
	offered := t.Cell.OfferedMbps
	common := math.Exp(0.1 * s.rng.NormFloat64())
	ratio := d.Ratio * math.Exp(shift+s.WindowSD*s.rng.NormFloat64())
	t.Flags = nil
	delivered := offered
	if d.MaxMbps > 0 && d.MaxMbps < offered {
		delivered = d.MaxMbps
		t.Flags = []string{result.FlagSaturated}
	}
	t.Clean = measurement(offered, offered, common*nsPerBitClean, 0)
	t.DUT = measurement(offered, delivered, common*nsPerBitClean*ratio, d.Process)
	t.DUT.PSSMiB = d.PSSMiB
	for _, m := range []*result.Measurement{&t.Clean, &t.DUT} {
		p50 := 120 + 0.3*float64(t.Cell.Clients) + 10*s.rng.Float64()
		m.RTT = result.RTT{P50: p50, P99: 6 * p50, Probes: 200}
	}
	t.DUT.Drops = int64((offered - delivered) / 20)
	t.DUT.RetransmitRatio = 0.02 * (offered - delivered) / offered
}

func measurement(offered, delivered, nsPerBit, process float64) result.Measurement {
	ns := nsPerBit * delivered * 1e6 * windowSeconds
	return result.Measurement{
		Seconds: windowSeconds, NAPINs: int64(ns * (1 - process)), ProcessNs: int64(ns * process), WaitNs: int64(ns / 50),
		LinkMbps: delivered * 1.046, DeliveredMbps: delivered, OfferedMbps: offered,
		Packets:           int64(1.05 * delivered * 1e6 * windowSeconds / bitsPerPacket),
		AggregationFactor: 1, SegmentsPerBurst: 8, PacketsPerWakeup: 12, GeneratorCPU: 0.1 + offered/4000,
		Machine: result.Machine{Usr: 5, Sys: 12, Soft: 8, Idle: 75}, MeterNs: 900_000,
		RoleNs:   map[string]int64{"router": int64(ns)},
		ThreadNs: map[string]int64{"napi/lan": int64(ns * (1 - process)), "daemon": int64(ns * process)},
	}
}

// Write makes a run folder of a simulated run. It does not flush each record as
// a real run does, so large runs are quick.
func Write(dir string, run result.Run) error {
	if err := result.WriteEnvironment(dir, run.Environment); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, result.TrialsFile))
	if err != nil {
		return err
	}
	defer file.Close()
	encoder := json.NewEncoder(file)
	for _, t := range run.Trials {
		if err := encoder.Encode(t); err != nil {
			return err
		}
	}
	for _, b := range run.Blocks {
		if err := encoder.Encode(b); err != nil {
			return err
		}
	}
	return file.Close()
}
