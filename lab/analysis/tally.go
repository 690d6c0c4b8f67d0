package analysis

import (
	"cmp"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Tally counts texts that say the same: flags of accepted trials, reasons of
// rejected ones. Texts that differ only in their figures are one; Text is the
// first of them.
type Tally struct {
	Text  string `json:"text"`
	Count int    `json:"count"`
}

// Tallies collects texts to count. The zero value is ready to use.
type Tallies struct{ entries map[string]*Tally }

// Add counts a text n times.
func (t *Tallies) Add(text string, n int) {
	if t.entries == nil {
		t.entries = map[string]*Tally{}
	}
	key := result.WithoutFigures(text)
	if t.entries[key] == nil {
		t.entries[key] = &Tally{Text: text}
	}
	t.entries[key].Count += n
}

// AddReasons counts what clients met.
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
