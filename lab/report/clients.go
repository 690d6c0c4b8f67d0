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

// manyClients is the smallest number of clients that a sentence about simultaneous clients is written for.
const manyClients = 1000

// totalsSentences describes the clients of each device at its largest number of clients.
func totalsSentences(cells []analysis.Cell) (out []string) {
	large := slices.DeleteFunc(slices.Clone(cells), func(c analysis.Cell) bool { return !manyAtOnce(c) })
	for _, c := range onePerDevice(large, func(c, than analysis.Cell) bool {
		return result.CompareCells(c.Cell, than.Cell, result.Clients, result.OfferedMbps) > 0
	}) {
		out = append(out, fmt.Sprintf("All at once: %s with %s at %s %s: %s.", c.DUT(), clientsOf(c.Cell), rate(offeredMbps(
			c.Cell)), c.Text(result.Direction), totalsText(c)))
	}
	return out
}

// manyAtOnce reports whether the number of simultaneous clients is a result in itself.
func manyAtOnce(c analysis.Cell) bool {
	return c.Counts[cost.ClientBlocks] > 0 && c.Counts[cost.Connected] > 0 && c.Int(result.Clients) >= manyClients
}

// totalsText says how many clients had an address, were logged in and connected, and how much of the machine they took.
func totalsText(c analysis.Cell) string {
	clients, streams := c.Int(result.Clients), c.Int(result.Clients)
	if c.Text(result.Direction) == result.Both { // one stream each way
		streams *= 2
	}
	parts := []string{ofAll(c.Counts[cost.Leased], clients) + " had an address" + map[string]string{
		result.FromDevice: ", leased from it", result.FromLab: ", leased from the lab", result.Static: ", a static one",
	}[c.Texts[cost.AddressesFrom]]}
	if c.Counts[cost.LoggedIn] > 0 {
		parts = append(parts, ofAll(c.Counts[cost.LoggedIn], clients)+" were logged in")
	}
	parts = append(parts, fmt.Sprintf("%s streams were connected at once, and %s at the clean router", ofAll(
		c.Counts[cost.Connected], streams), groupedCount(c.Counts[cost.CleanConnected])))
	if j := c.Device(cost.Jain).Mean; j.Known() {
		text := "Jain's index is " + fraction4(j)
		if most := c.Device(cost.JainEven).Mean; most.Known() && j <= most*(1+1e-9) {
			// with a larger figure, bursts were split
			text += " of at most " + fraction4(most)
		}
		parts = append(parts, text)
	}
	if busy := c.Device(cost.GeneratorCorePct).Mean; busy.Known() {
		parts = append(parts, fmt.Sprintf("the busiest traffic thread took %s of a core", percent(busy)))
	}
	if kib := c.Device(cost.MemoryKiBPerClient).Mean; kib.Known() {
		parts = append(parts, fmt.Sprintf("both labs took %s KiB of the machine's memory a client", digits3(kib)))
	}
	return strings.Join(parts, "; ")
}

// ofAll says how many of all clients there are: "all 998" or "998 of 999".
func ofAll(n, all int) string {
	if n == all {
		return "all " + groupedCount(all)
	}
	return groupedCount(n) + " of " + groupedCount(all)
}

// forgetText says after how many blocks the device knew as many clients as before the guests.
func forgetText(c analysis.Cell) string {
	if c.Counts[cost.GuestsCounted] == 0 {
		return "it reports no counts"
	}
	return fmt.Sprintf("%d of %s", c.Counts[cost.GuestsSettled], words.Counted(c.Counts[cost.GuestsCounted], "block"))
}

// beforeAndAfter formats a metric before the first guest and after the last one.
func beforeAndAfter(c analysis.Cell, before, after string) string {
	return significantTrimmed(c.Device(before).Mean, 4) + " → " + significantTrimmed(c.Device(after).Mean, 4)
}

// countsText has the numbers of clients that the device reports before and after the guests.
func countsText(c analysis.Cell) string {
	var parts []string
	for _, name := range cost.CountNames(c) {
		parts = append(parts, name+" "+beforeAndAfter(c, cost.CountBefore+name, cost.CountAfter+name))
	}
	return strings.Join(parts, ", ")
}

func guestsIn(c analysis.Cell) string {
	return fmt.Sprintf("%d of %s got in", c.Counts[cost.GuestsIn], words.Counted(c.Counts[cost.GuestsCame], "guest"))
}

// guestsText says how many guests of a device logged in, and whether the device forgot them. A guest is a client that
// arrives during a measurement and soon leaves.
func guestsText(c analysis.Cell) string {
	text, counted := guestsIn(c), c.Counts[cost.GuestsCounted]
	if c.Counts[cost.GuestsCame] == 0 {
		return "no guest came"
	}
	if c.Counts[cost.GuestsIn] == c.Counts[cost.GuestsCame] {
		text = fmt.Sprintf("all %s got in", words.Counted(c.Counts[cost.GuestsCame], "guest"))
	}
	if c.Counts[cost.GuestsGone] < c.Counts[cost.GuestsIn] {
		text += fmt.Sprintf(", %d left in order", c.Counts[cost.GuestsGone])
	}
	switch {
	case counted == 0:
		return text + "; the device does not report whom it knows"
	case c.Counts[cost.GuestsSettled] == counted:
		text += ", and it forgot them all"
	default:
		text += "; it forgot them all in " + forgetText(c)
	}
	return text + " (" + countsText(c) + ")"
}

// guestsFact is the text about guests in a device's row.
func guestsFact(c analysis.Cell) string {
	text := guestsText(c)
	if half := c.Device(cost.GuestLoginP50Ms).Mean; half.Known() {
		text += "; half were in within " + millis(half)
	}
	return text
}

// churnSentences describes the guests of each device. Loads of the same blocks have the same guests, and share a
// sentence.
func churnSentences(cells []analysis.Cell) (out []string) {
	for _, c := range cells {
		if c.Counts[cost.GuestBlocks] == 0 {
			continue
		}
		text := fmt.Sprintf(
			"Guests: %s with %s: %s a second in %s, %s; login p50 %s, p99 %s; its memory %s MiB, rules %s lines, tracked "+
				"connections %s",
			c.DUT(), clientsOf(c.Cell), significantTrimmed(c.Device(cost.GuestsPerSecond).Mean, 3),
			words.Counted(c.Counts[cost.GuestBlocks], "block"), guestsText(c),
			millis(c.Device(cost.GuestLoginP50Ms).Mean), millis(c.Device(cost.GuestLoginP99Ms).Mean),
			beforeAndAfter(c, cost.PSSBeforeMiB, cost.PSSAfterMiB), beforeAndAfter(c, cost.RuleLinesBefore, cost.RuleLinesAfter),
			beforeAndAfter(c, cost.FlowsBefore, cost.FlowsAfter))
		if failures := c.Tallies[cost.GuestFailures]; len(failures) > 0 {
			text += "; " + reasonWithCount(failures[0])
		}
		out = append(out, text)
	}
	return distinct(out)
}
