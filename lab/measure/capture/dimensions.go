package capture

import (
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Dimensions that only captures have.
const (
	SnapLength result.Dimension = "snap_length"
	BufferKiB  result.Dimension = "buffer_kib"
	Filter     result.Dimension = "filter"
	Work       result.Dimension = "work"
	Programs   result.Dimension = "programs"
	CPUs       result.Dimension = "cpus"
)

// Dimensions of the measure's cells.
var Dimensions = analysis.Dimensions{
	analysis.DUT,
	analysis.Family,
	analysis.FrameSize.Headed("frames"),
	{Name: CPUs, Text: "that frames and capture programs have: 1, or 2 with one for each", Heading: "CPUs",
		Words: countOf("CPU")},
	{Name: BufferKiB, Text: "of a capture; 0: the program's own", Heading: "Buffer", Short: "buffer KiB", Unit: "KiB",
		None: "buffers as they are", NoneShort: "own",
		Words: func(v result.Value) string { return "buffers of " + words.Grouped(v.Text) + " KiB" },
		Brief: func(v result.Value) string { return words.Grouped(v.Text) + " KiB" }},
	{Name: SnapLength, Text: "of a capture, bytes kept of each frame; 0: all", Heading: "Snap length", Short: "snap",
		Unit: "bytes", None: "whole frames", NoneShort: "all",
		Words: func(v result.Value) string { return "first " + words.Counted(int(v.Number), "byte") },
		Brief: func(v result.Value) string { return words.Grouped(v.Text) + " bytes" }},
	{Name: Filter, Text: "of a capture, a name of `filters`", None: "no filter",
		Words: func(v result.Value) string { return v.Text + " filter" }},
	{Name: Work, Text: "done for each captured frame: memcpy, gzip or none", None: "no work",
		Words: func(v result.Value) string { return v.Text + " for each frame" },
		Brief: func(v result.Value) string { return v.Text }},
	{Name: Programs, Text: "that capture at the same time", Words: countOf("program")},
	analysis.BackgroundPct,
	analysis.OfferedMbps,
}

// countOf returns a function that renders a value as a number of things: "one CPU", "2 CPUs".
func countOf(noun string) func(result.Value) string {
	return func(v result.Value) string {
		if v.Number == 1 {
			return "one " + noun
		}
		return words.Counted(int(v.Number), noun)
	}
}
