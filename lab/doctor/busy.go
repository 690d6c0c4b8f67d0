package doctor

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/machine"
)

const (
	maxOtherCores = 0.05 // of one core: more shows in the clean router's figures
	shownUsers    = 3
	shownCores    = 0.02
)

// busyLine judges what other programs use.
func busyLine(list []machine.User) Line {
	var all float64
	var names []string
	for i, u := range list {
		all += u.Cores
		if i < shownUsers && u.Cores >= shownCores {
			names = append(names, fmt.Sprintf("%s (process %d) %.0f %%", u.Name, u.PID, 100*u.Cores))
		}
	}
	l := Line{
		Key: "machine.load", State: OK, What: "other programs", Found: fmt.Sprintf("%.1f %% of a core", 100*all),
		Means: "the lab has the CPUs to itself", Figures: map[string]analysis.Number{"core_pct": analysis.Number(100 * all)},
	}
	if len(names) > 0 {
		l.Found += ": " + strings.Join(names, ", ")
	}
	if all > maxOtherCores {
		l.State, l.Means, l.Do = Warn, "", "stop them while you measure; a duet cancels much of it, single values do not"
	}
	return l
}
