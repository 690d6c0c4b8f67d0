package experiment

import (
	"net/netip"
	"strings"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/client"
)

// AsIs is the name of a router without an agent: nothing is installed on it, and nothing read of it.
const AsIs = "as-is"

// Closed reports whether the router has no agent: another system, or a box that nobody logs in to. It is whatever
// forwards between the ports of clients and server.
func (b Backend) Closed() bool {
	r, described := b.Hosts[hostRouter]
	return b.Remote() && described && r.Address == "" && r.LANAddress != "" && r.WANAddress != ""
}

// missingAddress is the key that a router without an agent lacks, "lan_address" or "wan_address"; "": it has both or
// neither, or has an agent.
func (b Backend) missingAddress() string {
	r := b.Hosts[hostRouter]
	switch {
	case r.Address != "" || (r.LANAddress == "") == (r.WANAddress == ""):
		return ""
	case r.LANAddress == "":
		return "lan_address"
	}
	return "wan_address"
}

// ClosedAddresses are the addresses of a router without an agent, with their networks; invalid where it has one.
func (b Backend) ClosedAddresses() (lan, wan netip.Prefix) {
	if !b.Closed() {
		return lan, wan
	}
	r := b.Hosts[hostRouter]
	return netip.MustParsePrefix(r.LANAddress), netip.MustParsePrefix(r.WANAddress)
}

// widestClosed is the longest prefix of a network in which there is room for clients, hosts and router.
const widestClosed = 24

// prefix accepts an IPv4 address with its network.
var prefix = strict.AcceptText("an IPv4 address with its network, such as \"192.168.1.1/24\" (/8 to /24)",
	func(s string) (string, bool) {
		p, err := netip.ParsePrefix(s)
		ok := err == nil && p.Addr().Is4() && p.Bits() >= 8 && p.Bits() <= widestClosed && p.Addr() != p.Masked().Addr()
		return s, ok
	})

// applyClosed sets what follows from a router without an agent.
func (e *Experiment) applyClosed() {
	if e.Backend.Closed() && !e.IsSet("client.kind") {
		e.Client.Kind = client.KindPersona
	}
}

// checkClosed refuses what needs an agent on the router.
func (e *Experiment) checkClosed(report Report) {
	h := e.Backend.Hosts[hostRouter]
	const without = "the router has no agent: its host has no address for ssh"
	if len(h.LAN)+len(h.WAN)+len(h.Interface)+len(h.CPUs) > 0 || h.Sudo != "" {
		report(HostKey(hostRouter, ""), "%s, so it has lan_address and wan_address alone", without)
	}
	if lan, wan := e.Backend.ClosedAddresses(); lan.Overlaps(wan) {
		report(HostKey(hostRouter, "wan_address"), "%s and %s are of one network: a router has two", h.LANAddress,
			h.WANAddress)
	}
	for name, host := range e.Backend.Hosts {
		if name != hostRouter && len(host.Interface) > 1 {
			report(HostKey(name, "interface"), "%s, so there is one lab at a time, and one interface", without)
		}
	}
	if !e.measure().Closed {
		report("measure", "%q needs the router's CPU, and %s: give the router an address, or use measure = %q", e.Measure,
			without, strings.Join(e.closedMeasures(), "\" or \""))
	}
	if len(e.DUTs) != 1 || e.DUTs[0] != AsIs {
		report("duts", "%s, so no device is installed there: duts = [%q]", without, AsIs)
	}
	if e.Client.Kind != client.KindPersona {
		report("client.kind", "%q takes leases from the lab on the router, and %s: use %q", e.Client.Kind, without,
			client.KindPersona)
	}
	if e.Router.Speed > 0 {
		report("router.speed", "%s, so nothing slows it down: leave it out", without)
	}
	most := client.KindOf(client.KindPersona).MaxLearned
	for _, n := range e.Clients {
		if most > 0 && n > most {
			report("clients", "%d: %s, so its table of neighbours learns them: at most %d", n, without, most)
		}
	}
}

// closedMeasures are the names of the measures that need no agent on the router.
func (e *Experiment) closedMeasures() (names []string) {
	for _, m := range e.catalogue.Measures {
		if m.Closed {
			names = append(names, m.Name)
		}
	}
	return names
}
