package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// identity names the cell in every table; the device's name is the row's header.
func identity(cells []analysis.Cell) []gridColumn {
	cols := []gridColumn{{gridHead{Name: "DUT", Text: true}, func(c analysis.Cell) gridCell {
		return gridCell{Main: c.DUT, Sort: c.DUT, Text: true, Header: true}
	}}}
	for _, col := range []gridColumn{
		textColumn("Profile", func(c analysis.Cell) string { return c.Profile }),
		textColumn("Direction", func(c analysis.Cell) string { return c.Direction }),
	} {
		for _, c := range cells {
			if col.cell(c) != col.cell(cells[0]) {
				cols = append(cols, col)
				break
			}
		}
	}
	return append(cols,
		countColumn("Clients", func(c analysis.Cell) int { return c.Clients }),
		numberColumn("Offered", "Mbit/s", digits4, func(c analysis.Cell) analysis.Number { return c.OfferedMbps }))
}

func overheadColumn(s analysis.Summary) gridColumn {
	name := "Overhead"
	if s.Sides != nil {
		name = "Ratio"
	}
	return estimateColumn(name, "× per bit", ratio,
		func(c analysis.Cell) analysis.Estimate { return c.OverheadRatio }).field("overhead_ratio.mean")
}

// resultsGrid is what most readers want, the answer first: a phone shows only
// the first columns at once.
func resultsGrid(s analysis.Summary) grid {
	verdict := gridColumn{gridHead{Name: "Verdict", Unit: fmt.Sprintf("within %g %% is equivalent", 100*s.Delta), Text: true, Field: "verdict"},
		func(c analysis.Cell) gridCell {
			note := chance(c)
			if c.BlocksNeeded != nil {
				note = "needs about " + counted(*c.BlocksNeeded, "more block")
			}
			return badgeCell(c.Verdict, note)
		}}
	return build("Every cell: means over blocks, their intervals in brackets", s.Cells, append(identity(s.Cells),
		overheadColumn(s), verdict,
		estimateColumn("Delivered", "Mbit/s", digits4, func(c analysis.Cell) analysis.Estimate { return c.Intervals.DeliveredMbps }).field("delivered_mbps"),
		estimateColumn("Clean CPU", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.CleanCPUCorePct }).field("clean_cpu_core_pct.mean"),
		estimateColumn("DUT CPU", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.CPUCorePct }).field("cpu_core_pct.mean"),
		numberColumn("Increase", "%, normalised", bare, func(c analysis.Cell) analysis.Number { return c.IncreasePct }).field("increase_pct"),
		estimateColumn("Per packet", "ns", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.NsPerPacket }).field("ns_per_packet"),
		numberColumn("RTT p99", "µs, median of windows", digits3, func(c analysis.Cell) analysis.Number { return c.RTT.P99 }).field("rtt_us.p99"),
		numberColumn("Memory", "PSS, MiB", digits3, func(c analysis.Cell) analysis.Number { return c.PSSMiB }).field("pss_mib"),
	))
}

// furtherGrids are all other figures, in tables that fit a screen.
func furtherGrids(s analysis.Summary) []grid {
	cells := s.Cells
	const intervals = ": means over blocks with their intervals"
	grids := []grid{cpuGrid(cells, intervals), delayGrid(cells), trafficGrid(cells, intervals), packetsGrid(cells, intervals)}
	if slices.ContainsFunc(cells, func(c analysis.Cell) bool { return c.Streams.ConnectP50us.Mean.Known() }) {
		grids = append(grids, streamsGrid(cells, intervals))
	}
	if slices.ContainsFunc(cells, func(c analysis.Cell) bool { return c.Intervals.DatagramLossRatio.Mean.Known() }) {
		grids = append(grids, datagramsGrid(cells, intervals))
	}
	if slices.ContainsFunc(cells, func(c analysis.Cell) bool { return c.Streams.ShortPerSecond.Mean.Known() }) {
		grids = append(grids, shortGrid(cells, intervals))
	}
	if slices.ContainsFunc(cells, func(c analysis.Cell) bool { return c.Churn.Blocks > 0 }) {
		grids = append(grids, churnGrid(cells))
	}
	if slices.ContainsFunc(cells, func(c analysis.Cell) bool { return c.Crowd.Blocks > 0 }) {
		grids = append(grids, crowdGrid(cells))
	}
	return append(grids, clientsGrid(cells, intervals), endpointsGrid(cells, intervals), verdictGrid(s), trialsGrid(cells))
}

