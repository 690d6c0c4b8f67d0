package runner

import (
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// A run with a rule for when cells are exact enough looks at all cells after numbers of blocks that are decided
// beforehand. A cell that is exact enough at a look has no further blocks. What looks saw is in the environment, so a
// resume goes on by it.
//
//	blocks 1 … 10 │ look │ 11 … 16 │ look │ 17 … 24 │ look │ … all blocks │ last look
//	               exact: measured no more           a bound of time may come before the last

// beginUntil notes the rule of the run, or continues with what earlier sittings have noted.
func (s *Session) beginUntil() {
	e := s.Experiment
	if e.Until == 0 || s.cfg.Widths == nil {
		return
	}
	if s.env.Until == nil {
		s.env.Until = &result.Until{
			PrecisionPct: float64(e.Until), Rule: "looks after numbers of blocks decided beforehand, intervals of the same " +
				"higher confidence at all of them",
			Confidence: inference.LookConfidence(0.95), Planned: e.LookBlocks(), AtMostSeconds: e.AtMost.Seconds(),
			Looks: []result.Look{},
		}
	}
	s.leaveEnded()
}

// leaveEnded removes cells from the plan that ended at an earlier look.
func (s *Session) leaveEnded() {
	notNeeded := experiment.NotNeeded(s.plan, s.env.Until)
	for _, b := range s.plan {
		for _, cell := range b.Cells {
			if notNeeded(b, cell) {
				s.leaveOut(cell, b.AA, b.Index)
			}
		}
	}
}

// lookBefore checks the cells if a look is due before a block. It is due when all blocks with a smaller index were
// measured or have failed. A/A blocks have an index of their own.
func (s *Session) lookBefore(b experiment.Block) error {
	u := s.env.Until
	apart := b.AA && b.Against == (result.Cell{})
	if u == nil || apart || !slices.Contains(u.Planned, b.Index) || s.lookedAt(b.Index) || s.share() == 1 {
		return nil
	}
	return s.look(b.Index, "")
}

// lookedAt reports whether the look after this number of blocks, or a later one, has happened.
func (s *Session) lookedAt(blocks int) bool {
	looks := s.env.Until.Looks
	return len(looks) > 0 && looks[len(looks)-1].Blocks >= blocks
}

// timeOver reports whether the run has reached its bound of time.
func (s *Session) timeOver() bool {
	return s.Experiment.AtMost > 0 && s.env.Until != nil && s.spent >= s.Experiment.AtMost
}

// lastLook records how exact those cells are that all blocks of the plan did not make exact enough.
func (s *Session) lastLook() error {
	if s.env.Until == nil || s.env.Until.Over() {
		return nil
	}
	return s.look(s.Experiment.Blocks, result.BoundBlocks)
}

// repeat returns the word for the repetitions of a run ("block" or "round"), for notices.
func (s *Session) repeat() string {
	if s.env.Mode == result.ModeInterleaved {
		return "round"
	}
	return "block"
}

// look records how exact the cells are that are still being measured, and ends those that are exact enough. With a
// bound it ends all.
func (s *Session) look(blocks int, bound string) error {
	widths, err := s.cfg.Widths(s.Dir)
	if err != nil {
		return fmt.Errorf("looking how exact the cells are after %s: %w", words.Counted(blocks, s.repeat()), err)
	}
	u, exact := s.env.Until, 0
	ended := u.Ended()
	look := result.Look{Blocks: blocks, Start: time.Now().UTC(), Bound: bound}
	for _, w := range widths {
		if _, over := ended[w.Dimensions]; over {
			continue
		}
		if w.Exact = w.WidthPct != nil && *w.WidthPct <= u.PrecisionPct; w.Exact {
			exact++
		}
		look.Cells = append(look.Cells, w)
	}
	if len(look.Cells) == 0 {
		return nil
	}
	u.Looks = append(u.Looks, look)
	if err := result.WriteEnvironment(s.Dir, s.env); err != nil {
		return fmt.Errorf("%w: %w", errStorage, err)
	}
	s.leaveEnded()
	s.Notice("after %s: %d of %s %s exact enough (%s)", words.Counted(blocks, s.repeat()), len(ended)+exact,
		words.Counted(len(ended)+len(look.Cells), "cell"), words.Either(len(ended)+exact, "is", "are"),
		s.Experiment.Until)
	if s.clock != nil {
		s.clock.done = s.share()
	}
	return nil
}
