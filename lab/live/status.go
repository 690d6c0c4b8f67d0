package live

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/archive"
	"github.com/gateweigh/gateweigh/lab/words"
	"github.com/gateweigh/gateweigh/quote"
)

// status describes the state and progress of a run.
type status struct {
	Word     string // "Going on"
	Known    bool   // the progress is known
	Percent  int    // of the plan
	Left     string // "about 12 min left"
	Doing    string // "opennds, block 2"
	Blocks   string // "block 4 of 12"
	Windows  string // "34 of 96 windows accepted"
	Rejected string // "3 trials rejected in this sitting, mostly because: …"
	Heard    string // time of the last progress report, RFC 3339
	Resume   string // the command that resumes a run that was interrupted or broken off
}

func statusOf(entry archive.Entry, now time.Time) status {
	view := status{Word: words.Capitalised(string(entry.State))}
	if entry.State == archive.Interrupted || entry.State == archive.BrokenOff {
		view.Resume = quote.Command("gateweigh", "run", "--resume", entry.Dir)
	}
	if entry.State == archive.GoingOn {
		view.Left = "time left not known"
	}
	progress := entry.Progress
	if progress == nil || entry.State == archive.Finished {
		return view
	}
	view.Known, view.Percent = true, int(math.Floor(100*min(1, max(0, progress.Done))))
	view.Heard = progress.Updated.UTC().Format(time.RFC3339)
	view.Doing = progress.Doing
	if progress.Blocks > 0 {
		view.Blocks = fmt.Sprintf("%d of %s done", progress.Behind, words.Counted(progress.Blocks, "block"))
	}
	if progress.Windows > 0 {
		view.Windows = fmt.Sprintf("%d of %s accepted", progress.Accepted, words.Counted(progress.Windows, "window"))
	}
	if progress.Rejected > 0 {
		view.Rejected = words.Counted(progress.Rejected,
			"trial") + " rejected in this sitting, mostly because: " + progress.Reason
	}
	if left, ok := entry.TimeLeft(now); ok {
		view.Left = "about " + roughDuration(left) + " left"
		if left < 5*time.Second {
			view.Left = "almost done"
		}
	}
	return view
}

// roughDuration rounds a duration to minutes or tens of seconds and formats it.
func roughDuration(d time.Duration) string {
	switch {
	case d >= 10*time.Minute:
		d = d.Round(time.Minute)
	case d >= time.Minute:
		d = d.Round(10 * time.Second)
	}
	return words.Lasting(d)
}

// section returns the HTML of the status.
func (s status) section() ([]byte, error) {
	var b bytes.Buffer
	err := forms.ExecuteTemplate(&b, "status", s)
	return b.Bytes(), err
}

// digest returns a hash of a text in base 36.
func digest(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return strings.ToLower(strconv.FormatUint(h.Sum64(), 36))
}
