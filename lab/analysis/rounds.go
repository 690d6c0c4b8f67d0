package analysis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
)

// interleaved reports whether the devices of a round have a clean router in common.
func (input Input) interleaved() bool { return input.Run.Environment.Mode == result.ModeInterleaved }

// unit is what intervals are over.
func (input Input) unit() string {
	switch {
	case input.Alone:
		return input.Noun
	case input.interleaved():
		return "round"
	}
	return "block"
}

// Pair makes pairs of the trials of an interleaved run, which have one side each: every window of a device, or of the
// second clean router of an A/A round, gets a window of the clean router of its round, with the same links, load and
// sitting. That is the window of the same number, or else another in turn. A trial for which there is none is rejected.
// The windows that others are paired with are returned apart.
func Pair(trials []Trial, blocks []result.Block) (pairs, clean []Trial) {
	windows := map[partner][]Trial{}
	counts := Counting(trials)
	for i, t := range trials {
		if !control(t) {
			continue
		}
		clean = append(clean, t)
		if counts[i] {
			key := partner{t.Cell, t.Block, t.Sitting}
			windows[key] = append(windows[key], t)
		}
	}
	for _, list := range windows {
		slices.SortStableFunc(list, func(a, b Trial) int { return cmp.Compare(a.Window, b.Window) })
	}
	links := linksOf(clean, blocks)
	for _, t := range trials {
		if control(t) {
			continue
		}
		cell := t.Cell
		if !t.AA {
			cell = cell.With(result.DUT, Clean).With(result.LinksOf, links[t.Cell.Text(result.DUT)])
		}
		pairs = append(pairs, t.with(windows[partner{cell, t.Block, t.Sitting}]))
	}
	return pairs, clean
}

// partner names the clean router that windows are compared with.
type partner struct {
	cell           result.Cell
	block, sitting int
}

// control reports whether a trial is of a clean router that others of its round are compared with.
func control(t Trial) bool { return !t.AA && t.Cell.Text(result.DUT) == Clean }

// linksOf says of devices with links of their own which clean routers have these.
func linksOf(clean []Trial, blocks []result.Block) map[string]string {
	links := map[string]string{}
	add := func(c result.Cell) {
		for _, name := range strings.Fields(c.Text(result.LinksOf)) {
			links[name] = c.Text(result.LinksOf)
		}
	}
	for _, t := range clean {
		add(t.Cell)
	}
	for _, b := range blocks { // those that failed have no trials
		add(b.Cell())
	}
	return links
}

// noPartner is why a trial of an interleaved round is rejected.
const noPartner = "round: no window of its clean router was accepted"

// with is the trial with one of a clean router's windows as the other side.
func (t Trial) with(list []Trial) Trial {
	if len(list) == 0 {
		if t.Accepted {
			t.Accepted, t.Rejects = false, []string{noPartner}
		}
		t.Clean = nil
		return t
	}
	other := list[t.Window%len(list)]
	if i := slices.IndexFunc(list, func(o Trial) bool { return o.Window == t.Window }); i >= 0 {
		other = list[i]
	}
	t.Clean = other.Device
	return t
}
