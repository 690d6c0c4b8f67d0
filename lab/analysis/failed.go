package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// FailedBlock says why a block ended early.
type FailedBlock struct {
	Cell  result.Cell `json:"dimensions"`   // dimensions that are the same throughout the block
	Block int         `json:"block"`        // counts from 0
	AA    bool        `json:"aa,omitempty"` // a block of two clean routers
	Error string      `json:"error"`        // as in its record
	// Measured is true if the block was completed after a resume of the run.
	Measured bool `json:"measured"`
}

// Covers reports whether the block was to measure a cell.
func (f FailedBlock) Covers(cell result.Cell) bool {
	for _, v := range f.Cell.Values() {
		if value, ok := cell.Value(v.Dimension); !ok || value != v {
			return false
		}
	}
	return true
}

// failedBlocks lists the blocks of a run that ended with an error, in the order of the records.
func failedBlocks(input Input) []FailedBlock {
	out := []FailedBlock{}
	for i, b := range input.Run.Blocks {
		if b.Error != "" {
			out = append(out, FailedBlock{b.Cell(), b.Block, b.AA, b.Error, input.endedSince(b, i)})
		}
	}
	return out
}

// LeftBlock is a block whose labs could not be closed without an error. Its trials are still valid.
type LeftBlock struct {
	Cell  result.Cell `json:"dimensions"`
	Block int         `json:"block"` // counts from 0
	Error string      `json:"error"` // what went wrong when its labs were closed
}

// leftBlocks lists the blocks whose labs were closed with an error, in the order of the records.
func leftBlocks(blocks []result.Block) (out []LeftBlock) {
	for _, b := range blocks {
		if b.Leaving != "" {
			out = append(out, LeftBlock{b.Cell(), b.Block, b.Leaving})
		}
	}
	return out
}

// endedSince reports whether a failed block was measured again and completed in a later sitting. The later record of
// the block says so. Where a measure records only failed blocks, a later trial of the block does.
func (input Input) endedSince(failed result.Block, index int) bool {
	return slices.ContainsFunc(input.Run.Blocks[index+1:], func(b result.Block) bool {
		return b.Sitting > failed.Sitting && b.Error == "" && b.AA == failed.AA && b.Cell() == failed.Cell() &&
			b.Block == failed.Block
	}) || input.Alone && slices.ContainsFunc(input.Trials, func(t Trial) bool {
		return t.Sitting > failed.Sitting && t.Cell == failed.Cell() && t.Block == failed.Block
	})
}

// Limit is the smallest number of clients at which a device broke, although it works with fewer.
type Limit struct {
	DUT     string `json:"dut"`     // name of the device
	Clients int    `json:"clients"` // number of clients at which it failed
	Took    int    `json:"took"`    // the largest number it completed a block with
	How     string `json:"how"`     // how it broke, from its first such block
}

// limits lists the limit of each device that broke.
func limits(blocks []result.Block) []Limit {
	out := []Limit{}
	for _, ofDevice := range grouped(blocks, func(b result.Block) string { return b.DUT }, cmp.Compare[string]) {
		l := Limit{DUT: ofDevice[0].DUT, Clients: math.MaxInt}
		for _, b := range ofDevice {
			switch {
			case b.Broke == "" && b.Error == "":
				l.Took = max(l.Took, b.Clients)
			case b.Broke != "" && b.Clients < l.Clients:
				l.Clients, l.How = b.Clients, b.Broke
			}
		}
		if l.How != "" {
			out = append(out, l)
		}
	}
	return out
}

// Tally counts equal texts, such as flags of accepted trials or reasons of rejected ones. Texts that differ only in
// their numbers count as equal. Text is the first of them.
type Tally struct {
	Text  string `json:"text"`  // what was counted
	Count int    `json:"count"` // how often
}

// Tallies collects texts to count. The zero value is ready to use.
type Tallies struct{ entries map[string]*Tally }

// Add counts a text n times.
func (t *Tallies) Add(text string, n int) {
	if t.entries == nil {
		t.entries = map[string]*Tally{}
	}
	key := result.DigitsHidden(text)
	if t.entries[key] == nil {
		t.entries[key] = &Tally{Text: text}
	}
	t.entries[key].Count += n
}

// AddReasons counts the reasons that clients reported.
func (t *Tallies) AddReasons(reasons []result.Reason) {
	for _, r := range reasons {
		t.Add(r.First, r.Count)
	}
}

// Sorted lists the counts, the most frequent first.
func (t *Tallies) Sorted() []Tally {
	out := make([]Tally, 0, len(t.entries))
	for _, entry := range t.entries {
		out = append(out, *entry)
	}
	slices.SortFunc(out, func(a, b Tally) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), cmp.Compare(a.Text, b.Text))
	})
	return out
}

// rejectReasons counts the reasons of rejected trials, most frequent first.
func rejectReasons(trials []Trial) []Tally {
	var count Tallies
	for _, t := range trials {
		if t.Accepted {
			continue
		}
		if len(t.Rejects) == 0 {
			count.Add("no reason recorded", 1)
		}
		for _, reason := range t.Rejects {
			count.Add(reason, 1)
		}
	}
	return count.Sorted()
}
