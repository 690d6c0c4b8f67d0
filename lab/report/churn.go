package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// forgotten says after how many blocks the device knew as many clients as before.
func forgotten(c analysis.Cell) string {
	if c.Counts[cost.GuestsCounted] == 0 {
		return "it tells no numbers"
	}
	return fmt.Sprintf("%d of %s", c.Counts[cost.GuestsSettled], words.Counted(c.Counts[cost.GuestsCounted], "block"))
}

// fromTo prints what was before the first guest and after the last.
func fromTo(before, after analysis.Estimate) string {
	return trimmed(before.Mean, 4) + " → " + trimmed(after.Mean, 4)
}

// countsText is what the device says it knows, before and after.
func countsText(c analysis.Cell) string {
	var parts []string
	for _, name := range cost.CountNames(c) {
		parts = append(parts, name+" "+fromTo(c.Device(cost.CountBefore+name), c.Device(cost.CountAfter+name)))
	}
	return strings.Join(parts, ", ")
}

// guestsText says in words what became of the guests of a device, and whether it forgot them.
func guestsText(c analysis.Cell) string {
	text := fmt.Sprintf("%d of %s got in", c.Counts[cost.GuestsIn], words.Counted(c.Counts[cost.GuestsCame], "guest"))
	if c.Counts[cost.GuestsIn] == c.Counts[cost.GuestsCame] {
		text = fmt.Sprintf("all %s got in", words.Counted(c.Counts[cost.GuestsCame], "guest"))
	}
	if c.Counts[cost.GuestsGone] < c.Counts[cost.GuestsIn] {
		text += fmt.Sprintf(", %d left in order", c.Counts[cost.GuestsGone])
	}
	switch {
	case c.Counts[cost.GuestsCounted] == 0:
		return text + "; whom it knows, the device does not tell"
	case c.Counts[cost.GuestsSettled] == c.Counts[cost.GuestsCounted]:
		text += ", and it forgot them all"
	default:
		text += fmt.Sprintf("; it forgot them all in %d of %s", c.Counts[cost.GuestsSettled], words.Counted(c.Counts[cost.GuestsCounted], "block"))
	}
	return text + " (" + countsText(c) + ")"
}

// guestFacts are what a device's row says about its guests.
func guestFacts(c analysis.Cell) []fact {
	if c.Counts[cost.GuestBlocks] == 0 {
		return nil
	}
	text := guestsText(c)
	if c.Device("guest_login_p50_ms").Mean.Known() {
		text += fmt.Sprintf("; half were in within %s", millis(c.Device("guest_login_p50_ms").Mean))
	}
	return []fact{{"Guests", text}, {"Tracked connections", fromTo(c.Device("flows_before"), c.Device("flows_after"))}}
}

// churnSentences say what became of guests, one a block's setting.
func churnSentences(cells []analysis.Cell) (out []string) {
	for _, c := range cells {
		if c.Counts[cost.GuestBlocks] == 0 {
			continue
		}
		text := fmt.Sprintf("Guests: %s with %s: %s a second in %s, %s; log-in p50 %s, p99 %s; its memory %s MiB, rules %s lines, tracked connections %s",
			c.DUT(), words.Counted(c.Int(result.Clients), "client"), trimmed(c.Device("guests_per_second").Mean, 3), words.Counted(c.Counts[cost.GuestBlocks], "block"), guestsText(c),
			millis(c.Device("guest_login_p50_ms").Mean), millis(c.Device("guest_login_p99_ms").Mean),
			fromTo(c.Device("pss_before_mib"), c.Device("pss_after_mib")), fromTo(c.Device("rule_lines_before"), c.Device("rule_lines_after")), fromTo(c.Device("flows_before"), c.Device("flows_after")))
		if failures := c.Tallies[cost.GuestFailures]; len(failures) > 0 {
			text += fmt.Sprintf("; %d × such as: %s", failures[0].Count, failures[0].Text)
		}
		if !slices.Contains(out, text) { // loads of the same blocks share their guests
			out = append(out, text)
		}
	}
	return out
}
