package experiment

import (
	"net/netip"
	"strings"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/client"
)

// AsIs is the device name of a router without an agent: nothing is installed on it, and its counters are not read.
const AsIs = "as-is"

// AgentlessRouter reports whether the router has no agent, because it runs another system, or because nobody can log in
// to it. The lab then only knows its addresses.
func (b Backend) AgentlessRouter() bool {
	r, described := b.Hosts[hostRouter]
	return b.Remote() && described && r.Address == "" && r.LANAddress != "" && r.WANAddress != ""
}

// DoesWithoutCPU reports whether the routers' CPU time may be unknown: the measure has other figures, and the router is
// a machine of its own, a box whose kernel may have no clocks for it.
func (e *Experiment) DoesWithoutCPU() bool {
	return e.Backend.Remote() && !e.Backend.AgentlessRouter() && e.Router.Speed == 0 && e.measure().Agentless
}

// missingAddress returns the key that is missing where only one of "lan_address" and "wan_address" is set, for a router
// without an agent; else "".
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

// AgentlessAddresses returns the addresses of a router without an agent, with their networks. They are invalid for a
// router with an agent.
func (b Backend) AgentlessAddresses() (lan, wan netip.Prefix) {
	if !b.AgentlessRouter() {
		return lan, wan
	}
	r := b.Hosts[hostRouter]
	return netip.MustParsePrefix(r.LANAddress), netip.MustParsePrefix(r.WANAddress)
}

// longestPrefix is the prefix length of the smallest network with room for clients, hosts and router.
const longestPrefix = 24

// prefix accepts an IPv4 address with its network.
var prefix = strict.AcceptText("an IPv4 address with its network, such as \"192.168.1.1/24\" (/8 to /24)",
	func(s string) (string, bool) {
		p, err := netip.ParsePrefix(s)
		ok := err == nil && p.Addr().Is4() && p.Bits() >= 8 && p.Bits() <= longestPrefix && p.Addr() != p.Masked().Addr()
		return s, ok
	})

// applyAgentless sets the default kind of clients for a router without an agent.
func (e *Experiment) applyAgentless() {
	if e.Backend.AgentlessRouter() && !e.IsSet("client.kind") {
		e.Client.Kind = client.KindPersona
	}
}

// checkAgentless refuses what needs an agent on the router.
func (e *Experiment) checkAgentless(report Report) {
	h := e.Backend.Hosts[hostRouter]
	const without = "the router has no agent: its host has no address for ssh"
	if len(h.LAN)+len(h.WAN)+len(h.Interface)+len(h.CPUs) > 0 || h.Sudo != "" {
		report(HostKey(hostRouter, ""), "%s, so it has lan_address and wan_address alone", without)
	}
	if lan, wan := e.Backend.AgentlessAddresses(); lan.Overlaps(wan) {
		report(HostKey(hostRouter, "wan_address"), "%s and %s are of one network: a router has two", h.LANAddress,
			h.WANAddress)
	}
	for name, host := range e.Backend.Hosts {
		if name != hostRouter && len(host.Interface) > 1 {
			report(HostKey(name, "interface"), "%s, so there is one lab at a time, and one interface", without)
		}
	}
	if !e.measure().Agentless {
		report("measure", "%q needs the router's CPU, and %s: give the router an address, or use measure = %q", e.Measure,
			without, strings.Join(e.agentlessMeasures(), "\" or \""))
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

// agentlessMeasures lists the measures that need no agent on the router.
func (e *Experiment) agentlessMeasures() (names []string) {
	for _, m := range e.catalogue.Measures {
		if m.Agentless {
			names = append(names, m.Name)
		}
	}
	return names
}
