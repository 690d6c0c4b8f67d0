package words

import (
	"fmt"
	"strings"
	"time"
)

// Lasting is a duration as people say it, in at most two units: "250 ms", "1.5 s", "48 s", "2 min 20 s", "13 min", "3 h
// 5 min".
func Lasting(d time.Duration) string {
	if d < 0 {
		return "-" + Lasting(-d)
	}
	switch {
	case d < 1500*time.Microsecond:
		return fmt.Sprintf("%.3g ms", float64(d)/1e6)
	case d < 999500*time.Microsecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	case d < 9950*time.Millisecond:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < 59500*time.Millisecond:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 10*time.Minute-time.Second/2:
		return inTwo(d.Round(time.Second), time.Minute, "min", time.Second, "s")
	case d < time.Hour-time.Minute/2:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return inTwo(d.Round(time.Minute), time.Hour, "h", time.Minute, "min")
}

// inTwo is a duration in a unit and in a smaller one, which is left out where there is nothing of it.
func inTwo(d, most time.Duration, large string, least time.Duration, small string) string {
	text := fmt.Sprintf("%d %s", d/most, large)
	if rest := d % most / least; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, small)
	}
	return text
}
