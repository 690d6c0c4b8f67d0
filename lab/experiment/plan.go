package experiment

import (
	"cmp"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Block is one building of the labs. Its cells are measured one after the other, and then the labs are taken down.
// Windows of one block resemble each other more than those of two blocks, so a block is the unit of statistics:
// confidence intervals are computed over blocks.
type Block struct {
	Cell   result.Cell   // the dimensions that all its cells share; its device is Clean in A/A blocks
	AA     bool          // both sides are the clean router
	Index  int           // of the block within its group, from 0
	DUTLab string        // the lab of the device: "a" and "b" in turns; "a" where there is only one lab
	Cells  []result.Cell // every cell of the group once, in the order to measure

	// In interleaved rounds (see round) a block has one lab, and Index is the number of its round.
	Against result.Cell // the Cell of the clean router's block with which this block is compared
	Control bool        // the block of a clean router, with which devices of the round are compared
	Like    string      // of a clean router: the device whose settings of links it has; empty: the usual ones
	For     []string    // of a clean router with such settings: the devices that are compared with it
}

// DUT returns the name of the block's device.
func (b Block) DUT() string { return b.Cell.Text(result.DUT) }

// Clients returns the number of clients of the device's lab.
func (b Block) Clients() int { return b.Cell.Int(result.Clients) }

// Group is a device at one setting with all its blocks.
type Group struct {
	Setting
	AA     bool
	Clean  bool // in interleaved rounds: the blocks have a clean router
	Blocks int
}

// Plan lists the blocks in the order to measure. It takes one block of each group in turn, and spreads A/A blocks
// evenly among them, so that a machine that grows slower during the run slows all groups alike. The order is the same
// every time.
func (e *Experiment) Plan() []Block {
	if e.Interleaved() {
		return e.planRounds()
	}
	type slot struct {
		position float64 // the middle of the block as a share of its group's blocks
		turn     int     // orders blocks of the same position: which group comes first changes each time
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
					position: part * (float64(i) + 0.5) / float64(g.Blocks),
					turn:     (n + i) % len(groups),
					Block:    e.block(g, i, n),
				})
			}
		}
	}
	slices.SortStableFunc(slots, func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.turn, b.turn))
	})
	blocks := make([]Block, len(slots))
	for i, s := range slots {
		blocks[i] = s.Block
	}
	return blocks
}

// Shares lists the parts of the plan that a campaign hands out one by one. A share is a list of indexes of blocks in
// the plan. Blocks that are compared with each other are in one share, so that one machine measures them. A block that
// has both sides is a share of its own. Where each block has one lab, a share has all devices at one setting and index.
func (e *Experiment) Shares() (shares [][]int) {
	type key struct {
		setting result.Cell
		index   int
	}
	oneLab, shareOf := e.measure().Alone || e.Interleaved(), map[key]int{}
	for i, b := range e.Plan() {
		k := key{b.Cell.Without(result.DUT, result.LinkSettings), b.Index}
		if n, begun := shareOf[k]; begun && oneLab {
			shares[n] = append(shares[n], i)
			continue
		}
		shareOf[k] = len(shares)
		shares = append(shares, []int{i})
	}
	return shares
}

// MaxAttempts returns the largest number of attempts at one window: three times the attempts that Redo promises. Those
// beyond Redo are only made while the run is not much longer than planned.
func (e *Experiment) MaxAttempts() int {
	if e.Redo == 0 {
		return 1
	}
	return 3 * (e.Redo + 1)
}

func (e *Experiment) settings() []Setting {
	if m := e.measure(); m.Settings != nil {
		return e.byFamily(m.Settings(e))
	}
	return nil
}

