package runner

import (
	"os"
	"path/filepath"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

// writeProgress says in the run's folder how far the run is. It is called where nothing is measured: at the begin and
// the end of blocks, and after a record was written. A reader lacks it where it cannot be written, the run lacks
// nothing.
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

// beginProgress is writeProgress of a block that begins.
func (s *Session) beginProgress(b experiment.Block) {
	s.progress.Doing = s.Name(b)
	s.writeProgress()
}

// progressEvery bounds how often records change the file of progress.
const progressEvery = time.Second

// recordedProgress is writeProgress after a record, unless that was just done.
func (s *Session) recordedProgress() {
	if time.Since(s.progress.Updated) >= progressEvery {
		s.writeProgress()
	}
}

// endProgress takes the file away when the run came to its end. What an interrupted run leaves says how far it was.
func (s *Session) endProgress() {
	if s.env.Interrupted {
		s.writeProgress()
		return
	}
	_ = os.Remove(filepath.Join(s.Dir, result.ProgressFile))
}
