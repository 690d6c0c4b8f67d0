package result

import "time"

// Until is the rule by which a run decides that a cell is exact enough, with its decisions so far.
type Until struct {
	PrecisionPct  float64 `json:"precision_pct"`             // half the width that is enough, % of the figure
	Rule          string  `json:"rule"`                      // in words
	Confidence    float64 `json:"confidence"`                // of the intervals at looks, so that 95 % hold at the end
	Planned       []int   `json:"planned"`                   // blocks after which there is a look; the last: all
	AtMostSeconds float64 `json:"at_most_seconds,omitempty"` // bound of the total time of all blocks; 0: none
	Looks         []Look  `json:"looks"`                     // the looks so far
}

// Look is one check of all cells that are still being measured.
type Look struct {
	Blocks int       `json:"blocks"` // blocks of the plan that each cell had, measured or failed
	Start  time.Time `json:"start"`  // UTC
	// Bound names the bound that ended the cells that were not exact enough. Empty: they are measured further.
	Bound string  `json:"bound,omitempty"`
	Cells []Width `json:"cells"`
}

// Bounds at which a look ends all cells.
const (
	BoundBlocks = "blocks" // all blocks of the plan were measured
	BoundTime   = "time"   // the run's time is over
)

// Width is the interval width of a cell at a look.
type Width struct {
	Dimensions Cell     `json:"dimensions"`
	Metric     string   `json:"metric"`              // metric of the interval
	Blocks     int      `json:"blocks"`              // blocks from which the interval is computed
	WidthPct   *float64 `json:"width_pct,omitempty"` // half the interval's width, % of the figure; absent: no interval
	Exact      bool     `json:"exact"`               // exact enough: the cell is measured no more
}

// Ended says how a cell of such a run ended.
type Ended struct {
	Look  int    // blocks planned for the cell up to its last look
	Bound string // bound that ended it; empty: it was exact enough
	Width        // at that look
}

// Ended returns the cells that ended, and how.
func (u *Until) Ended() map[Cell]Ended {
	ended := map[Cell]Ended{}
	if u == nil {
		return ended
	}
	for _, look := range u.Looks {
		for _, w := range look.Cells {
			switch {
			case w.Exact:
				ended[w.Dimensions] = Ended{look.Blocks, "", w}
			case look.Bound != "":
				ended[w.Dimensions] = Ended{look.Blocks, look.Bound, w}
			}
		}
	}
	return ended
}

// Over reports whether a look has ended all cells at a bound.
func (u *Until) Over() bool {
	return u != nil && len(u.Looks) > 0 && u.Looks[len(u.Looks)-1].Bound != ""
}
