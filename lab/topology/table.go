package topology

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
)

// Spec has the settings of a topology. The zero value is a lab with one client host
// and study 1's addresses.
type Spec struct {
	Family    client.Family // of the clients; the zero value is IPv4
	Aggregate bool          // links of metered hosts aggregate (profile bulk); else these see each packet alone
	// the clients' network when the device leases it; the zero value is a network large enough for Clients
	LAN           netip.Prefix
	Clients       int  // number for which the lab has leases and listeners; zero is as many as DefaultLAN has
	NoAggregation bool // the metered host's link towards the clients never aggregates
	NoTxChecksum  bool // no transmit checksum offload on any link
	Urgent        bool // see Topology.Urgent
	UrgentRouters bool // see Topology.UrgentRouters
	ClientHosts   int  // 1 (default) to 3: addresses that are no leases
	// Closed are the networks of a router that is no host of the lab's, each with its address; invalid: it is one.
	Closed       [2]netip.Prefix
	Cables       bool        // a switch for several client hosts is there: see backend.Description
	CaptureHosts int         // behind a splitter, 1 (default) to MaxCaptureHosts
	Between      agent.Shape // of the link between two gateways
	Ends         agent.Shape // of what clients' hosts and servers send
}

// Topologies is every topology by its name in experiments. Adding one is a file and a line here.
var Topologies = map[string]func(Spec) Topology{
	"portal": Portal, // clients – router with the device – server, study 1's network
	"tunnel": Tunnel, // clients – gateway – gateway – server, the device on both gateways, study 4's platform

	"pair":    Pair,    // clients – two gateways on one LAN – server, and a host for a store
	"roaming": Roaming, // clients – gateway, twice – server, and a host for a store

	"gateway-capture": GatewayCapture, // generator – router that captures – sink
	"tap":             Tap,            // generator – splitter – hosts that capture
}

// Names returns the names of all topologies, sorted.
func Names() []string { return slices.Sorted(maps.Keys(Topologies)) }

// Named returns the builder of a topology. An unknown name is an error that lists the known ones.
func Named(name string) (func(Spec) Topology, error) {
	if build, known := Topologies[name]; known {
		return build, nil
	}
	return nil, fmt.Errorf("unknown topology %q: known are %s", name, strings.Join(Names(), ", "))
}
