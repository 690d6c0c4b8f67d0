package testbed

import (
	"fmt"
	"net/netip"
	"strings"
)

// Spec is what a topology is built from. The zero value is a lab with one client host
// and study 1's addresses.
type Spec struct {
	Aggregate     bool         // links of metered hosts aggregate (profile bulk); else these see each packet alone
	LAN           netip.Prefix // the clients' network when the device leases it; the zero value is LANFor(Clients)
	Clients       int          // for whom the lab leases addresses and listeners have room; zero is as many as DefaultLAN has
	NoAggregation bool         // the metered host's link towards the clients never aggregates
	NoTxChecksum  bool         // no transmit checksum offload on any link
	ClientHosts   int          // 1 (default) to 3: addresses that are no leases
}

// Kind is a topology that experiments may name.
type Kind struct {
	Name  string
	About string // one line
	Build func(Spec) Topology
}

// Topologies is every topology. Adding one is a file and a line here.
var Topologies = []Kind{
	{"portal", "clients – router with the device – server, study 1's network", Portal},
}

// Names are those of all topologies.
func Names() (names []string) {
	for _, k := range Topologies {
		names = append(names, k.Name)
	}
	return names
}

// Named is the topology of a name. An unknown name is an error that lists the known ones.
func Named(name string) (Kind, error) {
	for _, k := range Topologies {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("unknown topology %q: known are %s", name, strings.Join(Names(), ", "))
}
