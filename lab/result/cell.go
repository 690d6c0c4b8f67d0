package result

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Dimension is the name of a quantity in which cells of a run differ.
type Dimension string

// Dimensions that several measures have. A dimension of one measure alone is defined in that measure's package.
const (
	DUT         Dimension = "dut"          // name of the device under test
	Clients     Dimension = "clients"      // simulated clients
	OfferedMbps Dimension = "offered_mbps" // of all clients together, Mbit/s: TCP or UDP payload, or frames
	Direction   Dimension = "direction"    // of the payload: Up, Down or Both
	Profile     Dimension = "profile"      // how packets look to the router: PerPacket or Bulk
	FrameSize   Dimension = "frame_size"   // of frames as traffic: their bytes without FCS, "64", or the name of a mix
	// Mbit/s, of the link between two gateways, frames with their Ethernet headers; 0: no limit
	LinkMbps Dimension = "link_rate"
	// names, separated by spaces, of the devices whose link settings a clean router of mode "interleaved" copies; absent:
	// the ordinary settings
	LinkSettings  Dimension = "links_of"
	Family        Dimension = "family"         // IP protocol of the clients: "4", "6" or "both"; absent: IPv4
	BackgroundPct Dimension = "background_pct" // of the metered hosts' CPU, used by other work
)

// writtenOrder is the order in which records and summaries of version 1 write dimensions. All other dimensions follow,
// sorted by name.
var writtenOrder = []Dimension{
	DUT, Clients, OfferedMbps, Direction, Profile, FrameSize, LinkMbps, "router_speed", "login_rate",
	"snap_length", "buffer_kib", "filter", "work", "programs", "cpus", BackgroundPct, "background_kind",
}

// formerNames has the names that older records use for a dimension. link_mbps was renamed because a metric has the same
// name.
var formerNames = map[Dimension]Dimension{"link_mbps": LinkMbps}

