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

// status is how far a run is.
type status struct {
	Word     string // "Going on"
	Known    bool   // how far it is
	Percent  int    // of the plan
	Left     string // "about 12 min left"
	Doing    string // "opennds, block 2"
	Blocks   string // "block 4 of 12"
	Windows  string // "34 of 96 windows accepted"
	Rejected string // "3 trials rejected in this sitting, mostly because: …"
	Heard    string // when it said something last, RFC 3339
	Resume   string // the command that goes on, of a run that does not
}

func statusOf(e archive.Entry, now time.Time) status {
	s := status{Word: words.Capitalised(string(e.State))}
	if e.State == archive.Interrupted || e.State == archive.BrokenOff {
		s.Resume = quote.Command("gateweigh", "run", "--resume", e.Dir)
	}
	if e.State == archive.GoingOn {
		s.Left = "time left not known"
	}
	p := e.Progress
	if p == nil || e.State == archive.Finished {
		return s
	}
	s.Known, s.Percent = true, int(math.Floor(100*min(1, max(0, p.Done))))
	s.Heard = p.Updated.UTC().Format(time.RFC3339)
	s.Doing = p.Doing
	if p.Blocks > 0 {
		s.Blocks = fmt.Sprintf("%d of %s done", p.Behind, words.Counted(p.Blocks, "block"))
	}
	if p.Windows > 0 {
		s.Windows = fmt.Sprintf("%d of %s accepted", p.Accepted, words.Counted(p.Windows, "window"))
	}
	if p.Rejected > 0 {
		s.Rejected = words.Counted(p.Rejected, "trial") + " rejected in this sitting, mostly because: " + p.Reason
	}
	if left, ok := e.TimeLeft(now); ok {
		s.Left = "about " + rough(left) + " left"
		if left < 5*time.Second {
			s.Left = "almost done"
		}
	}
	return s
}

// rough is an estimate as people say it.
func rough(d time.Duration) string {
	switch {
	case d >= 10*time.Minute:
		d = d.Round(time.Minute)
	case d >= time.Minute:
		d = d.Round(10 * time.Second)
	}
	return words.Lasting(d)
}

// section is the status as a part of a page.
func (s status) section() ([]byte, error) {
	var b bytes.Buffer
	err := forms.ExecuteTemplate(&b, "status", s)
	return b.Bytes(), err
}

// digest is a short name for a text.
func digest(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // it never fails
	return strings.ToLower(strconv.FormatUint(h.Sum64(), 36))
}
