package experiment

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
)

// A round of mode = "interleaved" measures every device and a clean router at one setting, one lab after the other,
// each round in another order. An A/A round has a second clean router. Devices that need other settings of the links
// are compared with a clean router of their own, whose links have these settings.
//
//	round 0   clean  openNDS  allow-list  clean (A/A)
//	round 1   openNDS  allow-list  clean
//	round 2   allow-list  clean  openNDS
type round struct {
	devices, clean []Block // without Index, DUTLab and the order of their cells
}

// Interleaved reports whether the plan consists of rounds: one lab stands at a time, and a device is compared with the
// clean router of its round.
func (e *Experiment) Interleaved() bool {
	return e.Mode == result.ModeInterleaved && !e.measure().Alone
}

// LabsAtOnce returns how many labs stand at the same time.
func (e *Experiment) LabsAtOnce() int {
	if e.measure().Alone || e.Interleaved() {
		return 1
	}
	return 2
}

// WithOneLab returns the experiment for machines on which only one lab can stand at a time. One that needs two becomes
// interleaved; the error, strict.Problems, tells where that is impossible.
func (e *Experiment) WithOneLab() (*Experiment, error) {
	if e.LabsAtOnce() == 1 {
		return e, nil
	}
	one := *e
	one.Mode = result.ModeInterleaved
	return &one, one.Check()
}

// rounds returns, for each setting, what one round has.
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
		r.clean = e.cleanRouters(s, r.devices)
		list = append(list, r)
	}
	return list
}

// cleanRouters returns the blocks of the clean routers with which the devices of a round are compared: one for each way
// to set links, the usual way first. It sets Against in devices. The first is also compared with the second clean
// router of A/A rounds.
func (e *Experiment) cleanRouters(s Setting, devices []Block) (list []Block) {
	names, links := map[string][]string{}, []string{}
	for _, b := range devices {
		way := e.linksNeeded(b.DUT())
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
		with := s.withDevice(Clean)
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
		devices[i].Against = control[e.linksNeeded(b.DUT())]
	}
	return list
}

// linksNeeded returns a text that names the settings that a device needs on its links, empty for the usual ones.
func (e *Experiment) linksNeeded(dut string) string {
	if e.catalogue.Links == nil {
		return ""
	}
	return e.catalogue.Links(e, dut)
}

// planRounds is Plan for interleaved rounds. It takes a round of each setting in turn.
func (e *Experiment) planRounds() (plan []Block) {
	list, rounds := e.rounds(), max(e.Blocks, e.AABlocks)
	orders := make([][][]Block, len(list))
	for n, r := range list {
		orders[n] = e.orderRounds(r, rounds)
	}
	for i := range rounds {
		for n := range list {
			for _, b := range orders[(n+i)%len(list)][i] {
				b.Index, b.DUTLab = i, "a"
				cells := b.Cells
				b.Cells = nil
				for _, index := range balancedOrder(len(cells), i) {
					b.Cells = append(b.Cells, cells[index])
				}
				plan = append(plan, b)
			}
		}
	}
	return plan
}

// orderRounds returns the blocks of each round of a setting, in their order. The orders are rows of a Williams design
// (balancedOrder), drawn at random, so that each device has each place about equally often. The second clean router of
// A/A rounds takes each place equally often too. Chance depends on the experiment's seed and the setting alone, so the
// plan is the same every time.
func (e *Experiment) orderRounds(r round, rounds int) [][]Block {
	all := slices.Concat(r.clean, r.devices)
	random := e.randomSource(r.clean[0].Cell)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	second := r.clean[0] // the second clean router of A/A rounds
	second.AA, second.Control, second.Against = true, false, second.Cell
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
			places, out[i] = places[1:], slices.Insert(out[i], place, second)
		}
	}
	return out
}

// randomSource returns the random numbers for a setting, which are the same for the same seed.
func (e *Experiment) randomSource(setting result.Cell) *rand.Rand {
	sum := fnv.New64a()
	sum.Write([]byte(setting.String())) // it never fails
	return rand.New(rand.NewPCG(uint64(e.Seed), sum.Sum64()))
}

// roundGroups returns the groups of which rounds consist, for estimates of time.
func (e *Experiment) roundGroups() (list []Group) {
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
