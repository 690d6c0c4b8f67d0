package analysis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Slowed says that the routers of a run had only a share of their CPU, and how large it was.
type Slowed struct {
	Speed   float64 `json:"speed"`     // the share that was asked for
	Share   Number  `json:"share"`     // measured: the mean over windows of all accepted trials, and
	Least   Number  `json:"share_min"` // the least and
	Most    Number  `json:"share_max"` // the most of one window
	Windows int     `json:"windows"`   // number of windows; a pair has two
}

// RouterSharePct is the name of the metric that SlowedMetric makes.
const RouterSharePct = "router_share_pct"

// SlowedMetric makes the metric of the CPU share that a slowed host had, read from a field of the records. Zero means
// full speed.
func SlowedMetric(host, field string) Metric {
	return Metric{Name: RouterSharePct, Unit: "% of its CPU",
		Text: "CPU that slowed hosts had, by the clock of what took the rest", Host: host, Per: PerWindow, Range: Percents,
		Value: func(r MetricInput) float64 { return Positive(100 * r.Get(field)) }}
}

// slowedOf returns nil for a run at full speed. It reads the records too, because the environment may be missing.
func slowedOf(env result.Environment, trials []Trial) *Slowed {
	s := Slowed{Speed: env.RouterSpeed, Share: Absent(), Least: Absent(), Most: Absent()}
	var shares []float64
	for _, t := range accepted(trials) {
		for _, side := range []result.Values{t.Device, t.Clean} {
			for name, x := range side {
				if x > 0 && (name == result.RouterShare || strings.HasSuffix(name, "."+result.RouterShare)) {
					shares = append(shares, x)
				}
			}
		}
	}
	if s.Windows = len(shares); s.Windows > 0 {
		s.Share, s.Least, s.Most = Number(mean(shares)), Number(slices.Min(shares)), Number(slices.Max(shares))
	}
	if s.Speed == 0 && s.Windows == 0 {
		return nil
	}
	return &s
}

// String returns the badge of a slowed run: "routers slowed to 25 %: measured share 25.1 % (24.9 to 25.3 in 12
// windows)".
func (s Slowed) String() string {
	to := fmt.Sprintf("routers slowed to %.3g %% of their CPU", 100*s.Speed)
	if s.Speed == 0 {
		to = "routers slowed"
	}
	if s.Windows == 0 {
		return to + ": no accepted trial measured the share"
	}
	return fmt.Sprintf("%s: measured share %.1f %% (%.1f to %.1f in %s)", to, 100*s.Share, 100*s.Least, 100*s.Most,
		words.Counted(s.Windows, "window"))
}

// Speed returns the share of their CPU that the experiment gave the routers. It is 1 unless they were slowed.
func (s Summary) Speed() float64 {
	if s.Slowed == nil {
		return 1
	}
	return s.Slowed.Speed
}

// Badges returns one text for each unusual condition of the run, such as slowed routers, an emulated CPU or divided
// loads. Every display of figures shows them.
func (s Summary) Badges() (list []string) {
	if s.VM != nil {
		list = append(list, s.VM.String())
	}
	if s.LoadsDividedBy > 1 {
		list = append(list, fmt.Sprintf("loads ÷ %g", s.LoadsDividedBy))
	}
	if s.Slowed != nil {
		list = append(list, s.Slowed.String())
	}
	if s.Noise != nil {
		list = append(list, s.Noise.String())
	}
	return list
}
