package runner

import (
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

type windowKey struct {
	cell   result.Cell
	aa     bool
	block  int
	window int
}

// window counts the attempts at one window over all sittings.
type window struct {
	tried    int  // attempts
	accepted bool // an attempt was accepted
	done     bool // accepted, or repeated often enough
	leftOut  bool // left out of the plan, and not missing; see Session.LeaveOut
}

func keyOf(b experiment.Block, cell result.Cell, window int) windowKey {
	return windowKey{cell, b.AA, b.Index, window}
}

// count counts a judged attempt at a window.
func (s *Session) count(key windowKey, attempt int, accepted bool) {
	w := s.windows[key]
	w.tried, w.accepted = max(w.tried, attempt+1), w.accepted || accepted
	w.done = w.done || accepted ||
		attempt >= s.Experiment.Redo && (!s.spare() || attempt+1 >= s.Experiment.MaxAttempts())
	s.windows[key] = w
	if s.clock != nil {
		s.clock.done = s.share()
	}
}

// tally counts the windows of blocks.
func (s *Session) tally(blocks []experiment.Block) (planned, accepted, open int) {
	for _, b := range blocks {
		for _, cell := range b.Cells {
			for n := range s.Experiment.Windows {
				w := s.windows[keyOf(b, cell, n)]
				if w.leftOut && !w.accepted {
					continue
				}
				planned++
				if w.accepted {
					accepted++
				}
				if !w.done {
					open++
				}
			}
		}
	}
	return planned, accepted, open
}

// share returns the share of the plan's windows that is done, 0 to 1.
func (s *Session) share() float64 {
	all, _, open := s.tally(s.plan)
	return 1 - float64(open)/float64(max(all, 1))
}