func cpuGrid(cells []analysis.Cell, intervals string) grid {
	return build("CPU"+intervals, cells, append(identity(cells),
		estimateColumn("Normalised CPU", "eq. 5.1, % of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CPUNormalisedPct }).field("cpu_normalised_pct"),
		estimateColumn("Clean normalised", "eq. 5.1, % of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanCPUNormalisedPct }),
		estimateColumn("Router CPU", "% of the machine", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CPUMachinePct }),
		estimateColumn("In processes", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.ProcessCorePct }),
		estimateColumn("Processes, whole block", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.DaemonCorePct }),
		estimateColumn("Machine busy", "%, /proc/stat, all labs", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.MachineBusyPct }),
		estimateColumn("Metering", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.MeterCorePct }),
	))
}

// delayGrid has the medians that cards and results show, and beside them what has an
// interval. They differ where a few blocks were slow.
func delayGrid(cells []analysis.Cell) grid {
	const median, mean = "µs, median of all windows", "µs, mean of the blocks"
	return build("Round-trip time under load: the median over all windows, and the mean over the blocks' medians with its interval", cells, append(identity(cells),
		numberColumn("DUT p50", median, digits3, func(c analysis.Cell) analysis.Number { return c.RTT.P50 }).field("rtt_us.p50"),
		numberColumn("Clean p50", median, digits3, func(c analysis.Cell) analysis.Number { return c.CleanRTT.P50 }).field("clean_rtt_us.p50"),
		numberColumn("DUT p99", median, digits3, func(c analysis.Cell) analysis.Number { return c.RTT.P99 }).field("rtt_us.p99"),
		numberColumn("Clean p99", median, digits3, func(c analysis.Cell) analysis.Number { return c.CleanRTT.P99 }).field("clean_rtt_us.p99"),
		estimateColumn("DUT p50", mean, digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.RTTP50us }).field("intervals.rtt_p50_us.mean"),
		estimateColumn("Clean p50", mean, digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanRTTP50us }).field("intervals.clean_rtt_p50_us.mean"),
		estimateColumn("DUT p99", mean, digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.RTTP99us }).field("intervals.rtt_p99_us.mean"),
		estimateColumn("Clean p99", mean, digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanRTTP99us }).field("intervals.clean_rtt_p99_us.mean"),
	))
}

func trafficGrid(cells []analysis.Cell, intervals string) grid {
	return build("Traffic"+intervals, cells, append(identity(cells),
		estimateColumn("Clean delivered", "Mbit/s", digits4, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanDeliveredMbps }),
		estimateColumn("On the link", "Mbit/s with headers", digits4, func(c analysis.Cell) analysis.Estimate { return c.Intervals.LinkMbps }),
		estimateColumn("Loss", "% on the router", percentOf, func(c analysis.Cell) analysis.Estimate { return c.Intervals.LossRatio }).field("loss_ratio"),
		estimateColumn("Clean loss", "% on the router", percentOf, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanLossRatio }),
		estimateColumn("Retransmitted", "%", percentOf, func(c analysis.Cell) analysis.Estimate { return c.Intervals.RetransmitRatio }).field("retransmit_ratio"),
		estimateColumn("Aggregation", "frames per packet", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.AggregationFactor }),
	))
}

// datagramsGrid is what became of UDP on its whole way, by the numbers datagrams carry.
func datagramsGrid(cells []analysis.Cell, intervals string) grid {
	return build("Datagrams of the lab's generator"+intervals, cells, append(identity(cells),
		estimateColumn("Lost", "% of the datagrams", percentOf, func(c analysis.Cell) analysis.Estimate { return c.Intervals.DatagramLossRatio }).field("intervals.datagram_loss_ratio.mean"),
		estimateColumn("Clean lost", "% of the datagrams", percentOf, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanDatagramLossRatio }),
		estimateColumn("Reordered", "% of those that came", percentOf, func(c analysis.Cell) analysis.Estimate { return c.Intervals.ReorderedRatio }),
		estimateColumn("Clean reordered", "% of those that came", percentOf, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanReorderedRatio }),
	))
}

func clientsGrid(cells []analysis.Cell, intervals string) grid {
	return build("Memory, set-up and clients"+intervals, cells, append(identity(cells),
		estimateColumn("Memory", "PSS, MiB", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.PSSMiB }),
		estimateColumn("Set-up", "s, labs and DUT", digits3, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.SetupSeconds }),
		estimateColumn("Leases", "s, all clients", digits3, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.LeaseSeconds }),
		estimateColumn("Log-ins", "s, all clients", digits3, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.LoginSeconds }),
		estimateColumn("Log-in p50", "ms, one client", digits3, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.LoginP50ms }),
		estimateColumn("Log-in p99", "ms, one client", digits3, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.LoginP99ms }),
	))
}

