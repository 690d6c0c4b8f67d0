package result

import "time"

// Until says how a run decides that a cell is exact enough, and what it has decided so far.
type Until struct {
	PrecisionPct  float64 `json:"precision_pct"`             // half-width of the interval that is enough, % of the figure
	Rule          string  `json:"rule"`                      // in words
	Confidence    float64 `json:"confidence"`                // of intervals at looks, so that 95 % hold in the end
	Planned       []int   `json:"planned"`                   // blocks after which cells are looked at, the last with all
	AtMostSeconds float64 `json:"at_most_seconds,omitempty"` // bound of the time that blocks take together; 0: none
	Looks         []Look  `json:"looks"`                     // those that were taken
}

// Look is one time that all cells were looked at that are still measured.
type Look struct {
	Blocks int       `json:"blocks"` // each cell had: those of the plan, measured or failed
	Start  time.Time `json:"start"`  // UTC
	// Bound is what ended the cells that are not exact enough; empty: they go on.
	Bound string  `json:"bound,omitempty"`
	Cells []Width `json:"cells"`
}

// Bounds by which looks end all cells.
const (
	BoundBlocks = "blocks" // all blocks of the plan were measured
	BoundTime   = "time"   // the run's time is over
)

// Width is how exact a cell was at a look.
type Width struct {
	Dimensions Cell     `json:"dimensions"`
	Metric     string   `json:"metric"`              // whose interval it is
	Blocks     int      `json:"blocks"`              // that the interval is over
	WidthPct   *float64 `json:"width_pct,omitempty"` // half of it, % of the figure; absent: no interval
	Exact      bool     `json:"exact"`               // exact enough: the cell is measured no more
}

// Ended is how a cell of such a run ended.
type Ended struct {
	Look  int    // blocks of the plan that the cell had at its last look
	Bound string // that ended it; empty: it was exact enough
	Width        // at that look
}

// Ended are the cells that ended, and how.
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
