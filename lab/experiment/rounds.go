package experiment

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
)

// A round is what mode = "interleaved" measures of a setting before it goes on: every device and a clean router, one
// lab after the other, in an order of the round's own. In A/A rounds a second clean router is among them. Devices whose
// links have to be set in another way have a clean router with such links.
//
//	round 0   clean  openNDS  allow-list  clean (A/A)
//	round 1   openNDS  allow-list  clean
//	round 2   allow-list  clean  openNDS
type round struct {
	devices, clean []Block // what is in it: blocks without their place in the plan
}

// Interleaved reports whether one lab stands at a time, and devices are compared with the clean router of their round.
func (e *Experiment) Interleaved() bool {
	return e.Mode == result.ModeInterleaved && !e.measure().Alone
}

// AtOnce is how many labs stand at the same time.
func (e *Experiment) AtOnce() int {
	if e.measure().Alone || e.Interleaved() {
		return 1
	}
	return 2
}

// WithOneLab is the experiment where only one lab can stand at a time: interleaved, if it needs two. What does not go
// with that is an error, strict.Problems.
func (e *Experiment) WithOneLab() (*Experiment, error) {
	if e.AtOnce() == 1 {
		return e, nil
	}
	one := *e
	one.Mode = result.ModeInterleaved
	return &one, one.Check()
}

// rounds lists the settings with what a round of each has.
func (e *Experiment) rounds() (list []round) {
	m, seen := e.measure(), map[result.Cell]bool{}
	for _, s := range e.settings() {
		var r round
		for _, name := range e.DUTs {
			if one, fits := m.reduce(e, name, s); name != Clean && fits && !seen[one.Cell] {
				seen[one.Cell] = true
				r.devices = append(r.devices, Block{Cell: one.Cell, Cells: one.Cells})
			}
		}
		r.clean = e.cleanOf(s, r.devices)
		list = append(list, r)
	}
	return list
}

// cleanOf are the clean routers that devices of a round are compared with: one for each way to set links, the usual one
// first. The first is also compared with that of A/A rounds. It notes at each device which one that is.
func (e *Experiment) cleanOf(s Setting, devices []Block) (list []Block) {
	names, links := map[string][]string{}, []string{}
	for _, b := range devices {
		way := e.links(b.DUT())
		if names[way] == nil {
			links = append(links, way)
		}
		names[way] = append(names[way], b.DUT())
	}
	slices.SortStableFunc(links, func(a, b string) int { return min(len(a), 1) - min(len(b), 1) })
	if len(links) == 0 {
		links = []string{""}
	}
	control := map[string]result.Cell{}
	for i, way := range links {
		with := s.of(Clean)
		b := Block{Cell: with.Cell, Cells: with.Cells, Control: true}
		if way != "" {
			b.Like = names[way][0]
			also := strings.Join(names[way], " ")
			b.Cell = b.Cell.With(result.LinkSettings, also)
			for n, c := range b.Cells {
				b.Cells[n] = c.With(result.LinkSettings, also)
			}
		}
		if i > 0 {
			b.For = names[way]
		}
		control[way] = b.Cell
		list = append(list, b)
	}
	for i, b := range devices {
		devices[i].Against = control[e.links(b.DUT())]
	}
	return list
}

// links names how a device needs links set, empty where it is as usual.
func (e *Experiment) links(dut string) string {
	if e.catalogue.Links == nil {
		return ""
	}
	return e.catalogue.Links(e, dut)
}

// interleaved is Plan in rounds. The settings advance side by side, round by round.
func (e *Experiment) interleaved() (plan []Block) {
	list, rounds := e.rounds(), max(e.Blocks, e.AABlocks)
	orders := make([][][]Block, len(list))
	for n, r := range list {
		orders[n] = e.ordered(r, rounds)
	}
	for i := range rounds {
		for n := range list {
			for _, b := range orders[(n+i)%len(list)][i] {
				b.Index, b.DUTLab = i, "a"
				cells := b.Cells
				b.Cells = nil
				for _, place := range balancedOrder(len(cells), i) {
					b.Cells = append(b.Cells, cells[place])
				}
				plan = append(plan, b)
			}
		}
	}
	return plan
}

// ordered are the labs of each round of a setting, in their order: rows of a Williams design in random order, whose
// treatments are in random order too, so each device has each place about equally often. The second clean router of
// A/A rounds goes through the places likewise. The experiment's seed and the setting decide.
func (e *Experiment) ordered(r round, rounds int) [][]Block {
	all := slices.Concat(r.clean, r.devices)
	random := e.randomOf(r.clean[0].Cell)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	again := r.clean[0]
	again.AA, again.Control, again.Against = true, false, again.Cell
	var rows, places []int
	out := make([][]Block, rounds)
	for i := range rounds {
		if i%len(all) == 0 {
			rows = random.Perm(len(all))
		}
		if i < e.Blocks {
			for _, place := range balancedOrder(len(all), i/len(all)*len(all)+rows[i%len(all)]) {
				out[i] = append(out[i], all[place])
			}
		} else {
			out[i] = []Block{r.clean[0]}
		}
		if span := e.spanAA(rounds); i < span && (i+1)*e.AABlocks/span > i*e.AABlocks/span {
			if len(places) == 0 {
				places = random.Perm(len(all) + 1)
			}
			place := min(places[0], len(out[i]))
			places, out[i] = places[1:], slices.Insert(out[i], place, again)
		}
	}
	return out
}

// randomOf is the source of chance for a setting.
func (e *Experiment) randomOf(setting result.Cell) *rand.Rand {
	sum := fnv.New64a()
	sum.Write([]byte(setting.String())) // it never fails
	return rand.New(rand.NewPCG(uint64(e.Seed), sum.Sum64()))
}

// interleavedGroups are the groups of the rounds, for estimates.
func (e *Experiment) interleavedGroups() (list []Group) {
	for _, r := range e.rounds() {
		for _, b := range r.devices {
			list = append(list, Group{Setting: Setting{b.Cell, b.Cells}, Blocks: e.Blocks})
		}
		for i, b := range r.clean {
			rounds := e.Blocks
			if i == 0 {
				rounds = max(e.Blocks, e.AABlocks) + e.AABlocks
			}
			list = append(list, Group{Setting: Setting{b.Cell, b.Cells}, Clean: true, Blocks: rounds})
		}
	}
	return list
}
