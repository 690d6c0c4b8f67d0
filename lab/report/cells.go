package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"

	"github.com/gateweigh/gateweigh/lab/words"
)

func overheadColumn(s analysis.Summary) gridColumn {
	name := "Overhead"
	if s.Sides != nil {
		name = "Ratio"
	}
	return change(cost.PerBit, name, "× per bit", ratio)
}

// resultsGrid is what most readers want, the answer first: a phone shows only
// the first columns at once.
func resultsGrid(s analysis.Summary) grid {
	verdict := gridColumn{gridHead{Name: "Verdict", Unit: fmt.Sprintf("within %g %% is equivalent", 100*s.Delta), Text: true, Field: "verdict.word"},
		func(c analysis.Cell) gridCell {
			note := chance(c)
			if c.BlocksNeeded != nil {
				note = "needs about " + words.Counted(*c.BlocksNeeded, "more block")
			}
			return badgeCell(c.Verdict, note)
		}}
	return build("Every cell: means over blocks, their intervals in brackets", s.Cells,
		overheadColumn(s), verdict,
		device(cost.Delivered, "Delivered", "Mbit/s", digits4),
		clean(cost.CPU, "Clean CPU", "% of a core", bare),
		device(cost.CPU, "DUT CPU", "% of a core", bare),
		numberColumn("Increase", "%, normalised", "", bare, cost.IncreasePct),
		device("ns_per_packet", "Per packet", "ns", digits3),
		device("rtt_p99_median_us", "RTT p99", "µs, median of windows", digits3),
		device("pss_mib", "Memory", "PSS, MiB", digits3),
	)
}

// cellTable is a table of cells below the results; it is left out where cells have
// none of its figures.
type cellTable struct {
	caption string
	needs   func(analysis.Cell) bool // nil: always shown
	columns []gridColumn
}

func hasMetric(name string) func(analysis.Cell) bool {
	return func(c analysis.Cell) bool { return c.Device(name).Mean.Known() }
}

func hasCount(name string) func(analysis.Cell) bool {
	return func(c analysis.Cell) bool { return c.Counts[name] > 0 }
}

const (
	intervals  = ": means over blocks with their intervals"
	perMedian  = "µs, median of all windows"
	perMean    = "µs, mean of the blocks"
	perSegment = "packets back for one with payload"
)