// compareDimensions orders dimensions as they are written.
func compareDimensions(a, b Dimension) int {
	place := func(d Dimension) int {
		if i := slices.Index(writtenOrder, d); i >= 0 {
			return i
		}
		return len(writtenOrder)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
}

// Cell is one point of a sweep: an ordered list of dimensions with their values. All trials of a cell are comparable.
// Cells with the same dimensions and values are equal under ==, so a cell can be a map key. The zero Cell has no
// dimension.
type Cell struct {
	list string // "name value\x1f…" in the order of compareDimensions; a number's value begins with '#', a text's with '='
}

// Value is one dimension of a cell with its value, a number or a text.
type Value struct {
	Dimension Dimension
	Text      string  // the text, or the decimal form of the number
	Number    float64 // 0 for a text
	IsNumber  bool
}

const separator = "\x1f"

// NewCell makes a cell from alternating dimensions and values: NewCell(DUT, "opennds", Clients, 100). A value is a
// string, an int or a float64. NewCell panics at any other type, which is a mistake of the program.
func NewCell(pairs ...any) Cell {
	var c Cell
	for i := 0; i < len(pairs); i += 2 {
		c = c.With(pairs[i].(Dimension), pairs[i+1])
	}
	return c
}

// With returns the cell with one dimension added or replaced. An empty text removes the dimension. The value is a
// string, an int or a float64. With panics at any other type.
func (c Cell) With(d Dimension, value any) Cell {
	v := Value{Dimension: d, IsNumber: true}
	switch x := value.(type) {
	case string:
		v.Text, v.IsNumber = strings.ReplaceAll(x, separator, " "), false
	case int:
		v.Number = float64(x)
	case float64:
		v.Number = x
	default:
		panic(fmt.Sprintf("a cell's %s is a %T", d, value))
	}
	if v.IsNumber {
		v.Text = strconv.FormatFloat(v.Number, 'f', -1, 64)
	}
	list := slices.DeleteFunc(c.Values(), func(old Value) bool { return old.Dimension == d })
	if v.Text == "" {
		return cellOf(list)
	}
	i, _ := slices.BinarySearchFunc(list, v, func(a, b Value) int { return compareDimensions(a.Dimension, b.Dimension) })
	return cellOf(slices.Insert(list, i, v))
}

// Without returns the cell without some of its dimensions.
func (c Cell) Without(less ...Dimension) Cell {
	return c.filtered(func(d Dimension) bool { return !slices.Contains(less, d) })
}

// Only returns the cell with only some of its dimensions.
func (c Cell) Only(kept ...Dimension) Cell {
	return c.filtered(func(d Dimension) bool { return slices.Contains(kept, d) })
}

// filtered returns the cell with those of its dimensions for which kept is true.
func (c Cell) filtered(kept func(Dimension) bool) Cell {
	list := make([]byte, 0, len(c.list))
	for part := range strings.SplitSeq(c.list, separator) {
		name, _, ok := strings.Cut(part, " ")
		if !ok || !kept(Dimension(name)) {
			continue
		}
		if len(list) > 0 {
			list = append(list, separator...)
		}
		list = append(list, part...)
	}
	return Cell{string(list)}
}

func cellOf(list []Value) Cell {
	parts := make([]string, len(list))
	for i, v := range list {
		mark := "="
		if v.IsNumber {
			mark = "#"
		}
		parts[i] = string(v.Dimension) + " " + mark + v.Text
	}
	return Cell{strings.Join(parts, separator)}
}

// Values lists the dimensions in their order.
func (c Cell) Values() (list []Value) {
	if c.list == "" {
		return nil
	}
	list = make([]Value, 0, 1+strings.Count(c.list, separator))
	for part := range strings.SplitSeq(c.list, separator) {
		list = append(list, valueOf(part))
	}
	return list
}

func valueOf(part string) Value {
	name, text, _ := strings.Cut(part, " ")
	v := Value{Dimension: Dimension(name), Text: text[1:], IsNumber: text[0] == '#'}
	if v.IsNumber {
		v.Number, _ = strconv.ParseFloat(v.Text, 64) // the error is impossible, because With wrote the number
	}
	return v
}

// Value returns the value of one dimension. ok is false when the cell lacks it.
func (c Cell) Value(d Dimension) (v Value, ok bool) {
	for part := range strings.SplitSeq(c.list, separator) {
		if rest, is := strings.CutPrefix(part, string(d)); is && strings.HasPrefix(rest, " ") {
			return valueOf(part), true
		}
	}
	return Value{}, false
}

// HasDimension reports whether the cell has a dimension.
func (c Cell) HasDimension(d Dimension) bool { _, ok := c.Value(d); return ok }

// Text returns the value of a dimension as text. It is empty when the cell lacks the dimension.
func (c Cell) Text(d Dimension) string { v, _ := c.Value(d); return v.Text }

// Number returns the value of a dimension. It is 0 when the value is a text or the cell lacks the dimension.
func (c Cell) Number(d Dimension) float64 { v, _ := c.Value(d); return v.Number }

// Int returns the value of a dimension that is a whole number, such as a count.
func (c Cell) Int(d Dimension) int { return int(c.Number(d)) }

// Equal is ==, for go-cmp.
func (c Cell) Equal(other Cell) bool { return c == other }

// String returns "dut=opennds clients=100", for logs and tests.
func (c Cell) String() string {
	var parts []string
	for _, v := range c.Values() {
		parts = append(parts, string(v.Dimension)+"="+v.Text)
	}
	return strings.Join(parts, " ")
}

// CompareCells orders cells by some dimensions, the first one first. Texts are ordered by their letters, numbers by
// size.
func CompareCells(a, b Cell, dimensions ...Dimension) int {
	for _, d := range dimensions {
		x, _ := a.Value(d)
		y, _ := b.Value(d)
		if c := cmp.Or(cmp.Compare(x.Number, y.Number), cmp.Compare(x.Text, y.Text)); c != 0 {
			return c
		}
	}
	return 0
}

// MarshalJSON writes an object with the dimensions in their order.
func (c Cell) MarshalJSON() ([]byte, error) {
	var parts []string
	for _, v := range c.Values() {
		var value any = v.Text
		if v.IsNumber {
			value = v.Number
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		parts = append(parts, fmt.Sprintf("%q:%s", v.Dimension, text))
	}
	return []byte("{" + strings.Join(parts, ",") + "}"), nil
}

// UnmarshalJSON reads an object of texts and numbers.
func (c *Cell) UnmarshalJSON(data []byte) error {
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	*c = Cell{}
	for name, value := range object {
		switch value.(type) {
		case string, float64:
			*c = c.With(cmp.Or(formerNames[Dimension(name)], Dimension(name)), value)
		default:
			return fmt.Errorf("dimension %q of a cell is neither a text nor a number", name)
		}
	}
	return nil
}
