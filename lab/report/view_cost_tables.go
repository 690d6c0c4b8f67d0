package report

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/words"
)

// ratioHead is the heading of the ratio in tables.
func ratioHead(s analysis.Summary) string {
	if s.Sides != nil {
		return "ratio"
	}
	return "overhead"
}

func overheadColumn(s analysis.Summary) cellColumn {
	return changeColumn(cost.PerBit, words.Capitalised(ratioHead(s)), "* per bit")
}

// resultsGrid has the most important figures. The answer comes first, because a phone shows only the first columns.
func resultsGrid(s analysis.Summary) grid {
	verdict := gridHead{
		Name: "Verdict", Unit: fmt.Sprintf("within %g %% is equivalent", 100*s.Delta), Text: true, Field: "verdict.word"}
	return build("Every cell: means over blocks, their intervals in brackets", s, s.Cells,
		overheadColumn(s),
		cellColumn{gridHead: verdict, cell: func(c analysis.Cell) gridCell {
			needs := ""
			if c.BlocksNeeded != nil {
				needs = "needs about " + words.Counted(*c.BlocksNeeded, "more "+repeat(s))
			}
			return badgeCell(c.Verdict, words.Or(words.Joined("; ", togetherText(c.Together, ratio, "cells"), needs), chance(c)))
		}},
		device(cost.Delivered, "Delivered", "*"),
		cleanColumn(cost.CPU, "Clean CPU", "*"), device(cost.CPU, "DUT CPU", "*"),
		device(cost.IncreasePct, "Increase", "*, normalised"), device(cost.NsPerPacket, "Per packet", "*"),
		device(cost.RTTP99MedianUs, "RTT p99", "*, median of windows"), device(cost.PSSMiB, "Memory", "PSS, *"))
}

// togetherText returns the interval for all cells together, where it left a verdict open although the interval shown
// would not. Otherwise it is empty.
func togetherText(e *analysis.Estimate, print format, noun string) string {
	if e == nil {
		return ""
	}
	return "all " + noun + " together: " + bounds(*e, print)
}

const (
	intervals       = ": means over blocks with their intervals"
	perMedian       = "*, median of all windows"
	perMean         = "*, mean of the blocks"
	perSegment      = "* back for one with payload"
	shareOfSent     = "% of the datagrams"
	shareOfReceived = "% of those that came"
)

