package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
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
		best, seen := most[c.DUT]
		if !seen {
			order = append(order, c.DUT)
		}
		if c.Clients > best.Clients || c.Clients == best.Clients && c.OfferedMbps > best.OfferedMbps {
			most[c.DUT] = c
		}
	}
	for _, dut := range order {
		c := most[dut]
		out = append(out, fmt.Sprintf("All at once: %s with %s at %s %s: %s.", c.DUT, counted(c.Clients, "client"), rate(c.OfferedMbps), c.Direction, crowdText(c)))
	}
	return out
}

// isCrowd reports whether so many clients came together that their number is a result.
func isCrowd(c analysis.Cell) bool {
	return c.Crowd.Blocks > 0 && c.Crowd.Connected > 0 && c.Clients >= manyClients
}

// crowdText says how many clients had an address, were logged in and connected, and
// what they took of the machine.
func crowdText(c analysis.Cell) string {
	w := c.Crowd
	parts := []string{of(w.Leased, c.Clients) + " had an address" + map[string]string{
		result.FromDevice: ", leased from it", result.FromLab: ", leased from the lab", result.Static: ", a static one",
	}[w.Addresses]}
	if w.LoggedIn > 0 {
		parts = append(parts, of(w.LoggedIn, c.Clients)+" were logged in")
	}
	parts = append(parts, fmt.Sprintf("%s were connected at once, and %s at the clean router", countedStreams(w.Connected, c), number(w.CleanConnected)))
	if j := c.Streams.Jain.Mean; j.Known() {
		text := "Jain's index is " + fraction4(j)
		if most := c.Streams.JainEven.Mean; most.Known() && j <= most*(1+1e-9) { // beyond it, bursts did not stay whole
			text += " of at most " + fraction4(most)
		}
		parts = append(parts, text)
	}
	if busy := c.Intervals.GeneratorCorePct.Mean; busy.Known() {
		parts = append(parts, fmt.Sprintf("the busiest traffic thread took %s of a core", percent(busy)))
	}
	if kib := w.MemoryKiBPerClient.Mean; kib.Known() {
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

func number(n int) string { return grouped(strconv.Itoa(n)) }

// countedStreams are those of a cell's clients: one each, or one each way.
func countedStreams(n int, c analysis.Cell) string {
	all := c.Clients
	if c.Direction == result.Both {
		all *= 2
	}
	return of(n, all) + " streams"
}

// crowdGrid is how far the clients of each cell came together.
func crowdGrid(cells []analysis.Cell) grid {
	return build("All clients at once, of several blocks the one that came least far", cells, append(identity(cells),
		textColumn("Addresses", func(c analysis.Cell) string { return nonEmpty(c.Crowd.Addresses, none) }),
		textColumn("Clean router's", func(c analysis.Cell) string { return nonEmpty(c.Crowd.CleanAddresses, none) }),
		countColumn("Have one", func(c analysis.Cell) int { return c.Crowd.Leased }),
		countColumn("Logged in", func(c analysis.Cell) int { return c.Crowd.LoggedIn }),
		countColumn("Streams", func(c analysis.Cell) int { return c.Crowd.Connected }),
		countColumn("Clean router's", func(c analysis.Cell) int { return c.Crowd.CleanConnected }),
		estimateColumn("Warm-up", "s", digits3, func(c analysis.Cell) analysis.Estimate { return c.Crowd.WarmupSeconds }),
		estimateColumn("Both labs", "KiB of the machine a client", digits3, func(c analysis.Cell) analysis.Estimate { return c.Crowd.MemoryKiBPerClient }).field("crowd.memory_kib_per_client.mean"),
	))
}
