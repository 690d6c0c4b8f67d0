package analysistest

import (
	"math/rand/v2"
	"time"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// Sniffer is a simulated capture program.
type Sniffer struct {
	Name    string
	FrameUs float64                          // true CPU time for each frame that it takes, µs; 0: it takes none
	Less    []result.Dimension               // dimensions that cells of this program lack
	Factor  func(figure result.Cell) float64 // factor on FrameUs by cell; nil: 1
}

// Captures describes a simulated run that measured capturing: all sniffers in all settings at all loads.
type Captures struct {
	Seed       uint64
	Experiment string
	Sniffers   []Sniffer
	Settings   []result.Cell // without device and load
	Offered    []float64     // Mbit/s
	Blocks     int
	ReceiveUs  float64 // CPU time of the kernel for each frame, before any program takes it, µs
	Share      float64 // share of one CPU that the host has
	Sink       bool    // true: frames are forwarded, and counted where they arrive
}

// Run simulates the run. A host receives frames before its programs take any, so programs lose frames first when the
// CPU is not enough. The default buffers (0 KiB) hold two thirds of the frames that arrive while the programs wait.
func (s Captures) Run() result.Run {
	run := result.Run{Environment: environment(result.ModeSolo)}
	run.Environment.Measure, run.Environment.Experiment = capture.Name, s.Experiment
	if s.Share < 1 {
		run.Environment.RouterSpeed = s.Share
	}
	rng := rand.New(rand.NewPCG(s.Seed, 1))
	instant := start
	for block := range s.Blocks {
		for _, d := range s.Sniffers {
			done := map[result.Cell]bool{}
			for _, setting := range s.Settings {
				cell := setting.Without(d.Less...).With(result.DUT, d.Name)
				for _, mbps := range s.Offered {
					t := s.trial(rng, d, cell.With(result.OfferedMbps, mbps))
					if done[t.Cell] {
						continue
					}
					done[t.Cell], t.Block, t.Start, t.Seconds = true, block, instant, 3
					instant = instant.Add(3 * time.Second)
					run.MeasureRecords = append(run.MeasureRecords, result.Entry{Head: t.Head, Cell: t.Cell, Record: t})
				}
			}
		}
	}
	return run
}

func (s Captures) trial(rng *rand.Rand, d Sniffer, cell result.Cell) *capture.Trial {
	const seconds = 2
	sizes, err := frames.Named(cell.Text(result.FrameSize))
	if err != nil {
		panic(err)
	}
	noise := 1 + 0.01*rng.NormFloat64()
	perSecond := cell.Number(result.OfferedMbps) * 1e6 / 8 / sizes.MeanBytes()
	// receive is the number of CPUs that receiving all frames takes; take is a program's CPU time for a frame, s.
	receive, take := s.ReceiveUs*noise*perSecond/1e6, d.FrameUs*noise/1e6
	if d.Factor != nil {
		take *= d.Factor(cell)
	}
	passed := min(1, s.Share/receive)
	napi := receive * passed
	left := s.Share - napi
	if cell.Int(capture.CPUs) == 2 {
		left++
	}
	useful := left
	if cell.HasDimension(capture.BufferKiB) && cell.Number(capture.BufferKiB) == 0 {
		useful *= 2.0 / 3
	}
	n := int64(perSecond * seconds)
	t := &capture.Trial{
		Head: result.Head{Version: result.Version, Kind: capture.KindCapture, Accepted: true}, Cell: cell, Host: "router",
		SetupSeconds: 1, SendSeconds: seconds, LoadSeconds: seconds,
		Intended: n, Offered: n, Passed: int64(float64(n) * passed), NAPINs: int64(napi * seconds * 1e9),
		CPUs: s.Share + float64(max(0, cell.Int(capture.CPUs)-1)),
	}
	if s.Share < 1 {
		t.RouterShare = s.Share
	}
	if s.Sink {
		t.Forwarded = &t.Passed
	}
	if d.FrameUs > 0 {
		taken := min(t.Passed, int64(useful*seconds/take))
		t.Programs = []dut.Captured{{Program: d.Name, Frames: taken, Dropped: t.Passed - taken}}
		t.ProcessNs = int64(float64(taken) * take * 1e9)
	}
	t.SettledNs = t.NAPINs + t.ProcessNs
	return t
}
