package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/words"
)

// ratioHead is what tables call the ratio.
func ratioHead(s analysis.Summary) string {
	if s.Sides != nil {
		return "ratio"
	}
	return "overhead"
}

func overheadColumn(s analysis.Summary) cellColumn {
	return change(cost.PerBit, words.Capitalised(ratioHead(s)), "* per bit")
}

// resultsGrid is what most readers want, the answer first: a phone shows only
// the first columns at once.
func resultsGrid(s analysis.Summary) grid {
	verdict := gridHead{Name: "Verdict", Unit: fmt.Sprintf("within %g %% is equivalent", 100*s.Delta), Text: true, Field: "verdict.word"}
	return build("Every cell: means over blocks, their intervals in brackets", s, s.Cells,
		overheadColumn(s),
		cellColumn{gridHead: verdict, cell: func(c analysis.Cell) gridCell {
			needs := ""
			if c.BlocksNeeded != nil {
				needs = "needs about " + words.Counted(*c.BlocksNeeded, "more block")
			}
			return badgeCell(c.Verdict, words.Or(words.Joined("; ", togetherText(c.Together, ratio, "cells"), needs), chance(c)))
		}},
		device(cost.Delivered, "Delivered", "*"),
		clean(cost.CPU, "Clean CPU", "*"), device(cost.CPU, "DUT CPU", "*"),
		device("increase_pct", "Increase", "*, normalised"), device("ns_per_packet", "Per packet", "*"),
		device("rtt_p99_median_us", "RTT p99", "*, median of windows"), device("pss_mib", "Memory", "PSS, *"))
}

// togetherText is the interval that left a verdict open where the one shown beside it would have given one;
// empty elsewhere.
func togetherText(e *analysis.Estimate, print format, of string) string {
	if e == nil {
		return ""
	}
	return "all " + of + " together: " + bounds(*e, print)
}

// cellTable is a table of cells below the results. It is left out where no cell has a figure of
// the needed metric, or a count of that name above 0.
type cellTable struct {
	caption string
	needs   string // empty: always shown
	columns []cellColumn
}

// tables are those of the tables that cells have figures for.
func tables(s analysis.Summary, all []cellTable) (grids []grid) {
	for _, t := range all {
		has := func(c analysis.Cell) bool { return c.Counts[t.needs] > 0 || c.Device(t.needs).Mean.Known() }
		if t.needs == "" || slices.ContainsFunc(s.Cells, has) {
			if g := build(t.caption, s, s.Cells, t.columns...); len(g.Head) > len(dimensionColumns(s.Cells)) {
				grids = append(grids, g)
			}
		}
	}
	return grids
}

const (
	intervals  = ": means over blocks with their intervals"
	perMedian  = "*, median of all windows"
	perMean    = "*, mean of the blocks"
	perSegment = "* back for one with payload"
	lost       = "% of the datagrams"
	late       = "% of those that came"
)

