package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// manyClients is from how many on it is worth a sentence that all of them were there at
// once. Fewer are a matter of course.
const manyClients = 1000

// crowdSentences say of each device's largest crowd how far it came.
func crowdSentences(cells []analysis.Cell) (out []string) {
	most := map[string]analysis.Cell{}
	var order []string
	for _, c := range cells {
		if !isCrowd(c) {
			continue
		}
		best, seen := most[c.DUT()]
		if !seen {
			order = append(order, c.DUT())
		}
		if c.Int(result.Clients) > best.Int(result.Clients) || c.Int(result.Clients) == best.Int(result.Clients) && offered(c.Cell) > offered(best.Cell) {
			most[c.DUT()] = c
		}
	}
	for _, dut := range order {
		c := most[dut]
		out = append(out, fmt.Sprintf("All at once: %s with %s at %s %s: %s.", c.DUT(), words.Counted(c.Int(result.Clients), "client"), rate(offered(c.Cell)), c.Text(result.Direction), crowdText(c)))
	}
	return out
}

// isCrowd reports whether so many clients came together that their number is a result.
func isCrowd(c analysis.Cell) bool {
	return c.Counts[cost.ClientBlocks] > 0 && c.Counts[cost.Connected] > 0 && c.Int(result.Clients) >= manyClients
}

// crowdText says how many clients had an address, were logged in and connected, and
// what they took of the machine.
func crowdText(c analysis.Cell) string {
	parts := []string{of(c.Counts[cost.Leased], c.Int(result.Clients)) + " had an address" + map[string]string{
		result.FromDevice: ", leased from it", result.FromLab: ", leased from the lab", result.Static: ", a static one",
	}[c.Texts[cost.AddressesFrom]]}
	if c.Counts[cost.LoggedIn] > 0 {
		parts = append(parts, of(c.Counts[cost.LoggedIn], c.Int(result.Clients))+" were logged in")
	}
	parts = append(parts, fmt.Sprintf("%s were connected at once, and %s at the clean router", countedStreams(c.Counts[cost.Connected], c), number(c.Counts[cost.CleanConnected])))
	if j := c.Device("jain").Mean; j.Known() {
		text := "Jain's index is " + fraction4(j)
		if most := c.Device("jain_even").Mean; most.Known() && j <= most*(1+1e-9) { // beyond it, bursts did not stay whole
			text += " of at most " + fraction4(most)
		}
		parts = append(parts, text)
	}
	if busy := c.Device("generator_core_pct").Mean; busy.Known() {
		parts = append(parts, fmt.Sprintf("the busiest traffic thread took %s of a core", percent(busy)))
	}
	if kib := c.Device("memory_kib_per_client").Mean; kib.Known() {
		parts = append(parts, fmt.Sprintf("both labs took %s KiB of the machine's memory a client", digits3(kib)))
	}
	return strings.Join(parts, "; ")
}

// of is "all 998" or "998 of 999".
func of(n, all int) string {
	if n == all {
		return "all " + number(all)
	}
	return number(n) + " of " + number(all)
}

func number(n int) string { return words.Grouped(strconv.Itoa(n)) }

// countedStreams are those of a cell's clients: one each, or one each way.
func countedStreams(n int, c analysis.Cell) string {
	all := c.Int(result.Clients)
	if c.Text(result.Direction) == result.Both {
		all *= 2
	}
	return of(n, all) + " streams"
}
