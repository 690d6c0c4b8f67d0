package analysis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
)

// interleaved reports whether the devices of a round share one clean router.
func (input Input) interleaved() bool { return input.Run.Environment.Mode == result.ModeInterleaved }

// unit returns the word for what intervals are computed over: one value for each round, block or trial.
func (input Input) unit() string {
	switch {
	case input.Alone:
		return input.Noun
	case input.interleaved():
		return "round"
	}
	return "block"
}

// Pair makes pairs of the trials of an interleaved run, in which every trial has one side. Each window of a device gets
// a window of the clean router from the same round, with the same links, load and sitting. The second clean router of
// an A/A round counts as a device. The two windows have the same number. Where the clean router lacks that number,
// another of its windows is taken. A trial without any such window is rejected. The windows of the clean routers are
// returned apart.
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
	links := linkSettingsOf(clean, blocks)
	for _, t := range trials {
		if control(t) {
			continue
		}
		cell := t.Cell
		if !t.AA {
			cell = cell.With(result.DUT, Clean).With(result.LinkSettings, links[t.Cell.Text(result.DUT)])
		}
		pairs = append(pairs, t.pairedWith(windows[partner{cell, t.Block, t.Sitting}]))
	}
	return pairs, clean
}

// partner identifies the clean router that a window is compared with.
type partner struct {
	cell           result.Cell
	block, sitting int
}

// control reports whether a trial is of a clean router with which other trials of its round are compared.
func control(t Trial) bool { return !t.AA && t.Cell.Text(result.DUT) == Clean }

// linkSettingsOf returns, for each device with link settings of its own, the value of the dimension LinkSettings in the
// clean router with the same settings.
func linkSettingsOf(clean []Trial, blocks []result.Block) map[string]string {
	links := map[string]string{}
	add := func(c result.Cell) {
		for _, name := range strings.Fields(c.Text(result.LinkSettings)) {
			links[name] = c.Text(result.LinkSettings)
		}
	}
	for _, t := range clean {
		add(t.Cell)
	}
	for _, b := range blocks { // failed blocks have no trials
		add(b.Cell())
	}
	return links
}

// noPartner is the reason for rejecting a trial of an interleaved round without a window of the clean router.
const noPartner = "round: no window of its clean router was accepted"

// pairedWith returns the trial with one of the clean router's windows as its other side.
func (t Trial) pairedWith(list []Trial) Trial {
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