// streamsGrid is how streams began and how evenly they shared the load.
func streamsGrid(cells []analysis.Cell, intervals string) grid {
	return build("Streams of the lab's generator"+intervals, cells, append(identity(cells),
		estimateColumn("Fairness", "Jain's index", fraction4, func(c analysis.Cell) analysis.Estimate { return c.Streams.Jain }).field("streams.jain.mean"),
		estimateColumn("Most possible", "each carries whole bursts", fraction4, func(c analysis.Cell) analysis.Estimate { return c.Streams.JainEven }),
		estimateColumn("Clean fairness", "Jain's index", fraction4, func(c analysis.Cell) analysis.Estimate { return c.Streams.CleanJain }),
		estimateColumn("Least", "Mbit/s of one stream", digits3, func(c analysis.Cell) analysis.Estimate { return c.Streams.StreamMinMbps }),
		estimateColumn("Most", "Mbit/s of one stream", digits3, func(c analysis.Cell) analysis.Estimate { return c.Streams.StreamMaxMbps }),
		estimateColumn("Connect p50", "µs", digits3, func(c analysis.Cell) analysis.Estimate { return c.Streams.ConnectP50us }),
		estimateColumn("Connect p99", "µs", digits3, func(c analysis.Cell) analysis.Estimate { return c.Streams.ConnectP99us }),
		estimateColumn("First byte p50", "µs", digits3, func(c analysis.Cell) analysis.Estimate { return c.Streams.FirstByteP50us }),
		estimateColumn("First byte p99", "µs", digits3, func(c analysis.Cell) analysis.Estimate { return c.Streams.FirstByteP99us }),
	))
}

// endpointsGrid is what the machines at both ends did: near a full core they, and not
// the device, decide what is carried.
func endpointsGrid(cells []analysis.Cell, intervals string) grid {
	return build("The ends' own load"+intervals, cells, append(identity(cells),
		estimateColumn("Client hosts", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.ClientCorePct }),
		estimateColumn("Clean router's", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanClientCorePct }),
		estimateColumn("Server", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.ServerCorePct }),
		estimateColumn("Busiest traffic thread", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.GeneratorCorePct }),
	))
}

// shortGrid is what became of connections that carry one answer and end.
func shortGrid(cells []analysis.Cell, intervals string) grid {
	return build("Short connections beside the streams"+intervals, cells, append(identity(cells),
		estimateColumn("Answered", "a second", digits4, func(c analysis.Cell) analysis.Estimate { return c.Streams.ShortPerSecond }),
		estimateColumn("Clean router's", "a second", digits4, func(c analysis.Cell) analysis.Estimate { return c.Streams.CleanShortPerSecond }),
		estimateColumn("Failed", "a block", digits3, func(c analysis.Cell) analysis.Estimate { return c.Streams.ShortFailed }),
		estimateColumn("Connect p99", "µs", digits3, func(c analysis.Cell) analysis.Estimate { return c.Streams.ShortConnectP99us }),
		estimateColumn("Whole p50", "µs", digits3, func(c analysis.Cell) analysis.Estimate { return c.Streams.ShortWholeP50us }),
		estimateColumn("Whole p99", "µs", digits3, func(c analysis.Cell) analysis.Estimate { return c.Streams.ShortWholeP99us }),
	))
}

// verdictGrid shows what the verdicts rest on.
func verdictGrid(s analysis.Summary) grid {
	cells := s.Cells
	four := func(n analysis.Number) string {
		if n.Known() && n < 0.0001 {
			return "< 0.0001"
		}
		return fraction4(n)
	}
	return build("Verdicts and what they rest on; p-values are adjusted for judging all cells at once", cells, append(identity(cells),
		overheadColumn(s),
		numberColumn("p, different", "if the ratio were 1", four, func(c analysis.Cell) analysis.Number { return c.PDifferent }).field("p_different"),
		numberColumn("p, equivalent", "if it were outside δ", four, func(c analysis.Cell) analysis.Number { return c.PEquivalent }).field("p_equivalent"),
		numberColumn("Spread", "sd of block log ratios", fraction4, func(c analysis.Cell) analysis.Number { return c.SDLog }).field("sd_log"),
		countColumn("Blocks", func(c analysis.Cell) int { return c.Blocks }),
		textColumn("Verdict", func(c analysis.Cell) string { return c.Verdict }),
		textColumn("Because", func(c analysis.Cell) string { return c.VerdictNote }),
	))
}

func trialsGrid(cells []analysis.Cell) grid {
	return build("Trials: pairs are those accepted; flags with the number of pairs they were seen in", cells, append(identity(cells),
		countColumn("Pairs", func(c analysis.Cell) int { return c.Pairs }).field("pairs"),
		countColumn("Blocks", func(c analysis.Cell) int { return c.Blocks }).field("blocks"),
		countColumn("Rejected", func(c analysis.Cell) int { return c.Rejected }).field("rejected"),
		countColumn("Redone", func(c analysis.Cell) int { return c.Redone }).field("redone"),
		textColumn("Flags", flagText),
	))
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
