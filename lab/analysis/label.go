package analysis

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Label names a cell: "opennds, 100 clients, 400 Mbit/s, up".
func Label(c result.Cell) string {
	var parts []string
	if c.Has(result.DUT) {
		parts = append(parts, c.Text(result.DUT))
	}
	for _, v := range c.Without(result.DUT).Values() {
		if v.Text != result.PerPacket {
			parts = append(parts, WordsOf(v))
		}
	}
	return strings.Join(parts, ", ")
}

// WordsOf says a dimension and its value in words: "100 clients".
func WordsOf(v result.Value) string {
	if text := zeroWords[v.Dimension]; text != "" && (v.Text == "0" || v.Text == "none") {
		return text
	}
	switch v.Dimension {
	case result.Clients:
		return words.Counted(int(v.Number), "client")
	case result.OfferedMbps:
		return v.Text + " Mbit/s"
	case result.LinkMbps:
		return "link of " + v.Text + " Mbit/s"
	case result.LoginRate:
		return v.Text + " " + words.When(v.Number == 1, "client") + words.When(v.Number != 1, "clients") + " a second"
	case result.FrameSize:
		return words.Frames(v.Text)
	case result.Direction, result.Profile, result.DUT:
		return v.Text
	case result.CPUs:
		return oneOr(v, "CPU")
	case result.Programs:
		return oneOr(v, "program")
	case result.BufferKiB:
		return "buffers of " + words.Grouped(v.Text) + " KiB"
	case result.SnapLength:
		return "first " + words.Counted(int(v.Number), "byte")
	case result.Filter:
		return v.Text + " filter"
	case result.Work:
		return v.Text + " for each frame"
	case result.BackgroundPct:
		return v.Text + " % other work"
	case result.BackgroundKind:
		return "by " + v.Text
	}
	return fmt.Sprintf("%s %s", strings.ReplaceAll(string(v.Dimension), "_", " "), v.Text)
}

// zeroWords say dimensions whose value is 0 or none.
var zeroWords = map[result.Dimension]string{
	result.LoginRate: "all at once", result.BufferKiB: "buffers as they are", result.SnapLength: "whole frames",
	result.Filter:   "no filter",
	result.LinkMbps: "link without a limit", result.Work: "no work", result.BackgroundPct: "no other work",
}

// oneOr counts: "one CPU", "2 CPUs".
func oneOr(v result.Value, what string) string {
	if v.Number == 1 {
		return "one " + what
	}
	return words.Counted(int(v.Number), what)
}
