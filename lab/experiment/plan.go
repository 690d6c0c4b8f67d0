package experiment

import (
	"cmp"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Block is one building of the labs: the cells are measured one after the other, and everything is
// torn down. Windows within a block agree with each other more than with those of another block, so
// intervals are taken over blocks and a block is the unit of the plan.
type Block struct {
	Cell   result.Cell   // the dimensions that are fixed in it; the device is Clean in A/A blocks
	AA     bool          // both sides are the clean router
	Index  int           // counts from 0 within its group
	DUTLab string        // "a" or "b", taking turns within the group; "a" where the device is alone
	Cells  []result.Cell // every cell of the group once, in the order to measure

	// Of interleaved rounds. Index is the round.
	Against result.Cell // of the block with the clean router that this one is compared with
	Control bool        // the clean router that devices of the round are compared with
	Like    string      // a device whose links the clean router has; empty: the usual ones
	For     []string    // the devices that are compared with it, of a clean router that serves nothing else
}

// DUT is the block's device.
func (b Block) DUT() string { return b.Cell.Text(result.DUT) }

// Clients is how many the device's lab has.
func (b Block) Clients() int { return b.Cell.Int(result.Clients) }

// Group is a device at one setting with all its blocks.
type Group struct {
	Setting
	AA     bool
	Clean  bool // its labs have a clean router, of interleaved rounds
	Blocks int
}

// Plan lists the blocks in the order to measure. Groups advance side by side,
// and A/A blocks lie evenly among them, so that a machine that grows slower
// during the run does so for all alike. The order is the same every time.
func (e *Experiment) Plan() []Block {
	if e.Interleaved() {
		return e.interleaved()
	}
	type slot struct {
		at   float64 // share of its group's blocks that lie before the middle of this one
		turn int     // which group comes first rotates, round after round
		Block
	}
	var slots []slot
	for _, groups := range [][]Group{e.groups(false), e.groups(true)} {
		for n, g := range groups {
			part := 1.0
			if g.AA {
				part = float64(e.spanAA(e.Blocks)) / float64(e.Blocks)
			}
			for i := range g.Blocks {
				slots = append(slots, slot{
					at:    part * (float64(i) + 0.5) / float64(g.Blocks),
					turn:  (n + i) % len(groups),
					Block: e.block(g, i, n),
				})
			}
		}
	}
	slices.SortStableFunc(slots, func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.turn, b.turn))
	})
	blocks := make([]Block, len(slots))
	for i, s := range slots {
		blocks[i] = s.Block
	}
	return blocks
}

// Shares lists the parts of the plan that a campaign hands out one by one, by the places of their blocks in the plan.
// Blocks whose figures are compared with each other stay together, so that every ratio is within a machine: a block
// that holds both sides is a share by itself; where devices stand alone or take turns, it has a round of all of them.
func (e *Experiment) Shares() (shares [][]int) {
	type turn struct {
		setting result.Cell
		index   int
	}
	apart, place := e.measure().Alone || e.Interleaved(), map[turn]int{}
	for i, b := range e.Plan() {
		r := turn{b.Cell.Without(result.DUT, result.LinkSettings), b.Index}
		if n, begun := place[r]; begun && apart {
			shares[n] = append(shares[n], i)
			continue
		}
		place[r] = len(shares)
		shares = append(shares, []int{i})
	}
	return shares
}

// MostAttempts bounds the attempts at one window: those that Redo promises, and as many again twice while the run is
// not much longer than planned.
func (e *Experiment) MostAttempts() int {
	if e.Redo == 0 {
		return 1
	}
	return 3 * (e.Redo + 1)
}

func (e *Experiment) settings() []Setting {
	if m := e.measure(); m.Settings != nil {
		return m.Settings(e)
	}
	return nil
}

// groups lists the groups of the plan: those that have a device, or the A/A groups. The noise floor
// depends on the setting, so each setting has an A/A group of its own.
func (e *Experiment) groups(aa bool) (list []Group) {
	duts, blocks := e.DUTs, e.Blocks
	if aa {
		duts, blocks = []string{Clean}, e.AABlocks
	}
	m, seen := e.measure(), map[result.Cell]bool{}
	for _, s := range e.settings() {
		var all []Setting // of one block
		for _, dut := range duts {
			clean := dut == Clean
			if m.Alone && !aa && (!clean || m.Clean) || !m.Alone && aa == clean {
				if one, fits := m.reduce(e, dut, s); fits && !seen[one.Cell] {
					seen[one.Cell], all = true, append(all, one)
				}
			}
		}
		if m.together(e) && len(all) > 0 {
			all = []Setting{joined(all)}
		}
		for _, one := range all {
			list = append(list, Group{Setting: one, AA: aa, Blocks: blocks})
		}
	}
	return list
}

