// Package capture measures what capturing frames costs a host, and which frames get lost: on a router, or on hosts
// behind a splitter that all see the same frames.
//
// # What is counted
//
// A packet socket sees a frame when the frame is handed to the link. The interface counts it when the link took it. If
// the ring at the link's other end is full, the frame goes back to the queue and is sent again. It is counted once:
// packet sockets ignore the second time if the other end is in another namespace.
//
// Several programs on a host count with their mean. A program has handled all its frames when all of its threads sleep
// and its socket's queue is empty. A program that can report this itself must also have done so. A program that waits
// for a CPU is awake, however little CPU time it gets.
//
// If the key frames is set, a window sends that number of frames, within the time in which they are due plus 1 % and
// 20 ms. If programs wait too long for a second CPU that is also the generator's, the block leaves out higher loads.
// Hosts that capture together share the CPU of metered hosts. Compare their losses with each other, not with those of
// hosts that capture alone.
package capture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Flags of an accepted trial.
const (
	// FlagDisagree: the number of frames that a program reports as lost differs from the number that it did not take.
	FlagDisagree = "statistics-disagree"
	// FlagWaiting: the kernel had frames for a program that ended without them.
	FlagWaiting = "frames-waiting"
	// FlagShared: the second CPU of the programs was also the generator's.
	FlagShared = "cpu-shared"
	// FlagKilled: a program did not end when it was asked to.
	FlagKilled = "killed"
)

// Summarise computes the summary of a run that measured capturing: the metrics of each cell over its accepted trials,
// nested in blocks, and remarks on flagged cells. It reads nothing but the run's records.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	trials := result.RecordsOf[Trial](run.MeasureRecords)
	in := analysis.Input{
		Run: run, Measure: Name, Dimensions: Dimensions, Noun: "trial", Metrics: Metrics, Trials: trialsOf(trials),
		Load:    []result.Dimension{result.OfferedMbps},
		Compare: compareCells(run),
		Warn: func(s analysis.Summary) []string {
			return slices.Concat(
				leftOut(run, s.Trials.LeftOut),
				s.Remark("What a program says it lost is not what it did not take",
					func(c analysis.Cell) bool { return c.Flagged(FlagDisagree) }),
				s.Remark("Frames waited for a program when it was ended, which it neither took nor lost",
					func(c analysis.Cell) bool { return c.Flagged(FlagWaiting) }),
				s.Remark("A program had to be killed", func(c analysis.Cell) bool { return c.Flagged(FlagKilled) }))
		},
	}
	return analysis.Summarise(in, opts)
}

// leftOut returns one message about all loads that blocks left out (see block.stop); nil if they left out none.
// rejected is the number of rejected trials at these loads.
func leftOut(run result.Run, rejected int) []string {
	// By setting: the lowest load that was left out, Mbit/s, and the number of blocks that left it out.
	least, blocks := map[result.Cell]float64{}, map[result.Cell]int{}
	for _, b := range run.Blocks {
		lowest := map[result.Cell]float64{}
		for _, c := range b.LeftOut {
			setting, load := c.Without(result.OfferedMbps), c.Number(result.OfferedMbps)
			if known, found := lowest[setting]; !found || load < known {
				lowest[setting] = load
			}
		}
		for setting, load := range lowest {
			if known, found := least[setting]; !found || load < known {
				least[setting] = load
			}
			blocks[setting]++
		}
	}
	if len(least) == 0 {
		return nil
	}
	var messages []string
	for _, setting := range slices.SortedFunc(maps.Keys(least), compareCells(run)) {
		messages = append(messages, fmt.Sprintf("%s, from %g Mbit/s on (%s)", Dimensions.Label(setting), least[setting],
			words.Counted(blocks[setting], "block")))
	}
	text := "Not measured, because the generator needs too much of the second CPU there: " + strings.Join(messages, "; ") +
		"."
	if rejected > 0 {
		text += " " + words.Counted(rejected, "rejected trial") + " of these loads count for nothing."
	}
	return []string{text + " Measure them where labs may use three CPUs."}
}

// compareCells returns the order of a run's cells: by frame size, IP protocol, number of active parameters, parameters,
// device, load.
func compareCells(run result.Run) func(a, b result.Cell) int {
	by := make([]result.Dimension, len(parameters))
	for i, p := range parameters {
		by[i] = p.dimension
	}
	active := func(c result.Cell) (n int) { // cells with neither filter nor work come first
		for _, d := range []result.Dimension{Filter, Work} {
			if text := c.Text(d); text != "" && text != dut.WorkNone && text != withoutFilter {
				n++
			}
		}
		return n
	}
	return func(a, b result.Cell) int {
		return cmp.Or(
			analysis.CompareSizes(run, a, b),
			result.CompareCells(a, b, result.Family),
			cmp.Compare(active(a), active(b)),
			result.CompareCells(a, b, by...),
			result.CompareCells(a, b, result.DUT, result.OfferedMbps),
		)
	}
}

// trialsOf returns the records as trials, with the figures and flags that are computed from a record's counts.
func trialsOf(trials []*Trial) []analysis.Trial {
	out := make([]analysis.Trial, 0, len(trials))
	for _, t := range trials {
		a := analysis.TrialOf(t.Head, t.Cell, t.Window, t)
		for name, value := range t.lost() {
			a.Device[name] = value
		}
		a.Device["arrived"] = float64(t.arrived())
		if t.disagrees() {
			a.Flags = append(a.Flags, FlagDisagree)
		}
		if t.tooManyWaiting() {
			a.Flags = append(a.Flags, FlagWaiting)
		}
		if t.SharedCPU {
			a.Flags = append(a.Flags, FlagShared)
		}
		if t.killed() {
			a.Flags = append(a.Flags, FlagKilled)
		}
		out = append(out, a)
	}
	return out
}

// lost returns the shares of the passed frames that programs captured, reported as dropped, left waiting, and left
// unexplained. Each share is the mean of the programs that report the number.
func (t Trial) lost() result.Values {
	out, known := result.Values{}, map[string]float64{}
	add := func(name string, n int64) {
		out[name] += t.share(n)
		known[name]++
	}
	for _, p := range t.Programs {
		if p.Frames < 0 {
			continue
		}
		add("captured", p.Frames)
		if p.Dropped >= 0 {
			add("dropped", p.Dropped)
			add("waiting", p.Waiting)
			add("unexplained", t.unexplained(p))
		}
	}
	for name, n := range known {
		out[name] /= n
	}
	return out
}
