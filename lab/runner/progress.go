package runner

import (
	"os"
	"path/filepath"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

// writeProgress writes the run's progress into its folder. It is called while nothing is measured: at the beginning and
// the end of blocks, and after a record was written. If it fails, only readers of the progress lack something.
func (s *Session) writeProgress() {
	s.progress.Updated = time.Now().UTC()
	s.progress.Rejected, s.progress.Reason = s.rejected, s.reason
	s.progress.Windows, s.progress.Accepted, _ = s.tally(s.plan)
	if s.clock != nil {
		done, left := s.clock.state()
		s.progress.Done, s.progress.Left = done, left.Seconds()
	}
	s.progress.Blocks, s.progress.Behind = len(s.plan), 0
	for _, b := range s.plan {
		if s.WindowsDone(b) {
			s.progress.Behind++
		}
	}
	_ = result.WriteProgress(s.Dir, s.progress)
}

// beginProgress writes the progress at the beginning of a block.
func (s *Session) beginProgress(b experiment.Block) {
	s.progress.Doing = s.Name(b)
	s.writeProgress()
}

// progressEvery is the shortest time between two writings after records.
const progressEvery = time.Second

// recordedProgress writes the progress after a record, unless it has just been written.
func (s *Session) recordedProgress() {
	if time.Since(s.progress.Updated) >= progressEvery {
		s.writeProgress()
	}
}

// endProgress removes the file when the run is complete. The file of an interrupted run stays and says how far the run
// was.
func (s *Session) endProgress() {
	if s.env.Interrupted {
		s.writeProgress()
		return
	}
	_ = os.Remove(filepath.Join(s.Dir, result.ProgressFile))
}