// costTables are all other figures, in tables that fit a screen.
var costTables = []cellTable{
	{"CPU" + intervals, "", []cellColumn{
		device(cost.Normalised, "Normalised CPU", "eq. 5.1, *"), clean(cost.Normalised, "Clean normalised", "eq. 5.1, *"),
		device("cpu_machine_pct", "Router CPU", "*"), device("process_core_pct", "In processes", "*"),
		device("daemon_core_pct", "Processes, whole block", "*"),
		device("machine_busy_pct", "Machine busy", "*, /proc/stat, all labs"), device("meter_core_pct", "Metering", "*"),
	}},
	{"Round-trip time under load: the median over all windows, and the mean over the blocks' medians with its interval", "", []cellColumn{
		device("rtt_p50_median_us", "DUT p50", perMedian), clean("rtt_p50_median_us", "Clean p50", perMedian),
		device("rtt_p99_median_us", "DUT p99", perMedian), clean("rtt_p99_median_us", "Clean p99", perMedian),
		device("rtt_p50_us", "DUT p50", perMean), clean("rtt_p50_us", "Clean p50", perMean),
		device("rtt_p99_us", "DUT p99", perMean), clean("rtt_p99_us", "Clean p99", perMean),
	}},
	{"Traffic" + intervals, "", []cellColumn{
		clean(cost.Delivered, "Clean delivered", "*"), device(cost.Link, "On the link", "* with headers"),
		device("loss_ratio", "Loss", "% on the router"), clean("loss_ratio", "Clean loss", "% on the router"),
		device("retransmit_ratio", "Retransmitted", "%"), device("aggregation_factor", "Aggregation", "*"),
	}},
	{"How packets came: the longer the bursts and the fewer the acknowledgements, the less each costs" + intervals, "", []cellColumn{
		device("segments_per_burst", "Segments per burst", "as sent"), clean("segments_per_burst", "Clean router's", "as sent"),
		device("packets_per_wakeup", "Packets per wake-up", "of a polling thread"), clean("packets_per_wakeup", "Clean router's", "a wake-up"),
		device("acks_per_segment", "ACKs per segment", perSegment), clean("acks_per_segment", "Clean router's", "a segment"),
		device("ns_per_packet", "Per packet", "*"), clean("ns_per_packet", "Clean router's", "* a packet"),
	}},
	{"Streams of the lab's generator" + intervals, "connect_p50_us", []cellColumn{
		device("jain", "Fairness", "Jain's index"), device("jain_even", "Most possible", "each carries whole bursts"),
		clean("jain", "Clean fairness", "Jain's index"),
		device("stream_min_mbps", "Least", "* of one stream"), device("stream_max_mbps", "Most", "* of one stream"),
		device("connect_p50_us", "Connect p50", "*"), device("connect_p99_us", "Connect p99", "*"),
		device("first_byte_p50_us", "First byte p50", "*"), device("first_byte_p99_us", "First byte p99", "*"),
	}},
	{"Datagrams of the lab's generator" + intervals, "datagram_loss_ratio", []cellColumn{
		device("datagram_loss_ratio", "Lost", lost), clean("datagram_loss_ratio", "Clean lost", lost),
		device("reordered_ratio", "Reordered", late), clean("reordered_ratio", "Clean reordered", late),
	}},
	{"Frames of the lab's generator" + intervals, "frames_per_second", []cellColumn{
		device("frames_per_second", "Arrived", "*"), clean("frames_per_second", "Clean router's", "*"),
		device(cost.DelayP50, "Delay p50", "*, one way"), clean(cost.DelayP50, "Clean p50", "*, one way"),
		device(cost.DelayP99, "Delay p99", "*, one way"), clean(cost.DelayP99, "Clean p99", "*, one way"),
		device(cost.Jitter, "Jitter", "*, RFC 3550"), clean(cost.Jitter, "Clean jitter", "*, RFC 3550"),
		device(cost.Duplicated, "Duplicated", "%"), device(cost.OfferedShare, "Sent", "% of those due"), device(cost.LateP99, "Late p99", "* after their due times"),
	}},
	{"Short connections beside the streams" + intervals, "short_per_second", []cellColumn{
		device("short_per_second", "Answered", "*"), clean("short_per_second", "Clean router's", "*"),
		device("short_failed", "Failed", "* a block"), device("short_connect_p99_us", "Connect p99", "*"),
		device("short_whole_p50_us", "Whole p50", "*"), device("short_whole_p99_us", "Whole p99", "*"),
	}},
	{"Guests that came and went, and the device before and after", cost.GuestBlocks, []cellColumn{
		device("guests_per_second", "Guests", "*"),
		counts(cost.GuestsCame, "Came", ""), counts(cost.GuestsIn, "Got in", ""), counts(cost.GuestsGone, "Left", ""),
		device("guest_login_p50_ms", "Login p50", "*"), device("guest_login_p99_ms", "Login p99", "*"),
		textColumn("Forgotten", forgotten), textColumn("It knows", func(c analysis.Cell) string { return words.Or(countsText(c), none) }),
		device("pss_before_mib", "Memory before", "PSS, *"), device("pss_after_mib", "Memory after", "PSS, *"),
		device("rule_lines_before", "Rules before", "*"), device("rule_lines_after", "Rules after", "*"),
		device("flows_before", "Tracked before", "*"), device("flows_after", "Tracked after", "*"),
	}},
	{"All clients at once, of several blocks the one that came least far", cost.ClientBlocks, []cellColumn{
		textColumn("Addresses", func(c analysis.Cell) string { return words.Or(c.Texts[cost.AddressesFrom], none) }),
		textColumn("Clean router's", func(c analysis.Cell) string { return words.Or(c.Texts[cost.CleanAddressFrom], none) }),
		counts(cost.Leased, "Have one", ""), counts(cost.LoggedIn, "Logged in", ""),
		counts(cost.Connected, "Streams", ""), counts(cost.CleanConnected, "Clean router's", ""),
		device("warmup_seconds", "Warm-up", "*"), device("memory_kib_per_client", "Both labs", "* of the machine a client"),
	}},
	{"Memory, set-up and clients" + intervals, "", []cellColumn{
		device("pss_mib", "Memory", "PSS, *"), device("setup_seconds", "Set-up", "*, labs and DUT"),
		device("lease_seconds", "Leases", "*, all clients"), device("login_seconds", "Logins", "*, all clients"),
		device("login_p50_ms", "Login p50", "*, one client"), device("login_p99_ms", "Login p99", "*, one client"),
	}},
	// Near a full core the ends limit what is carried, and not the device.
	{"The ends' own load" + intervals, "", []cellColumn{
		device("client_core_pct", "Client hosts", "*"), clean("client_core_pct", "Clean router's", "*"),
		device("server_core_pct", "Server", "*"), device("generator_core_pct", "Busiest traffic thread", "*"),
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
			numberColumn("p, different", "if the ratio were 1", "verdict.p_different", tiny, func(c analysis.Cell) analysis.Number { return c.PDifferent }),
			numberColumn("p, equivalent", "if it were outside δ", "verdict.p_equivalent", tiny, func(c analysis.Cell) analysis.Number { return c.PEquivalent }),
			numberColumn("Spread", "sd of block log ratios", "verdict.sd_log", fraction4, func(c analysis.Cell) analysis.Number { return c.SDLog }),
			blocksColumn("Blocks"),
			textColumn("Verdict", func(c analysis.Cell) string { return c.Verdict }),
			textColumn("Because", func(c analysis.Cell) string { return c.VerdictNote })),
		build("Trials: pairs are those accepted; flags with the number of pairs they were seen in", s, s.Cells,
			pairsColumn("Pairs"), blocksColumn("Blocks"), rejectedColumn("Rejected"), redoneColumn("Redone"),
			textColumn("Flags", func(c analysis.Cell) string { return words.Or(tallied(c.Flags), none) })))
	for _, g := range []grid{incrementsGrid(s), linearityGrid(s), linesGrid(s)} {
		if len(g.Rows) > 0 {
			grids = append(grids, g)
		}
	}
	return grids
}

func pairsColumn(name string) cellColumn {
	return countColumn(name, "", "pairs", func(c analysis.Cell) int { return c.Pairs })
}

func blocksColumn(name string) cellColumn {
	return countColumn(name, "", "blocks", func(c analysis.Cell) int { return c.Blocks })
}

func rejectedColumn(name string) cellColumn {
	return countColumn(name, "", "rejected", func(c analysis.Cell) int { return c.Rejected })
}

func redoneColumn(name string) cellColumn {
	return countColumn(name, "", "redone", func(c analysis.Cell) int { return c.Redone })
}

// tallied lists texts with how often each was met: "saturated (3), lossy (1)".
func tallied(list []analysis.Tally) string {
	var parts []string
	for _, t := range list {
		parts = append(parts, fmt.Sprintf("%s (%d)", t.Text, t.Count))
	}
	return strings.Join(parts, ", ")
}
