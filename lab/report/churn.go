package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// forgotten says after how many blocks the device knew as many clients as before.
func forgotten(ch analysis.ChurnFigures) string {
	if ch.Told == 0 {
		return "it tells no numbers"
	}
	return fmt.Sprintf("%d of %s", ch.Settled, counted(ch.Told, "block"))
}

// fromTo prints what was before the first guest and after the last.
func fromTo(before, after analysis.Estimate) string {
	return trimmed(before.Mean, 4) + " → " + trimmed(after.Mean, 4)
}

// countsText is what the device says it knows, before and after.
func countsText(ch analysis.ChurnFigures) string {
	var parts []string
	for _, c := range ch.Counts {
		parts = append(parts, c.Name+" "+fromTo(c.Before, c.After))
	}
	return strings.Join(parts, ", ")
}

// guestsText says in words what became of the guests of a device, and whether it forgot them.
func guestsText(ch analysis.ChurnFigures) string {
	text := fmt.Sprintf("%d of %s got in", ch.In, counted(ch.Came, "guest"))
	if ch.In == ch.Came {
		text = fmt.Sprintf("all %s got in", counted(ch.Came, "guest"))
	}
	if ch.Gone < ch.In {
		text += fmt.Sprintf(", %d left in order", ch.Gone)
	}
	switch {
	case ch.Told == 0:
		return text + "; whom it knows, the device does not tell"
	case ch.Settled == ch.Told:
		text += ", and it forgot them all"
	default:
		text += fmt.Sprintf("; it forgot them all in %d of %s", ch.Settled, counted(ch.Told, "block"))
	}
	return text + " (" + countsText(ch) + ")"
}

// guestFacts are what a device's row says about its guests.
func guestFacts(c analysis.Cell) []fact {
	ch := c.Churn
	if ch.Blocks == 0 {
		return nil
	}
	text := guestsText(ch)
	if ch.LoginP50ms.Mean.Known() {
		text += fmt.Sprintf("; half were in within %s", millis(ch.LoginP50ms.Mean))
	}
	return []fact{{"Guests", text}, {"Tracked connections", fromTo(ch.FlowsBefore, ch.FlowsAfter)}}
}

// churnSentences say what became of guests, one a block's setting.
func churnSentences(cells []analysis.Cell) (out []string) {
	for _, c := range cells {
		ch := c.Churn
		if ch.Blocks == 0 {
			continue
		}
		text := fmt.Sprintf("Guests: %s with %s: %s a second in %s, %s; log-in p50 %s, p99 %s; its memory %s MiB, rules %s lines, tracked connections %s",
			c.DUT, counted(c.Clients, "client"), trimmed(ch.PerSecond, 3), counted(ch.Blocks, "block"), guestsText(ch),
			millis(ch.LoginP50ms.Mean), millis(ch.LoginP99ms.Mean),
			fromTo(ch.PSSBeforeMiB, ch.PSSAfterMiB), fromTo(ch.RuleLinesBefore, ch.RuleLinesAfter), fromTo(ch.FlowsBefore, ch.FlowsAfter))
		if len(ch.Failures) > 0 {
			text += fmt.Sprintf("; %d × such as: %s", ch.Failures[0].Count, ch.Failures[0].Text)
		}
		if !slices.Contains(out, text) { // loads of the same blocks share their guests
			out = append(out, text)
		}
	}
	return out
}

// churnGrid is what became of guests that came and went, and what is left of them.
func churnGrid(cells []analysis.Cell) grid {
	return build("Guests that came and went, and the device before and after", cells, append(identity(cells),
		numberColumn("Guests", "a second", digits3, func(c analysis.Cell) analysis.Number { return c.Churn.PerSecond }),
		countColumn("Came", func(c analysis.Cell) int { return c.Churn.Came }),
		countColumn("Got in", func(c analysis.Cell) int { return c.Churn.In }),
		countColumn("Left", func(c analysis.Cell) int { return c.Churn.Gone }),
		estimateColumn("Log-in p50", "ms", digits3, func(c analysis.Cell) analysis.Estimate { return c.Churn.LoginP50ms }),
		estimateColumn("Log-in p99", "ms", digits3, func(c analysis.Cell) analysis.Estimate { return c.Churn.LoginP99ms }),
		textColumn("Forgotten", func(c analysis.Cell) string { return forgotten(c.Churn) }),
		textColumn("It knows", func(c analysis.Cell) string { return nonEmpty(countsText(c.Churn), none) }),
		estimateColumn("Memory before", "PSS, MiB", digits3, func(c analysis.Cell) analysis.Estimate { return c.Churn.PSSBeforeMiB }),
		estimateColumn("Memory after", "PSS, MiB", digits3, func(c analysis.Cell) analysis.Estimate { return c.Churn.PSSAfterMiB }),
		estimateColumn("Rules before", "lines", digits3, func(c analysis.Cell) analysis.Estimate { return c.Churn.RuleLinesBefore }),
		estimateColumn("Rules after", "lines", digits3, func(c analysis.Cell) analysis.Estimate { return c.Churn.RuleLinesAfter }),
		estimateColumn("Tracked before", "connections", digits3, func(c analysis.Cell) analysis.Estimate { return c.Churn.FlowsBefore }),
		estimateColumn("Tracked after", "connections", digits3, func(c analysis.Cell) analysis.Estimate { return c.Churn.FlowsAfter }),
	))
}
