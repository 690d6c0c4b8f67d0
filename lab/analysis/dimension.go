package analysis

import (
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Dimension describes a quantity in which the cells of a run differ, such as clients or offered load. Each measure
// lists its own. Labels, tables, charts, comparisons, studies and the reference read these lists.
type Dimension struct {
	Name    result.Dimension
	Text    string // meaning, for the reference
	Heading string // of a column on the page; empty: the name
	Short   string // of a column in the terminal; empty: the name
	Unit    string // shown beside the heading
	Behind  string // follows a number in a column of the page: "/s"
	// Words writes a value in a sentence: "100 clients". nil: the name and the value.
	Words func(result.Value) string
	// Brief writes a value beside a mark of a chart. nil: as Words.
	Brief func(result.Value) string
	// None is the text for a value of 0 or "none" in a sentence, such as "whole frames". NoneShort is its text in a
	// column, such as "all". Empty: like any other value.
	None, NoneShort string
	Usual           string // the value that labels leave out
	Axis            Axis   // of studies that sweep it; zero: none does
}

// Axis has the words of studies for a dimension that they vary or keep fixed.
type Axis struct {
	Heading   string // of a column or an axis
	Noun      string // in a sentence: "ten times the bandwidth"
	Count     string // "any number of clients"
	By        string // "at 400 Mbit/s", "with 50 clients"
	One, Many string // units after a value of 1 and after other values
	Thousand  string // unit of a thousand, for a dimension that is held; empty: none
	Unit      string
}

// Dimensions lists the dimensions of a measure, in the order of the terminal's columns.
type Dimensions []Dimension

// Dimensions that several measures share.
var (
	DUT     = Dimension{Name: result.DUT, Text: "name of the device under test", Words: plainText}
	Profile = Dimension{Name: result.Profile, Text: "how packets look to the router: per-packet or bulk",
		Words: plainText, Usual: result.PerPacket}
	Direction = Dimension{Name: result.Direction, Text: "of the payload: up, down or both", Words: plainText}
	FrameSize = Dimension{Name: result.FrameSize,
		Text:  `of frames as traffic: their bytes without FCS, "64", or the name of a mix`,
		Words: func(v result.Value) string { return words.Frames(v.Text) }}
	Clients = Dimension{Name: result.Clients, Text: "simulated clients", Heading: "Clients",
		Words: func(v result.Value) string { return words.Counted(int(v.Number), "client") },
		Axis: Axis{Heading: "Clients", Noun: "clients", Count: "number of clients", By: "with", One: "client",
			Many: "clients"}}
	OfferedMbps = Dimension{Name: result.OfferedMbps,
		Text: "of all clients together, Mbit/s: TCP or UDP payload, or frames", Heading: "Offered", Unit: "Mbit/s",
		Words: func(v result.Value) string { return v.Text + " Mbit/s" },
		Axis: Axis{Heading: "Bandwidth limit", Noun: "bandwidth", Count: "bandwidth", By: "at",
			One: "Mbit/s", Many: "Mbit/s", Thousand: "Gbit/s", Unit: "Mbit/s"}}
	Family = Dimension{Name: result.Family,
		Text:    "IP protocol of the clients and their traffic: 4, 6, or both; absent: IPv4",
		Heading: "IP", Short: "IP", Words: familyWords, Brief: familyWords}
	LinkMbps = Dimension{Name: result.LinkMbps, Text: "Mbit/s, of the link between two gateways, frames with their " +
		"Ethernet headers; 0: no limit",
		Heading: "Link", Unit: "Mbit/s", None: "link without a limit", NoneShort: "no limit",
		Words: func(v result.Value) string { return "link of " + v.Text + " Mbit/s" },
		Axis: Axis{Heading: "Link", Noun: "link's rate", Count: "rate of the link", By: "at", One: "Mbit/s", Many: "Mbit/s",
			Unit: "Mbit/s"}}
	BackgroundPct = Dimension{Name: result.BackgroundPct, Text: "of the metered hosts' CPU, used by other work",
		Heading: "Other work", Short: "other work %",
		Unit: "% of a CPU", None: "no other work", Words: func(v result.Value) string { return v.Text + " % other work" }}
)

// familyWords writes a family in words.
func familyWords(v result.Value) string {
	switch v.Text {
	case "4", "6":
		return "IPv" + v.Text
	}
	return "IPv4 and IPv6"
}

func plainText(v result.Value) string { return v.Text }

// Headed returns the dimension with another heading in the terminal.
func (d Dimension) Headed(short string) Dimension { d.Short = short; return d }

// TerminalHead returns the heading of the terminal's column.
func (d Dimension) TerminalHead() string { return words.Or(d.Short, string(d.Name)) }

// PageHead returns the heading of the page's column.
func (d Dimension) PageHead() string {
	return words.Or(d.Heading, words.Capitalised(strings.ReplaceAll(string(d.Name), "_", " ")))
}

// IsNone reports whether a value is 0 or "none".
func IsNone(v result.Value) bool { return v.Text == "0" || v.Text == "none" }

// Say writes a value in words.
func (d Dimension) Say(v result.Value) string {
	switch {
	case d.None != "" && IsNone(v):
		return d.None
	case d.Words != nil:
		return d.Words(v)
	}
	return strings.ReplaceAll(string(v.Dimension), "_", " ") + " " + v.Text
}

// SayBriefly writes a value beside a mark of a chart.
func (d Dimension) SayBriefly(v result.Value) string {
	if d.Brief != nil && !IsNone(v) {
		return d.Brief(v)
	}
	return d.Say(v)
}

// Column returns the text of a column: the dimension's text for none, or else the given text.
func (d Dimension) Column(v result.Value, text string) string {
	if d.NoneShort != "" && IsNone(v) {
		return d.NoneShort
	}
	return text
}

// Named finds a dimension by its name. For a name that is not in the list it returns a dimension with nothing but the
// name.
func (list Dimensions) Named(name result.Dimension) Dimension {
	if i := slices.IndexFunc(list, func(d Dimension) bool { return d.Name == name }); i >= 0 {
		return list[i]
	}
	return Dimension{Name: name}
}

// Without returns the list without some dimensions.
func (list Dimensions) Without(names ...result.Dimension) Dimensions {
	return without(list, func(d Dimension) bool { return slices.Contains(names, d.Name) })
}

// Names returns the names of the dimensions.
func (list Dimensions) Names() (names []result.Dimension) {
	for _, d := range list {
		names = append(names, d.Name)
	}
	return names
}

// Say writes a dimension and its value in words: "100 clients".
func (list Dimensions) Say(v result.Value) string { return list.Named(v.Dimension).Say(v) }

// Label names a cell: "opennds, 100 clients, 400 Mbit/s, up". It leaves out a value of 0 of a dimension that is not in
// the list: in old runs, blocks without a direction have a login rate of 0.
func (list Dimensions) Label(c result.Cell) string {
	var parts []string
	if c.HasDimension(result.DUT) {
		parts = append(parts, c.Text(result.DUT))
	}
	for _, v := range c.Without(result.DUT).Values() {
		d := list.Named(v.Dimension)
		if unknown := d.Text == ""; unknown && IsNone(v) {
			continue
		}
		if d.Usual == "" || v.Text != d.Usual {
			parts = append(parts, d.Say(v))
		}
	}
	return strings.Join(parts, ", ")
}