// allGroups lists the groups of the plan.
func (e *Experiment) allGroups() []Group {
	if e.Interleaved() {
		return e.interleavedGroups()
	}
	return slices.Concat(e.groups(false), e.groups(true))
}

// joined is a setting that measures what several do, load by load.
func joined(all []Setting) Setting {
	one := Setting{Cell: all[0].Cell}
	for i := range all[0].Cells {
		for _, s := range all {
			one.Cells = append(one.Cells, s.Cells[i])
		}
	}
	return one
}

// of is the setting with a device.
func (s Setting) of(dut string) Setting {
	with := Setting{Cell: s.Cell.With(result.DUT, dut)}
	for _, c := range s.Cells {
		with.Cells = append(with.Cells, c.With(result.DUT, dut))
	}
	return with
}

// block fills in block i of group n. Odd groups start in the other lab, so that
// the labs are also balanced between devices within a round.
func (e *Experiment) block(g Group, i, n int) Block {
	b := Block{Cell: g.Cell, AA: g.AA, Index: i, DUTLab: [2]string{"a", "b"}[(i+n)%2]}
	if e.measure().Alone {
		b.DUTLab = "a"
	}
	for _, place := range balancedOrder(len(g.Cells), i) {
		b.Cells = append(b.Cells, g.Cells[place])
	}
	return b
}

// Loads are the loads that this number of clients offers together, Mbit/s, each load once.
func (e *Experiment) Loads(clients int) []float64 {
	list := slices.Clone(e.OfferedMbps)
	for _, share := range e.MbpsPerClient {
		if mbps := share * float64(clients); !slices.Contains(list, mbps) {
			list = append(list, mbps)
		}
	}
	return list
}

// mostClients is the largest number of clients, 0 while there is none.
func (e *Experiment) mostClients() int { return slices.Max(append([]int{0}, e.Clients...)) }

// balancedOrder is row i of a Williams design for n treatments (E. J. Williams,
// 1949): over n rows each treatment stands once in each place, and over n rows
// (2n when n is odd) each follows each other one equally often. So neither the
// time within a block nor the load measured before is confounded with the load.
func balancedOrder(n, i int) []int {
	order := make([]int, n)
	for place := range order {
		// 0, 1, n-1, 2, n-2, … shifted by the row.
		step := (place + 1) / 2
		if place%2 == 0 {
			step = n - step
		}
		order[place] = (step + i) % n
	}
	if n%2 == 1 && i/n%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// Possible is the experiment with those of its devices that can says yes to: what
// is left of plan and duration on a machine that lacks the others.
func (e *Experiment) Possible(can func(dut string) bool) *Experiment {
	possible := *e
	possible.DUTs = slices.DeleteFunc(slices.Clone(e.DUTs), func(dut string) bool { return !can(dut) })
	return &possible
}

// EstimatedDuration is how long the plan takes with average devices on a
// machine about as quick as the one the measures' figures are from. Real runs
// came within a sixth of it.
func (e *Experiment) EstimatedDuration() (total time.Duration) {
	for _, g := range e.allGroups() {
		total += e.measure().Duration(e, g)
	}
	return e.bounded(total).Round(time.Second)
}

// bounded is a time within AtMost.
func (e *Experiment) bounded(d time.Duration) time.Duration {
	if e.AtMost > 0 {
		return min(d, e.AtMost)
	}
	return d
}

// DurationBounds are the least and the most that the plan takes; both are EstimatedDuration where what is measured
// makes no difference.
func (e *Experiment) DurationBounds() (least, most time.Duration) {
	if e.Until > 0 {
		first := *e
		first.Until, first.Blocks = 0, min(e.Blocks, inference.FirstLook)
		least, _ = first.DurationBounds()
		all := *e
		all.Until = 0
		_, most = all.DurationBounds()
		return e.bounded(least), e.bounded(most)
	}
	bounds := e.measure().Bounds
	if bounds == nil {
		d := e.EstimatedDuration()
		return d, d
	}
	for _, g := range e.allGroups() {
		shortest, longest := bounds(e, g)
		least, most = least+shortest, most+longest
	}
	return least.Round(time.Second), most.Round(time.Second)
}
