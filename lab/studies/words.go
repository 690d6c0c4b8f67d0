package studies

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// at names a level of the experiment.
func (d design) at(level float64) string {
	switch {
	case d.Along == analysis.AlongLoad:
		return fmt.Sprintf("%g Mbit/s", level)
	case level == 1:
		return "1 client"
	}
	return fmt.Sprintf("%g clients", level)
}

// held is what the experiment held fixed.
func (d design) held() string {
	if d.Along == analysis.AlongLoad {
		return fmt.Sprintf("%d clients", d.Clients)
	}
	return mbps(d.Load)
}

// by is the preposition of its levels: "at 400 Mbit/s", "with 50 clients".
func (d design) by() string {
	if d.Along == analysis.AlongLoad {
		return "at"
	}
	return "with"
}

// mbps is a load in a sentence.
func mbps(load float64) string {
	if load >= 1000 {
		return fmt.Sprintf("%g Gbit/s", load/1000)
	}
	return fmt.Sprintf("%g Mbit/s", load)
}

// opening is a router's name at the start of a sentence; names of devices are
// written as they are.
func opening(name string) string {
	if rest, ok := strings.CutPrefix(name, "the "); ok {
		return "The " + rest
	}
	return name
}

// listed joins parts as in a sentence: "a, b and c".
func listed(parts []string) string {
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

// bracketed is a mean with its interval: "2.21 [2.16, 2.27]".
func bracketed(e analysis.Estimate) string {
	if !e.Mean.Known() {
		return "not known"
	}
	if !e.HasInterval() {
		return digits(e.Mean) + " (no interval)"
	}
	return fmt.Sprintf("%s [%s, %s]", digits(e.Mean), digits(e.Lo), digits(e.Hi))
}

// digits prints three significant digits, but not more than two decimals.
func digits(n analysis.Number) string {
	v := math.Abs(float64(n))
	decimals := 2
	if v >= 100 {
		decimals = 0
	} else if v >= 10 {
		decimals = 1
	}
	return strconv.FormatFloat(float64(n), 'f', decimals, 64)
}

// blocks says of how many blocks the estimates are.
func blocks(estimates ...analysis.Estimate) string {
	lo, hi := math.MaxInt, 0
	for _, e := range estimates {
		lo, hi = min(lo, e.N), max(hi, e.N)
	}
	if lo >= hi {
		return fmt.Sprintf("n = %d blocks", hi)
	}
	return fmt.Sprintf("n = %d to %d blocks", lo, hi)
}