// costTables are all other figures, in tables that fit a screen.
var costTables = []cellTable{
	{"CPU" + intervals, nil, []gridColumn{
		device(cost.Normalised, "Normalised CPU", "eq. 5.1, % of a core", bare), clean(cost.Normalised, "Clean normalised", "eq. 5.1, % of a core", bare),
		device("cpu_machine_pct", "Router CPU", "% of the machine", bare), device("process_core_pct", "In processes", "% of a core", bare),
		device("daemon_core_pct", "Processes, whole block", "% of a core", bare), device("machine_busy_pct", "Machine busy", "%, /proc/stat, all labs", bare),
		device("meter_core_pct", "Metering", "% of a core", bare),
	}},
	{"Round-trip time under load: the median over all windows, and the mean over the blocks' medians with its interval", nil, []gridColumn{
		device("rtt_p50_median_us", "DUT p50", perMedian, digits3), clean("rtt_p50_median_us", "Clean p50", perMedian, digits3),
		device("rtt_p99_median_us", "DUT p99", perMedian, digits3), clean("rtt_p99_median_us", "Clean p99", perMedian, digits3),
		device("rtt_p50_us", "DUT p50", perMean, digits3), clean("rtt_p50_us", "Clean p50", perMean, digits3),
		device("rtt_p99_us", "DUT p99", perMean, digits3), clean("rtt_p99_us", "Clean p99", perMean, digits3),
	}},
	{"Traffic" + intervals, nil, []gridColumn{
		clean(cost.Delivered, "Clean delivered", "Mbit/s", digits4), device(cost.Link, "On the link", "Mbit/s with headers", digits4),
		device("loss_ratio", "Loss", "% on the router", percentOf), clean("loss_ratio", "Clean loss", "% on the router", percentOf),
		device("retransmit_ratio", "Retransmitted", "%", percentOf), device("aggregation_factor", "Aggregation", "frames per packet", digits3),
	}},
	{"How packets came: the longer the bursts and the fewer the acknowledgements, the less each costs" + intervals, nil, []gridColumn{
		device("segments_per_burst", "Segments per burst", "as sent", digits3), clean("segments_per_burst", "Clean router's", "as sent", digits3),
		device("packets_per_wakeup", "Packets per wake-up", "of a polling thread", digits3), clean("packets_per_wakeup", "Clean router's", "a wake-up", digits3),
		device("acks_per_segment", "ACKs per segment", perSegment, digits3), clean("acks_per_segment", "Clean router's", "a segment", digits3),
		device("ns_per_packet", "Per packet", "ns", digits3), clean("ns_per_packet", "Clean router's", "ns a packet", digits3),
	}},
	{"Streams of the lab's generator" + intervals, hasMetric("connect_p50_us"), []gridColumn{
		device("jain", "Fairness", "Jain's index", fraction4), device("jain_even", "Most possible", "each carries whole bursts", fraction4),
		clean("jain", "Clean fairness", "Jain's index", fraction4),
		device("stream_min_mbps", "Least", "Mbit/s of one stream", digits3), device("stream_max_mbps", "Most", "Mbit/s of one stream", digits3),
		device("connect_p50_us", "Connect p50", "µs", digits3), device("connect_p99_us", "Connect p99", "µs", digits3),
		device("first_byte_p50_us", "First byte p50", "µs", digits3), device("first_byte_p99_us", "First byte p99", "µs", digits3),
	}},
	{"Datagrams of the lab's generator" + intervals, hasMetric("datagram_loss_ratio"), []gridColumn{
		device("datagram_loss_ratio", "Lost", "% of the datagrams", percentOf), clean("datagram_loss_ratio", "Clean lost", "% of the datagrams", percentOf),
		device("reordered_ratio", "Reordered", "% of those that came", percentOf), clean("reordered_ratio", "Clean reordered", "% of those that came", percentOf),
	}},
	{"Short connections beside the streams" + intervals, hasMetric("short_per_second"), []gridColumn{
		device("short_per_second", "Answered", "a second", digits4), clean("short_per_second", "Clean router's", "a second", digits4),
		device("short_failed", "Failed", "a block", digits3), device("short_connect_p99_us", "Connect p99", "µs", digits3),
		device("short_whole_p50_us", "Whole p50", "µs", digits3), device("short_whole_p99_us", "Whole p99", "µs", digits3),
	}},
	{"Guests that came and went, and the device before and after", hasCount(cost.GuestBlocks), []gridColumn{
		device("guests_per_second", "Guests", "a second", digits3), counts(cost.GuestsCame, "Came", ""), counts(cost.GuestsIn, "Got in", ""), counts(cost.GuestsGone, "Left", ""),
		device("guest_login_p50_ms", "Log-in p50", "ms", digits3), device("guest_login_p99_ms", "Log-in p99", "ms", digits3),
		textColumn("Forgotten", forgotten), textColumn("It knows", func(c analysis.Cell) string { return words.Or(countsText(c), none) }),
		device("pss_before_mib", "Memory before", "PSS, MiB", digits3), device("pss_after_mib", "Memory after", "PSS, MiB", digits3),
		device("rule_lines_before", "Rules before", "lines", digits3), device("rule_lines_after", "Rules after", "lines", digits3),
		device("flows_before", "Tracked before", "connections", digits3), device("flows_after", "Tracked after", "connections", digits3),
	}},
	{"All clients at once, of several blocks the one that came least far", hasCount(cost.ClientBlocks), []gridColumn{
		textColumn("Addresses", func(c analysis.Cell) string { return words.Or(c.Texts[cost.AddressesFrom], none) }),
		textColumn("Clean router's", func(c analysis.Cell) string { return words.Or(c.Texts[cost.CleanAddressFrom], none) }),
		counts(cost.Leased, "Have one", ""), counts(cost.LoggedIn, "Logged in", ""), counts(cost.Connected, "Streams", ""), counts(cost.CleanConnected, "Clean router's", ""),
		device("warmup_seconds", "Warm-up", "s", digits3), device("memory_kib_per_client", "Both labs", "KiB of the machine a client", digits3),
	}},
	{"Memory, set-up and clients" + intervals, nil, []gridColumn{
		device("pss_mib", "Memory", "PSS, MiB", digits3), device("setup_seconds", "Set-up", "s, labs and DUT", digits3),
		device("lease_seconds", "Leases", "s, all clients", digits3), device("login_seconds", "Log-ins", "s, all clients", digits3),
		device("login_p50_ms", "Log-in p50", "ms, one client", digits3), device("login_p99_ms", "Log-in p99", "ms, one client", digits3),
	}},
	// Near a full core the ends, and not the device, decide what is carried.
	{"The ends' own load" + intervals, nil, []gridColumn{
		device("client_core_pct", "Client hosts", "% of a core", bare), clean("client_core_pct", "Clean router's", "% of a core", bare),
		device("server_core_pct", "Server", "% of a core", bare), device("generator_core_pct", "Busiest traffic thread", "% of a core", bare),
	}},
}

