// Package capture measures what capturing frames costs a host, and which frames get lost: on a router, or on hosts
// behind a splitter that all see the same frames.
//
// # What is counted
//
// Packet sockets see a frame when it is handed to the link, the interface's counter when the link took it. A frame
// that finds the ring of the link's other end full goes back to the queue and is sent again: it is counted once,
// because packet sockets ignore the second time where the other end is in another namespace. Several programs
// count with their mean. A program has worked off what it has when all of its threads sleep and its socket's queue
// is empty, and when it says so itself where it can; one that waits for a CPU is awake, however little CPU time it
// gets.
//
// With frames set a window has that number, in at most 1 % more time than they are due in. Where programs wait
// most of the time for a second CPU that is also the generator's, higher loads of the block are left out. Hosts
// that capture together share the CPU of metered hosts: their losses are compared with each other, not with those
// of hosts that stand alone.
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

// Flags of a trial that stands.
const (
	// FlagDisagree: the frames that a program says it lost are not those which it did not take.
	FlagDisagree = "statistics-disagree"
	// FlagWaiting: the kernel had frames for a program that ended without them.
	FlagWaiting = "frames-waiting"
	// FlagShared: the second CPU of the programs was also the generator's.
	FlagShared = "cpu-shared"
	// FlagKilled: a program did not end when it was asked to.
	FlagKilled = "killed"
)

// Summarise computes the summary of a run that measured capturing: each cell's metrics over its accepted trials, nested
// in blocks, and remarks on flagged ones. It needs the run's records alone.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	trials := result.RecordsOf[Trial](run.Own)
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

// leftOut says once what blocks left out, and why: see block.stop.
func leftOut(run result.Run, rejected int) []string {
	least, in := map[result.Cell]float64{}, map[result.Cell]int{} // by setting: the lowest load, and the number of blocks
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
			in[setting]++
		}
	}
	if len(least) == 0 {
		return nil
	}
	var messages []string
	for _, setting := range slices.SortedFunc(maps.Keys(least), compareCells(run)) {
		messages = append(messages, fmt.Sprintf("%s, from %g Mbit/s on (%s)", Dimensions.Label(setting), least[setting],
			words.Counted(in[setting], "block")))
	}
	text := "Not measured, because the generator needs too much of the second CPU there: " + strings.Join(messages, "; ") +
		"."
	if rejected > 0 {
		text += " " + words.Counted(rejected, "rejected trial") + " of these loads count for nothing."
	}
	return []string{text + " Measure them where labs may use three CPUs."}
}

// compareCells orders the cells of a run for reading: frame size, parameters, device, load.
func compareCells(run result.Run) func(a, b result.Cell) int {
	by := make([]result.Dimension, len(parameters))
	for i, p := range parameters {
		by[i] = p.dimension
	}
	plain := func(c result.Cell) (n int) { // settings that ask for nothing come first
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
			cmp.Compare(plain(a), plain(b)),
			result.CompareCells(a, b, by...),
			result.CompareCells(a, b, result.DUT, result.OfferedMbps),
		)
	}
}

// trialsOf are the records with the figures that are not numbers of their own.
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

// lost are shares of the frames that passed: taken, lost by the programs' own word, waiting, and none of these; each
// the mean of the programs that say it.
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
