package analysis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
)

// interleaved reports whether the devices of a round share one clean router.
func (input Input) interleaved() bool { return input.Run.Environment.Mode == result.ModeInterleaved }

// unit returns the word for the values that intervals are computed over: there is one for each round, block or trial.
// input.Noun is the measure's word for a trial; input.Alone means that a trial is a whole block.
func (input Input) unit() string {
	switch {
	case input.Alone:
		return input.Noun
	case input.interleaved():
		return "round"
	}
	return "block"
}

// Pair makes pairs of the trials of an interleaved run. There each trial measured one router for one window: a device,
// or the clean router that the devices of a round share. Each window of a device gets a window of that clean router
// from the same round and sitting (one run of the program), with the same links and load. The second clean router of an
// A/A round counts as a device. The two windows have the same number. Where the clean router has no window of that
// number, another of its windows is taken. A trial is rejected where there is none. clean is the windows of the shared
// clean routers.
func Pair(trials []Trial, blocks []result.Block) (pairs, clean []Trial) {
	windows := map[partner][]Trial{}
	counts := Counting(trials)
	for i, t := range trials {
		if !isSharedCleanRouter(t) {
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
		if isSharedCleanRouter(t) {
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

// isSharedCleanRouter reports whether a trial is of the clean router with which the other trials of its round are
// compared.
func isSharedCleanRouter(t Trial) bool { return !t.AA && t.Cell.Text(result.DUT) == Clean }

// linkSettingsOf returns, for each device that needs link settings of its own, the value of the dimension LinkSettings
// in the cell of the clean router with the same settings: the names of these devices.
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

// pairedWith returns the trial with one of the clean router's windows, which list has, as its other side.
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
