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

// Beside says how the clean router's lab in a pair differs from the device's lab; fields
// left out are equal in both. A ratio then measures that difference and the device together.
type Beside struct {
	Client  string // kind of client
	Traffic string // kind of traffic
	Clients int    // how many, whatever the number of the cell
}

// besideKeys are its keys in the file.
var besideKeys = []string{"beside.client", "beside.traffic", "beside.clients"}

// Side is what the experiment has in one lab of a pair.
type Side struct {
	Client  string // kind
	Clients int
	Traffic Traffic
}

// Sides are the two labs of a pair with that number of clients at the device.
func (e *Experiment) Sides(clients int) (device, clean Side) {
	device = Side{Client: e.Client.Kind, Clients: clients}
	if e.Means("traffic.kind") {
		device.Traffic = e.Traffic
	}
	return device, e.besideOf(device)
}

// Labs are the labs of a block that are compared: the device's, and the clean router's unless the device is measured
// alone; the clean router as such a device has clients that it can serve. Traffic has no kind where nothing is
// sent. In an A/A block both labs are like the device's lab of other blocks: the noise of each number of clients is
// needed. In interleaved rounds only the first of them stands.
func (e *Experiment) Labs(b Block) []Side {
	device, clean := e.Sides(b.Clients())
	device, clean = e.sized(device, b.Cell), e.sized(clean, b.Cell)
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

// Largest are the labs of a block with the most clients.
func (e *Experiment) Largest() []Side {
	return e.Labs(Block{Cell: result.NewCell(result.Clients, e.mostClients())})
}

// besideOf is the clean router's lab in a pair with the device's lab.
func (e *Experiment) besideOf(device Side) Side {
	clean := device
	clean.Client = cmp.Or(e.Beside.Client, client.KindOf(device.Client).CleanKind, device.Client)
	clean.Clients = cmp.Or(e.Beside.Clients, device.Clients)
	clean.Traffic.Kind = cmp.Or(e.Beside.Traffic, device.Traffic.Kind)
	return clean
}

// SidesText says in what the two labs of a pair differ besides the device; both texts are
// empty when they do not.
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

// carried reports whether the side's clients can send its kind of traffic.
func (s Side) carried() bool {
	return traffic.KindOf(s.Traffic.Kind).Program == "" || client.KindOf(s.Client).Programs
}

const notCarried = "%q needs clients with a namespace each: not those of kind %q"

// checkBeside refuses an impossible clean router's lab. The number of clients of either
// side is checked with the clients.
func (e *Experiment) checkBeside(report Report) {
	device, clean := e.Sides(0)
	if !device.carried() {
		report(e.firstSet("traffic.kind", "client.kind"), notCarried, device.Traffic.Kind, device.Client)
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
	if e.Beside.Traffic+e.Beside.Client != "" && !clean.carried() {
		report(e.firstSet("beside.traffic", "beside.client"), notCarried, clean.Traffic.Kind, clean.Client)
	}
	if clean.Traffic.Kind != device.Traffic.Kind {
		e.checkTrafficBeside(clean, report)
	}
}

// checkTrafficBeside refuses what the clean router's generator alone cannot do.
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

// firstSet is the first of the keys that was set, for an error to name; the first of all
// when none was.
func (e *Experiment) firstSet(keys ...string) string {
	for _, key := range keys {
		if _, set := e.origins[key]; set {
			return key
		}
	}
	return keys[0]
}
