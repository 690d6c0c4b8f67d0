package experiment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// familyField is the key family. It is written as it is read: numbers, and "both".
var familyField = Field{
	key: "family", optional: true,
	set: func(e *Experiment, v any) error {
		list, err := families(v)
		if err == nil {
			e.Families = list
		}
		return err
	},
	get: func(e *Experiment) any {
		var list []any
		for _, f := range e.Families {
			list = append(list, familyValue(f))
		}
		return list
	},
}.means("IP protocols of the clients and of their traffic, each a series of cells: 4, 6, or `\"both\"`, where each " +
	"client has addresses of both, and clients of odd numbers send by IPv6. Without the key: IPv4, and cells without " +
	"this dimension")

// familyValue is a family as a file has it.
func familyValue(f client.Family) any {
	switch f {
	case client.IPv4:
		return int64(4)
	case client.IPv6:
		return int64(6)
	}
	return string(f)
}

// families accepts one family or a list of them.
func families(v any) ([]client.Family, error) {
	switch value := v.(type) {
	case []any:
	case strict.Argument:
		v = strict.Argument(strings.Trim(string(value), "[]"))
	case int64, string:
		v = []any{v}
	}
	return List(family)(v)
}

// family accepts one family.
func family(v any) (client.Family, error) {
	text, _ := strict.Text(v)
	text = strings.Trim(text, `"`)
	if n, isNumber := v.(int64); isNumber {
		text = fmt.Sprint(n)
	}
	if f := client.Family(text); slices.Contains(client.Families, f) {
		return f, nil
	}
	return "", fmt.Errorf("must be 4, 6 or %q, not %s", client.DualStack, strict.Show(v))
}

// dutFamily accepts 4 and 6.
func dutFamily(v any) (int, error) {
	f, err := family(v)
	if err != nil || f == client.DualStack {
		return 0, fmt.Errorf("must be 4 or 6, not %s", strict.Show(v))
	}
	return int(f[0] - '0'), nil
}

// FamilyList returns the families that the device forwards.
func (d CustomDUT) FamilyList() (list []client.Family) {
	for _, n := range d.Families {
		list = append(list, client.Family(fmt.Sprint(n)))
	}
	return list
}

// FamilyOf returns the family of a cell's clients; it is IPv4 where the cell names none.
func FamilyOf(c result.Cell) client.Family { return client.Family(c.Text(result.Family)) }

// AllFamilies returns the families that the experiment measures: IPv4 where it names none.
func (e *Experiment) AllFamilies() []client.Family {
	if len(e.Families) == 0 || !e.Applies("family") {
		return []client.Family{client.IPv4}
	}
	return e.Families
}

// HasIPv6 reports whether clients of any cell have IPv6.
func (e *Experiment) HasIPv6() bool { return slices.ContainsFunc(e.AllFamilies(), client.Family.Has6) }

// byFamily returns settings with each family of the experiment, or as they are where it names none.
func (e *Experiment) byFamily(list []Setting) []Setting {
	if len(e.Families) == 0 || !e.Applies("family") {
		return list
	}
	var all []Setting
	for _, s := range list {
		for _, f := range e.Families {
			with := Setting{Cell: s.Cell.With(result.Family, string(f))}
			for _, c := range s.Cells {
				with.Cells = append(with.Cells, c.With(result.Family, string(f)))
			}
			all = append(all, with)
		}
	}
	return all
}

// checkFamilies refuses families that the experiment's numbers of clients, routers or frames cannot have.
func (e *Experiment) checkFamilies(report Report) {
	if !e.Applies("family") {
		return
	}
	if slices.Contains(e.Families, client.DualStack) {
		e.checkBoth(report)
	}
	if !e.HasIPv6() {
		return
	}
	if e.Backend.AgentlessRouter() {
		report("family", "the router has no agent, and nothing tells the lab its IPv6 addresses: leave the key out, or "+
			"choose 4")
	}
	if traffic.KindOf(e.Traffic.Kind).Frames && len(e.badSizes) == 0 {
		e.checkFrames6(report)
	}
}

// checkBoth refuses numbers of clients, or of streams, that cannot be divided between two families.
func (e *Experiment) checkBoth(report Report) {
	if !e.Applies("clients") {
		report("family", "%q needs clients, which share out the two families: choose 4 and 6", client.DualStack)
	}
	if slices.Contains(e.Clients, 1) || e.Beside.Clients == 1 {
		report("family", "%q needs 2 clients or more: those of odd numbers send by IPv6, the others by IPv4",
			client.DualStack)
	}
}

// checkFrames6 refuses frames that are too short for IPv6.
func (e *Experiment) checkFrames6(report Report) {
	for _, name := range e.FrameSizes {
		if sizes, err := e.SizesOf(name); err == nil && sizes.Shortest() < frames.MinBytes6 {
			report(e.firstSet("frame_sizes", "family"),
				"%s: with IPv6 the shortest frame has %d bytes, Ethernet, IPv6, UDP and the lab's stamp: choose %d or "+
					"more, or the mix %q", name, frames.MinBytes6, frames.MinBytes6, defaultFrames6)
		}
	}
}
