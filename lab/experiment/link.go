package experiment

import (
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Link tells what the link between two gateways does to the frames of each direction.
type Link struct {
	// Mbps are the rates of the link to measure at, Mbit/s of frames with the Ethernet header of 14 bytes; 0: no limit.
	// Default nil: no limit.
	Mbps    []float64
	Delay   time.Duration // of each frame, each way; default 0
	LossPct float64       // of the frames, each way; default 0
}

// Bounds of a link.
const (
	minLinkMbps, maxLinkMbps = 1, 10_000
	maxLinkDelay             = time.Second
	maxLinkLoss              = 50
)

// LinkKeys are keys for the Uses of measures whose traffic crosses the link between two gateways.
var LinkKeys = []string{"link.mbps", "link.delay", "link.loss_pct"}

var linkFields = []Field{
	optional("link.mbps", List(linkRate), func(e *Experiment) *[]float64 { return &e.Link.Mbps }).
		means("rates of the link between two gateways, Mbit/s, each a series of cells; 0: no limit"),
	optional("link.delay", Duration(0, maxLinkDelay), func(e *Experiment) *time.Duration { return &e.Link.Delay }).
		means("delay of that link, each way; needs netem"),
	optional("link.loss_pct", strict.Within(0, maxLinkLoss, "per cent of the frames,"),
		func(e *Experiment) *float64 { return &e.Link.LossPct }).
		means("share of the frames that it loses, each way, per cent; needs netem"),
}

// linkRate accepts a rate of a link, and 0 for no limit.
var linkRate = strict.Number(fmt.Sprintf("0 for no limit, or Mbit/s from %d to %d", minLinkMbps, maxLinkMbps),
	func(n float64) bool { return n == 0 || n >= minLinkMbps && n <= maxLinkMbps })

// EachFlow calls fn with the cell of each combination of clients, direction and profile, and its number of clients.
func (e *Experiment) EachFlow(fn func(cell result.Cell, clients int)) {
	for _, clients := range e.Clients {
		for _, direction := range e.Directions {
			for _, profile := range e.Profiles {
				fn(result.NewCell(result.Clients, clients, result.Direction, direction, result.Profile, profile), clients)
			}
		}
	}
}

// EachLink calls fn with a cell at each rate of the link, or with the cell as it is where the experiment names no rate.
func (e *Experiment) EachLink(cell result.Cell, fn func(result.Cell)) {
	if len(e.Link.Mbps) == 0 {
		fn(cell)
	}
	for _, mbps := range e.Link.Mbps {
		fn(cell.With(result.LinkMbps, mbps))
	}
}

// Impaired reports whether the link delays or loses frames. That needs netem, a kernel module that a rate does not
// need.
func (l Link) Impaired() bool { return l.Delay > 0 || l.LossPct > 0 }

// checkLink refuses a link in a topology that has none between two gateways.
func (e *Experiment) checkLink(report Report) {
	var fit []string
	noLink := false
	for _, t := range e.catalogue.Topologies {
		if t.Gateways {
			fit = append(fit, t.Name)
		}
		noLink = noLink || t.Name == e.Topology && !t.Gateways
	}
	for _, key := range LinkKeys {
		if noLink && e.IsSet(key) && e.Applies(key) {
			report(key, "needs topology = %s: %q has no link between two gateways", strict.Choice(fit), e.Topology)
		}
	}
}