// groups lists the groups of devices, or with aa the A/A groups. Each setting has its own A/A group, because the noise
// floor depends on the setting.
func (e *Experiment) groups(aa bool) (list []Group) {
	duts, blocks := e.DUTs, e.Blocks
	if aa {
		duts, blocks = []string{Clean}, e.AABlocks
	}
	m, seen := e.measure(), map[result.Cell]bool{}
	for _, s := range e.settings() {
		var all []Setting // of all devices
		for _, dut := range duts {
			clean := dut == Clean
			if m.Alone && !aa && (!clean || m.Clean) || !m.Alone && aa == clean {
				if one, fits := m.reduce(e, dut, s); fits && !seen[one.Cell] {
					seen[one.Cell], all = true, append(all, one)
				}
			}
		}
		if m.together(e) && len(all) > 0 {
			all = []Setting{joinSettings(all)}
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
		return e.roundGroups()
	}
	return slices.Concat(e.groups(false), e.groups(true))
}

// joinSettings joins the settings of several devices to one, whose cells alternate between the devices.
func joinSettings(all []Setting) Setting {
	one := Setting{Cell: all[0].Cell}
	for i := range all[0].Cells {
		for _, s := range all {
			one.Cells = append(one.Cells, s.Cells[i])
		}
	}
	return one
}

// withDevice returns the setting with a device in all its cells.
func (s Setting) withDevice(dut string) Setting {
	with := Setting{Cell: s.Cell.With(result.DUT, dut)}
	for _, c := range s.Cells {
		with.Cells = append(with.Cells, c.With(result.DUT, dut))
	}
	return with
}

// block makes block i of group n. Groups with an odd n begin with the device in the other lab, so that at any time
// about half of the devices are in each lab.
func (e *Experiment) block(g Group, i, n int) Block {
	b := Block{Cell: g.Cell, AA: g.AA, Index: i, DUTLab: [2]string{"a", "b"}[(i+n)%2]}
	if e.measure().Alone {
		b.DUTLab = "a"
	}
	for _, index := range balancedOrder(len(g.Cells), i) {
		b.Cells = append(b.Cells, g.Cells[index])
	}
	return b
}

// Loads returns the loads that this number of clients offers together, Mbit/s, each load once.
func (e *Experiment) Loads(clients int) []float64 {
	list := slices.Clone(e.OfferedMbps)
	for _, share := range e.MbpsPerClient {
		if mbps := share * float64(clients); !slices.Contains(list, mbps) {
			list = append(list, mbps)
		}
	}
	return list
}

// mostClients returns the largest number of clients of the experiment, 0 where it names none.
func (e *Experiment) mostClients() int { return slices.Max(append([]int{0}, e.Clients...)) }

// balancedOrder returns row i of a Williams design for n treatments (E. J. Williams, 1949), as indexes of treatments.
// In n rows each treatment has each place once, and in n rows (2n when n is odd) each follows each other one equally
// often. So effects of the time within a block, and of the load measured before, do not look like effects of a load.
func balancedOrder(n, i int) []int {
	order := make([]int, n)
	for place := range order {
		// Row 0 is 0, 1, n-1, 2, n-2, …; row i adds i to each.
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

// WithDevices returns the experiment with only those devices for which can returns true, such as those that can run on
// this machine.
func (e *Experiment) WithDevices(can func(dut string) bool) *Experiment {
	possible := *e
	possible.DUTs = slices.DeleteFunc(slices.Clone(e.DUTs), func(dut string) bool { return !can(dut) })
	return &possible
}

// EstimatedDuration estimates how long the plan takes with average devices on a machine like the one on which the
// measures' estimates were made. Real runs differed from it by less than a sixth.
func (e *Experiment) EstimatedDuration() (total time.Duration) {
	for _, g := range e.allGroups() {
		total += e.measure().Duration(e, g)
	}
	return e.bounded(total).Round(time.Second)
}

// bounded returns a time, or AtMost where that is shorter.
func (e *Experiment) bounded(d time.Duration) time.Duration {
	if e.AtMost > 0 {
		return min(d, e.AtMost)
	}
	return d
}

// DurationBounds returns how long the plan takes at least and at most. Both are EstimatedDuration where that does not
// depend on what is measured.
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
