package compare

import (
	"fmt"
	"math"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// absentFigure is the text for an absent figure.
const absentFigure = "–"

// blocksText formats the number of further blocks that are needed, behind a word; empty for nil.
func blocksText(needed *int) string {
	if needed == nil {
		return ""
	}
	return " (+" + words.Counted(*needed, "block") + ")"
}

// percent formats a share as per cent, with no more digits than needed.
func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e6)/1e4, 'f', -1, 64) + " %"
}

// signed formats a ratio as a change in per cent.
func signed(ratio analysis.Number) string {
	if !ratio.Known() {
		return absentFigure
	}
	return fmt.Sprintf("%+.1f %%", 100*(float64(ratio)-1))
}

// changeText formats a change in per cent, with its interval.
func changeText(e analysis.Estimate) string {
	if !e.HasInterval() {
		return absentFigure
	}
	return signed(e.Mean) + " " + changeBounds(e)
}

// changeBounds formats the interval of a change in per cent.
func changeBounds(e analysis.Estimate) string {
	return fmt.Sprintf("[%+.1f, %+.1f]", 100*(float64(e.Lo)-1), 100*(float64(e.Hi)-1))
}

// ratioText formats a ratio or another figure, with its interval if there is one.
func ratioText(e analysis.Estimate) string {
	switch {
	case !e.Mean.Known():
		return absentFigure
	case !e.HasInterval():
		return fmt.Sprintf("%.3f", float64(e.Mean))
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]", float64(e.Mean), float64(e.Lo), float64(e.Hi))
}

// pText formats a p-value.
func pText(p analysis.Number) string {
	switch {
	case !p.Known():
		return absentFigure
	case p < 0.001:
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", float64(p))
}

// maxSetting is the largest number of runes shown of a setting. Otherwise a device's script would fill the page.
const maxSetting = 160

// setting formats one side of a difference.
func setting(s string) string {
	if s == "" {
		return "none"
	}
	if runes := []rune(result.OneLine(s)); len(runes) > maxSetting {
		return string(runes[:maxSetting-1]) + "…"
	}
	return s
}
