package result

import "time"

// Until is the rule by which a run decides that a cell is exact enough, with its decisions so far.
type Until struct {
	PrecisionPct  float64 `json:"precision_pct"`             // half-width of the interval that is enough, % of the figure
	Rule          string  `json:"rule"`                      // in words
	Confidence    float64 `json:"confidence"`                // of intervals at looks, so that 95 % hold in the end
	Planned       []int   `json:"planned"`                   // blocks after which cells are looked at, the last with all
	AtMostSeconds float64 `json:"at_most_seconds,omitempty"` // bound of the time that blocks take together; 0: none
	Looks         []Look  `json:"looks"`                     // those that were taken
}

// Look is one check of all cells that are still being measured.
type Look struct {
	Blocks int       `json:"blocks"` // each cell had: those of the plan, measured or failed
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
	Metric     string   `json:"metric"`              // whose interval it is
	Blocks     int      `json:"blocks"`              // that the interval is over
	WidthPct   *float64 `json:"width_pct,omitempty"` // half of it, % of the figure; absent: no interval
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