// tablesOf are those of the tables that cells have figures for.
func tablesOf(cells []analysis.Cell, tables []cellTable) (grids []grid) {
	for _, t := range tables {
		if t.needs == nil || slices.ContainsFunc(cells, t.needs) {
			grids = append(grids, build(t.caption, cells, t.columns...))
		}
	}
	return grids
}

func furtherGrids(s analysis.Summary) []grid {
	return append(tablesOf(s.Cells, costTables), verdictGrid(s), trialsGrid(s.Cells))
}

// verdictGrid shows what the verdicts rest on.
func verdictGrid(s analysis.Summary) grid {
	four := func(n analysis.Number) string {
		if n.Known() && n < 0.0001 {
			return "< 0.0001"
		}
		return fraction4(n)
	}
	return build("Verdicts and what they rest on; p-values are adjusted for judging all cells at once", s.Cells,
		overheadColumn(s),
		numberColumn("p, different", "if the ratio were 1", "verdict.p_different", four, func(c analysis.Cell) analysis.Number { return c.PDifferent }),
		numberColumn("p, equivalent", "if it were outside δ", "verdict.p_equivalent", four, func(c analysis.Cell) analysis.Number { return c.PEquivalent }),
		numberColumn("Spread", "sd of block log ratios", "verdict.sd_log", fraction4, func(c analysis.Cell) analysis.Number { return c.SDLog }),
		countColumn("Blocks", "", "blocks", func(c analysis.Cell) int { return c.Blocks }),
		textColumn("Verdict", func(c analysis.Cell) string { return c.Verdict }),
		textColumn("Because", func(c analysis.Cell) string { return c.VerdictNote }),
	)
}

func trialsGrid(cells []analysis.Cell) grid {
	return build("Trials: pairs are those accepted; flags with the number of pairs they were seen in", cells,
		countColumn("Pairs", "", "pairs", func(c analysis.Cell) int { return c.Pairs }),
		countColumn("Blocks", "", "blocks", func(c analysis.Cell) int { return c.Blocks }),
		countColumn("Rejected", "", "rejected", func(c analysis.Cell) int { return c.Rejected }),
		countColumn("Redone", "", "redone", func(c analysis.Cell) int { return c.Redone }),
		textColumn("Flags", flagText),
	)
}

func flagText(c analysis.Cell) string {
	var parts []string
	for _, f := range c.Flags {
		parts = append(parts, fmt.Sprintf("%s (%d)", f.Text, f.Count))
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, ", ")
}
