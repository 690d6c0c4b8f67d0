package analysis

import (
	"maps"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// CellCourse is the course of a cell: what happened within its windows, by steps of time since a window's beginning.
type CellCourse struct {
	Cell          result.Cell
	StepMs        float64
	Device, Clean SideCourse
}

// SideCourse is the course of the device or of the clean router. Each list has one value for each step, computed from
// the blocks whose windows have this step.
type SideCourse struct {
	LinkMbps, CorePct, RTTUs []Spread
}

// Spread is the median over blocks with the quartiles around it. All are absent without blocks.
type Spread struct {
	Median, Lo, Hi Number
	Blocks         int
}

// mostCourseBlocks is the largest number of blocks of a cell whose courses are used. Of more blocks, every n-th is
// used.
const mostCourseBlocks = 200

// Courses summarises the courses of a run folder by cell, in the order of measuring, without A/A pairs. It uses the
// trials for which counted is true. A block's value is the mean over its windows. In an interleaved run all devices
// have the same clean router, averaged over all rounds.
func Courses(run result.Run, counted map[result.TrialKey]bool) ([]CellCourse, error) {
	last := 0
	for _, t := range run.Trials {
		last = max(last, t.Block)
	}
	every := 1 + last/mostCourseBlocks
	stepMs, cells, blocks := 0.0, []result.Cell(nil), map[result.Cell]map[courseBlock]*courseSums{}
	err := result.EachCourse(run.Dir, func(c result.Course) {
		if c.AA || c.Block%every != 0 || !counted[c.Key()] {
			return
		}
		if blocks[c.Cell] == nil {
			cells, blocks[c.Cell] = append(cells, c.Cell), map[courseBlock]*courseSums{}
		}
		key := courseBlock{c.Block, c.Node}
		if blocks[c.Cell][key] == nil {
			blocks[c.Cell][key] = &courseSums{}
		}
		blocks[c.Cell][key].add(c)
		stepMs = c.StepMs
	})
	list := func(cell result.Cell, side int) (s SideCourse) {
		all := slices.Collect(maps.Values(blocks[cell]))
		s.LinkMbps, s.CorePct, s.RTTUs = spreads(all, side, 0), spreads(all, side, 1), spreads(all, side, 2)
		return s
	}
	var out []CellCourse
	for _, cell := range cells {
		alone := run.Environment.Mode == result.ModeInterleaved
		if alone && cell.Text(result.DUT) == Clean {
			continue // of a clean router; added to the devices below
		}
		c := CellCourse{Cell: cell, StepMs: stepMs, Device: list(cell, 0), Clean: list(cell, 1)}
		if alone {
			c.Clean = list(cell.With(result.DUT, Clean), 0)
		}
		out = append(out, c)
	}
	return out, err
}

// courseBlock names a block of a cell.
type courseBlock struct {
	block int
	node  string
}

// courseSums are sums over the windows of a block. The first index is the side (0: device, 1: clean router), the second
// the figure (0: link, 1: CPU, 2: round-trip time), the third the step.
type courseSums [2][3][]courseSum

type courseSum struct {
	sum float32
	n   int32
}

func (b *courseSums) add(c result.Course) {
	for i, side := range []result.SideCourse{c.Device, c.Clean} {
		for j, values := range [][]float64{side.LinkMbps, side.CorePct, side.RTTUs} {
			if more := len(values) - len(b[i][j]); more > 0 {
				b[i][j] = append(b[i][j], make([]courseSum, more)...)
			}
			for step, v := range values {
				if j == 2 && v == 0 { // no probe came back
					continue
				}
				b[i][j][step].sum += float32(v)
				b[i][j][step].n++
			}
		}
	}
}

// spreads has the spread over blocks of one figure of one side.
func spreads(blocks []*courseSums, side, figure int) (out []Spread) {
	steps := 0
	for _, b := range blocks {
		steps = max(steps, len(b[side][figure]))
	}
	for step := range steps {
		var values []float64
		for _, b := range blocks {
			if sums := b[side][figure]; step < len(sums) && sums[step].n > 0 {
				values = append(values, float64(sums[step].sum)/float64(sums[step].n))
			}
		}
		slices.Sort(values)
		quantile := func(p float64) Number { return Number(result.Quantile(values, p)) }
		out = append(out, Spread{quantile(0.5), quantile(0.25), quantile(0.75), len(values)})
	}
	return out
}
