// Package units writes quantities for people, in few characters.
package units

import (
	"fmt"
	"strings"
	"time"
)

// Bytes returns at most 7 characters: "999 B", "1.2 kB", "45 MB".
func Bytes(n uint64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n), 0
	// 999.5 would be printed as "1000".
	for ; value >= 999.5 && unit < 6; unit++ {
		value /= 1000
	}
	format := "%.0f %cB"
	if value < 9.95 {
		format = "%.1f %cB"
	}
	return fmt.Sprintf(format, value, " kMGTPE"[unit])
}

// Rate returns at most 5 characters of bits a second, as the configuration has them: "512k", "20.5M"; "-" for 0.
func Rate(bps uint64) string {
	if bps == 0 {
		return "-"
	}
	value, unit := float64(bps), 0
	for ; value >= 999.5 && unit < 6; unit++ {
		value /= 1000
	}
	return strings.TrimSpace(fmt.Sprintf("%.3g%c", value, " kMGTPE"[unit]))
}

// Duration returns at most 7 characters: "45s", "12m05s", "3h07m", "12d04h".
func Duration(d time.Duration) string {
	d = max(0, d).Truncate(time.Second)
	s := int(d.Seconds())
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", s)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}
