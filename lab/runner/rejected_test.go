package runner

import (
	"testing"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestProgressCountsRejected: the progress of a run tells how many trials were rejected so far, and the most frequent
// reason. tries has the reasons for which each attempt at one window is rejected; the last attempt is accepted.
func TestProgressCountsRejected(t *testing.T) {
	var last Progress
	s := &Session{Dir: t.TempDir(), Experiment: &experiment.Experiment{Redo: 9}, windows: map[windowKey]window{},
		cfg: Config{Status: func(p Progress) { last = p }}}
	tries := [][]string{{"probes lost"}, {"steal: 5 %", "probes lost"}, {"steal: 7 %"}, {}}
	err := s.MeasureQuietWindow(experiment.Block{}, result.Cell{}, 0, func(a Attempt) (Measured, error) {
		return Measured{Write: func(*result.Writer) error { return nil }, Rejects: tries[a.Number]}, nil
	})
	s.Status("on")
	if err != nil || last.Rejected != 3 || last.Reason != "steal: 7 %" {
		t.Errorf("%v: %+v, want 3 rejected, mostly for steal", err, last)
	}
}
