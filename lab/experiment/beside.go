package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Beside tells how the clean router's lab differs from the device's lab in a pair. Zero fields are the same in both. A
// ratio then measures that difference and the device together.
type Beside struct {
	Client  string // kind of client
	Traffic string // kind of traffic
	Clients int    // number of clients, instead of the cell's
}

// besideKeys are the keys of Beside in the file.
var besideKeys = []string{"beside.client", "beside.traffic", "beside.clients"}

// Side describes one lab of a pair: the device's, or the clean router's.
type Side struct {
	Client  string // kind
	Family  client.Family
	Clients int
	Traffic Traffic
}

// Sides returns the two labs of a pair whose device has this number of clients.
func (e *Experiment) Sides(clients int) (device, clean Side) {
	device = Side{Client: e.Client.Kind, Clients: clients}
	if e.Applies("traffic.kind") {
		device.Traffic = e.Traffic
	}
	return device, e.cleanSide(device)
}

// Labs returns the labs that a block compares: the device's and the clean router's, or only the first where the measure
// has devices stand alone. In an A/A block, which measures the noise floor, both labs have clean routers, with as many
// clients as the device's lab of other blocks. In interleaved rounds only the first lab stands; the second one is that
// of another block. A side's Traffic has no kind where nothing is sent.
func (e *Experiment) Labs(b Block) []Side {
	device, clean := e.Sides(b.Clients())
	device.Family, clean.Family = FamilyOf(b.Cell), FamilyOf(b.Cell)
	device, clean = e.withFrames(device, b.Cell), e.withFrames(clean, b.Cell)
	switch {
	case e.measure().Alone && b.DUT() == Clean:
		return []Side{clean}
	case e.measure().Alone:
		return []Side{device}
	case e.Interleaved() && b.AA:
		return []Side{clean, clean}
	case b.Control:
		return []Side{clean, device}
	case b.AA:
		if client.KindOf(device.Client).PPPoE { // both labs have clean routers
			device = clean
		}
		return []Side{device, device}
	}
	return []Side{device, clean}
}

// LargestLabs returns the labs of the block with the most clients.
func (e *Experiment) LargestLabs() []Side {
	return e.Labs(Block{Cell: result.NewCell(result.Clients, e.mostClients())})
}

// cleanSide returns the clean router's lab for the device's lab of a pair.
func (e *Experiment) cleanSide(device Side) Side {
	clean := device
	clean.Client = cmp.Or(e.Beside.Client, client.KindOf(device.Client).CleanKind, device.Client)
	clean.Clients = cmp.Or(e.Beside.Clients, device.Clients)
	clean.Traffic.Kind = cmp.Or(e.Beside.Traffic, device.Traffic.Kind)
	return clean
}

// SidesText returns, for each of the two labs of a pair, what differs from the other one besides the device. Both texts
// are empty when nothing does.
func (e *Experiment) SidesText() (device, clean string) {
	if e.measure().Alone {
		return "", ""
	}
	var with, without []string
	differ := func(found bool, a, b string) {
		if found {
			with, without = append(with, a), append(without, b)
		}
	}
	a, b := e.Sides(0)
	differ(slices.ContainsFunc(e.Clients, func(n int) bool { return e.Beside.Clients > 0 && n != e.Beside.Clients }),
		"the cell's number of clients", words.Counted(e.Beside.Clients, "client"))
	differ(a.Client != b.Client, "clients of kind "+a.Client, "clients of kind "+b.Client)
	differ(a.Traffic.Kind != b.Traffic.Kind, "traffic of kind "+a.Traffic.Kind, "traffic of kind "+b.Traffic.Kind)
	return strings.Join(with, ", "), strings.Join(without, ", ")
}

// canSend reports whether the side's kind of clients can send its kind of traffic.
func (s Side) canSend() bool {
	return traffic.KindOf(s.Traffic.Kind).Program == "" || client.KindOf(s.Client).Programs
}

const cannotSend = "%q needs clients with a namespace each: not those of kind %q"

// checkBeside refuses a clean router's lab that cannot be. checkClients checks the numbers of clients.
func (e *Experiment) checkBeside(report Report) {
	device, clean := e.Sides(0)
	if !device.canSend() {
		report(e.firstSet("traffic.kind", "client.kind"), cannotSend, device.Traffic.Kind, device.Client)
	}
	if e.Beside == (Beside{}) {
		return
	}
	blamed := e.firstSet(besideKeys...)
	if !slices.ContainsFunc(e.DUTs, func(name string) bool { return name != Clean }) {
		report(blamed, "stands beside nothing: list a device in duts")
	}
	if e.Beside.Clients > 0 && e.Mode != result.ModeDuet {
		report("beside.clients", "does not go with mode = %q: labs of two sizes are compared under load at the same time",
			e.Mode)
	}
	if e.Client.Churn > 0 {
		report(blamed, "does not go with client.churn: what guests cost is compared between labs that are alike")
	}
	if e.Beside.Traffic+e.Beside.Client != "" && !clean.canSend() {
		report(e.firstSet("beside.traffic", "beside.client"), cannotSend, clean.Traffic.Kind, clean.Client)
	}
	if clean.Traffic.Kind != device.Traffic.Kind {
		e.checkTrafficBeside(clean, report)
	}
}

// checkTrafficBeside reports what the clean router's kind of traffic cannot do. What the device's cannot do either is
// reported already.
func (e *Experiment) checkTrafficBeside(clean Side, report Report) {
	reported := map[string]bool{}
	e.checkTraffic(func(_, format string, args ...any) { reported[fmt.Sprintf(format, args...)] = true })
	other := *e
	other.Traffic.Kind, other.Beside = clean.Traffic.Kind, Beside{}
	if !traffic.KindOf(clean.Traffic.Kind).Timer {
		other.Traffic.Pacing = PacingPaced // the key belongs to the device's side
	}
	other.checkTraffic(func(_, format string, args ...any) {
		if problem := fmt.Sprintf(format, args...); !reported[problem] {
			report("beside.traffic", "%s", problem)
		}
	})
}

// firstSet returns the first of the keys that the file or the command line sets, so that an error can name it; where
// none is set, the first of all.
func (e *Experiment) firstSet(keys ...string) string {
	for _, key := range keys {
		if _, set := e.origins[key]; set {
			return key
		}
	}
	return keys[0]
}
