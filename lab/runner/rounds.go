package runner

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

// reopen marks the clean routers of incomplete interleaved rounds for another measurement, because windows of two
// sittings are not compared. A round's clean router is measured again if a window of the round is still to be measured,
// or if a window was measured in a sitting without windows of the clean router.
func (s *Session) reopen() {
	if !s.Experiment.Interleaved() {
		return
	}
	accepted := acceptedIn(s.attempts)
	var again []windowKey
	for _, b := range s.plan {
		if b.Control || s.beyond(b) {
			continue
		}
		for _, cell := range b.Cells {
			against := cell.With(result.DUT, experiment.Clean).With(result.LinkSettings, b.Against.Text(result.LinkSettings))
			open := false
			for n := range s.Experiment.Windows {
				key := keyOf(b, cell, n)
				if s.windows[key].accepted && !s.hopeless(against, b.Index) &&
					!accepted.together(key, against, s.Experiment.Windows) {
					again, open = append(again, key), true
				}
				open = open || !s.windows[key].done
			}
			for n := range s.Experiment.Windows {
				if open {
					again = append(again, windowKey{against, false, b.Index, n})
				}
			}
		}
	}
	for _, key := range again {
		w := s.windows[key]
		w.done, w.accepted = false, false
		s.windows[key] = w
	}
}

// sittings holds the sittings in which each window was accepted.
type sittings map[windowKey][]int

// acceptedIn collects the sittings of accepted attempts.
func acceptedIn(attempts []result.Entry) sittings {
	in := sittings{}
	for _, a := range attempts {
		if a.Accepted {
			key := windowKey{a.Cell, a.AA, a.Block, a.Window}
			in[key] = append(in[key], a.Sitting)
		}
	}
	return in
}

// together reports whether a window was accepted in the same sitting as any window of its round's clean router. against
// is the clean router's cell.
func (in sittings) together(key windowKey, against result.Cell, windows int) bool {
	for n := range windows {
		list := in[windowKey{against, false, key.block, n}]
		if slices.ContainsFunc(list, func(sitting int) bool { return slices.Contains(in[key], sitting) }) {
			return true
		}
	}
	return false
}

// hopeless reports whether all windows of a round's clean router were tried often enough, and none was accepted.
func (s *Session) hopeless(against result.Cell, index int) bool {
	for n := range s.Experiment.Windows {
		if w := s.windows[windowKey{against, false, index, n}]; !w.done || w.accepted {
			return false
		}
	}
	return true
}
