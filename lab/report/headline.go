package report

import (
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// fact is a name with its value.
type fact struct{ Name, Value string }

// factList has further facts about a device. Unknown ones are left out.
type factList []fact

func (f *factList) add(known bool, name, format string, args ...any) {
	if known {
		*f = append(*f, fact{name, fmt.Sprintf(format, args...)})
	}
}

// onePerDevice keeps one cell for each device: the first, or a better one.
func onePerDevice(cells []analysis.Cell, better func(c, than analysis.Cell) bool) (out []analysis.Cell) {
	index := map[string]int{}
	for _, c := range cells {
		if i, seen := index[c.DUT()]; !seen {
			index[c.DUT()] = len(out)
			out = append(out, c)
		} else if better(c, out[i]) {
			out[i] = c
		}
	}
	return out
}

// compareLoad compares two cells by offered load, then by number of clients.
func compareLoad(c, than analysis.Cell) bool {
	return result.CompareCells(c.Cell, than.Cell, result.OfferedMbps, result.Clients) > 0
}

// packets are the dimensions that describe packets besides their direction and profile; packetDimensions are these two
// and packets. Cells that differ in packetDimensions are not in the same chart.
var (
	packets = cost.Dimensions.Without(
		result.DUT, result.Direction, result.Profile, result.Clients, result.OfferedMbps)
	packetDimensions = append([]result.Dimension{result.Direction, result.Profile}, packets.Names()...)
)

// samePackets reports whether two cells have the same kind of packets.
func samePackets(a, b result.Cell) bool { return sameDimensions(a, b, packetDimensions...) }

// packetsText describes the packets: profile, frame size, and link.
func packetsText(c result.Cell) string {
	parts := []string{c.Text(result.Profile)}
	for _, d := range packets {
		if v, ok := c.Value(d.Name); ok {
			parts = append(parts, d.Say(v))
		}
	}
	return words.Joined(", ", parts...)
}

// packetsInWords describes the traffic of cells: "upload, per-packet".
func packetsInWords(c result.Cell) string {
	return words.Direction(c.Text(result.Direction)) + ", " + packetsText(c)
}

// ranked begins the row of a cell's device.
func (d *drawing) ranked(c analysis.Cell) rankedDevice {
	return rankedDevice{DUT: c.DUT(), Key: c.Cell.String(), Style: d.style(c.DUT()).Class()}
}

// intervalText explains the lines of a picture.
func intervalText(s analysis.Summary) string {
	return fmt.Sprintf("%g %% interval, on a logarithmic scale", 100*s.Confidence)
}

// notAccepted says that a cell has no accepted trial, and why.
func notAccepted(c analysis.Cell, noun string) string {
	if len(c.Rejects) > 0 {
		return "no " + noun + " was accepted, mostly because: " + c.Rejects[0].Text
	}
	return "no " + noun + " was accepted"
}

// textsOf returns one text for each cell.
func textsOf(cells []analysis.Cell, name func(analysis.Cell) string) (out []string) {
	for _, c := range cells {
		out = append(out, name(c))
	}
	return out
}

// commonText returns the text that all elements share. Where texts differ, it returns a function with the text of each
// element.
func commonText[T any](list []T, text func(T) string) (all string, each func(T) string) {
	if slices.ContainsFunc(list, func(v T) bool { return text(v) != text(list[0]) }) {
		return "", text
	}
	if len(list) > 0 {
		all = text(list[0])
	}
	return all, func(T) string { return "" }
}

// distinct keeps the first of equal values.
func distinct[T comparable](list []T) (out []T) {
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// loadText names the load of a cell in a sentence.
func loadText(c analysis.Cell) string {
	return fmt.Sprintf(
		"at %s %s with %s", rate(offeredMbps(c.Cell)), words.Direction(c.Text(result.Direction)), familyClients(c.Cell))
}

// familyClients is clientsOf with the clients' IP protocol, where the run has that dimension.
func familyClients(c result.Cell) string {
	v, ok := c.Value(result.Family)
	if !ok {
		return clientsOf(c)
	}
	return clientsOf(c) + " of " + analysis.Family.Say(v)
}