// costTables has all other figures, in tables that fit a screen.
var costTables = []cellTable{
	{"CPU" + intervals, "", []cellColumn{
		device(cost.Normalised, "Normalised CPU", "eq. 5.1, *"),
		cleanColumn(cost.Normalised, "Clean normalised", "eq. 5.1, *"),
		device(cost.CPUMachinePct, "Router CPU", "*"), device(cost.ProcessCorePct, "In processes", "*"),
		device(cost.DaemonCorePct, "Processes, whole block", "*"),
		device(cost.MachineBusyPct, "Machine busy", "*, /proc/stat, all labs"), device(cost.MeterCorePct, "Metering", "*"),
	}},
	{"Round-trip time under load: the median over all windows, and the mean over the blocks' medians with its interval",
		"", []cellColumn{
			device(cost.RTTP50MedianUs, "DUT p50", perMedian), cleanColumn(cost.RTTP50MedianUs, "Clean p50", perMedian),
			device(cost.RTTP99MedianUs, "DUT p99", perMedian), cleanColumn(cost.RTTP99MedianUs, "Clean p99", perMedian),
			device(cost.RTTP50Us, "DUT p50", perMean), cleanColumn(cost.RTTP50Us, "Clean p50", perMean),
			device(cost.RTTP99Us, "DUT p99", perMean), cleanColumn(cost.RTTP99Us, "Clean p99", perMean),
		}},
	{"Delay idle and loaded: round-trip time before the block's first load, and what the load adds" + intervals,
		cost.IdleP50Us, []cellColumn{
			device(cost.IdleP50Us, "Idle p50", "*"), cleanColumn(cost.IdleP50Us, "Clean idle", "*, p50"),
			changeColumn(cost.IdleP50Us, "Idle, DUT less clean", "*, p50"),
			device(cost.AddedP50Us, "Added p50", "*"), cleanColumn(cost.AddedP50Us, "Clean added", "*, p50"),
			changeColumn(cost.AddedP50Us, "Added, DUT less clean", "*, p50"),
			device(cost.IdleP99Us, "Idle p99", "*"), device(cost.AddedP99Us, "Added p99", "*"),
			cleanColumn(cost.AddedP99Us, "Clean added", "*, p99"),
			changeColumn(cost.AddedP99Us, "Added, DUT less clean", "*, p99"),
		}},
	{"Traffic" + intervals, "", []cellColumn{
		cleanColumn(cost.Delivered, "Clean delivered", "*"), device(cost.Link, "On the link", "* with headers"),
		device(cost.LossRatio, "Loss", "% on the router"), cleanColumn(cost.LossRatio, "Clean loss", "% on the router"),
		device(cost.RetransmitRatio, "Retransmitted", "%"), device(cost.AggregationFactor, "Aggregation", "*"),
	}},
	{"How packets came: the longer the bursts and the fewer the acknowledgements, the less each costs" + intervals, "",
		[]cellColumn{
			device(cost.SegmentsPerBurst, "Segments per burst", "as sent"),
			cleanColumn(cost.SegmentsPerBurst, "Clean router's", "as sent"),
			device(cost.PacketsPerWakeup, "Packets per wake-up", "of a polling thread"),
			cleanColumn(cost.PacketsPerWakeup, "Clean router's", "a wake-up"),
			device(cost.AcksPerSegment, "ACKs per segment", perSegment),
			cleanColumn(cost.AcksPerSegment, "Clean router's", "a segment"),
			device(cost.NsPerPacket, "Per packet", "*"), cleanColumn(cost.NsPerPacket, "Clean router's", "* a packet"),
		}},
	{"Streams of the lab's generator" + intervals, cost.ConnectP50Us, []cellColumn{
		device(cost.Jain, "Fairness", "Jain's index"), device(cost.JainEven, "Most possible", "each carries whole bursts"),
		cleanColumn(cost.Jain, "Clean fairness", "Jain's index"),
		device(cost.StreamMinMbps, "Least", "* of one stream"), device(cost.StreamMaxMbps, "Most", "* of one stream"),
		device(cost.ConnectP50Us, "Connect p50", "*"), device(cost.ConnectP99Us, "Connect p99", "*"),
		device(cost.FirstByteP50Us, "First byte p50", "*"), device(cost.FirstByteP99Us, "First byte p99", "*"),
	}},
	{"Datagrams of the lab's generator" + intervals, cost.DatagramLossRatio, []cellColumn{
		device(cost.DatagramLossRatio, "Lost", shareOfSent), cleanColumn(cost.DatagramLossRatio, "Clean lost", shareOfSent),
		device(cost.ReorderedRatio, "Reordered", shareOfReceived),
		cleanColumn(cost.ReorderedRatio, "Clean reordered", shareOfReceived),
	}},
	{"Frames of the lab's generator" + intervals, cost.FramesPerSecond, []cellColumn{
		device(cost.FramesPerSecond, "Arrived", "*"), cleanColumn(cost.FramesPerSecond, "Clean router's", "*"),
		device(cost.Layer1, "Layer 1", "*"), device(cost.LinePct, "Of the line", "*"),
		device(cost.DelayP50, "Delay p50", "*, one way"), cleanColumn(cost.DelayP50, "Clean p50", "*, one way"),
		device(cost.DelayP99, "Delay p99", "*, one way"), cleanColumn(cost.DelayP99, "Clean p99", "*, one way"),
		device(cost.DelayBound, "Clocks", "± *"),
		device(cost.Jitter, "Jitter", "*, RFC 3550"), cleanColumn(cost.Jitter, "Clean jitter", "*, RFC 3550"),
		device(cost.Duplicated, "Duplicated", "%"), device(cost.OfferedShare, "Sent", "% of those due"),
		device(cost.LateP99, "Late p99", "* after their due times"),
	}},
	{"Short connections beside the streams" + intervals, cost.ShortPerSecond, []cellColumn{
		device(cost.ShortPerSecond, "Answered", "*"), cleanColumn(cost.ShortPerSecond, "Clean router's", "*"),
		device(cost.ShortFailed, "Failed", "* a block"), device(cost.ShortConnectP99Us, "Connect p99", "*"),
		device(cost.ShortWholeP50Us, "Whole p50", "*"), device(cost.ShortWholeP99Us, "Whole p99", "*"),
	}},
	{"Guests that came and went, and the device before and after", cost.GuestBlocks, []cellColumn{
		device(cost.GuestsPerSecond, "Guests", "*"),
		counts(cost.GuestsCame, "Came", ""), counts(cost.GuestsIn, "Got in", ""), counts(cost.GuestsGone, "Left", ""),
		device(cost.GuestLoginP50Ms, "Login p50", "*"), device(cost.GuestLoginP99Ms, "Login p99", "*"),
		textColumn("Forgotten", forgetText),
		textColumn("It knows", func(c analysis.Cell) string { return words.Or(countsText(c), absentFigure) }),
		device(cost.PSSBeforeMiB, "Memory before", "PSS, *"), device(cost.PSSAfterMiB, "Memory after", "PSS, *"),
		device(cost.RuleLinesBefore, "Rules before", "*"), device(cost.RuleLinesAfter, "Rules after", "*"),
		device(cost.FlowsBefore, "Tracked before", "*"), device(cost.FlowsAfter, "Tracked after", "*"),
	}},
	{"All clients at once, of several blocks the one that came least far", cost.ClientBlocks, []cellColumn{
		textColumn("Addresses", func(c analysis.Cell) string { return words.Or(c.Texts[cost.AddressesFrom], absentFigure) }),
		textColumn("Clean router's",
			func(c analysis.Cell) string { return words.Or(c.Texts[cost.CleanAddressFrom], absentFigure) }),
		counts(cost.Leased, "Have one", ""), counts(cost.LoggedIn, "Logged in", ""),
		counts(cost.Connected, "Streams", ""), counts(cost.CleanConnected, "Clean router's", ""),
		device(cost.WarmupSeconds, "Warm-up", "*"), device(cost.MemoryKiBPerClient, "Both labs", "* of the machine a client"),
	}},
	{"Memory, set-up and clients" + intervals, "", []cellColumn{
		device(cost.PSSMiB, "Memory", "PSS, *"), device(cost.SetupSeconds, "Set-up", "*, labs and DUT"),
		device(cost.LeaseSeconds, "Leases", "*, all clients"), device(cost.LoginSeconds, "Logins", "*, all clients"),
		device(cost.LoginP50Ms, "Login p50", "*, one client"), device(cost.LoginP99Ms, "Login p99", "*, one client"),
	}},
	// If client or server use nearly a whole core, they limit the load, and not the device.
	{"The ends' own load" + intervals, "", []cellColumn{
		device(cost.ClientCorePct, "Client hosts", "*"), cleanColumn(cost.ClientCorePct, "Clean router's", "*"),
		device(cost.ServerCorePct, "Server", "*"), device(cost.GeneratorCorePct, "Busiest traffic thread", "*"),
	}},
}

func furtherGrids(s analysis.Summary) []grid {
	tiny := func(n analysis.Number) string {
		if n.Known() && n < 0.0001 {
			return "< 0.0001"
		}
		return fraction4(n)
	}
	grids := append(tables(s, costTables),
		build("Verdicts and what they rest on; p-values are adjusted for judging all cells at once", s, s.Cells,
			overheadColumn(s),
			numberColumn("p, different", "if the ratio were 1", "verdict.p_different", tiny,
				func(c analysis.Cell) analysis.Number { return c.PDifferent }),
			numberColumn("p, equivalent", "if it were outside δ", "verdict.p_equivalent", tiny,
				func(c analysis.Cell) analysis.Number { return c.PEquivalent }),
			numberColumn("Spread", "sd of block log ratios", "verdict.sd_log", fraction4,
				func(c analysis.Cell) analysis.Number { return c.SDLog }),
			blocksColumn("Blocks"),
			textColumn("Verdict", func(c analysis.Cell) string { return c.Verdict }),
			textColumn("Because", func(c analysis.Cell) string { return c.VerdictNote })),
		build("Trials: pairs are those accepted; flags with the number of pairs they were seen in", s, s.Cells,
			pairsColumn("Pairs"), blocksColumn("Blocks"), rejectedColumn("Rejected"), redoneColumn("Redone"),
			textColumn("Flags", func(c analysis.Cell) string { return words.Or(textsWithCounts(c.Flags), absentFigure) })))
	for _, g := range []grid{incrementsGrid(s), linearityGrid(s), linesGrid(s)} {
		if len(g.Rows) > 0 {
			grids = append(grids, g)
		}
	}
	return grids
}
