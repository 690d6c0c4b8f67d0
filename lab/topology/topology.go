// Package topology says which hosts, links and networks a lab has, and builds it on a backend. Two labs of the same
// topology stand side by side for a duet.
package topology

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/realtime"
)

// Topology describes a lab: its hosts, the links between them, and the network of each. It needs a metered host
// (unless Closed), and hosts at which traffic begins: clients with their server, or a generator of frames. A measure
// asks by role for the other hosts it works with.
type Topology struct {
	Nodes []Node
	Links []Link // in the order of their interfaces on each host
	// Urgent gives the polling threads of links of hosts that are not metered real-time priority: see agent.Link.
	Urgent bool
	// UrgentRouters does the same for metered hosts. No process then delays their polling threads, just as none delays
	// softirqs on a router that has no such threads.
	UrgentRouters bool
	// Closed: the router runs no agent, so it is no Node. Links to it end Outside.
	Closed bool
	Addressing
}

// Names of ports that devices ask for.
const (
	PortLAN = "lan" // of the metered host, towards the clients
	PortWAN = "wan" // of the metered host, towards the server

	PortOuter1 = "outer1" // of the gateway at the clients, towards the other gateway
	PortOuter2 = "outer2" // of the gateway at the server, towards the other gateway
)

// Addressing has the networks and addresses that devices, clients and traffic need.
type Addressing struct {
	LAN       netip.Prefix // of the clients
	Gateway   netip.Addr   // the router's address in LAN
	RouterWAN netip.Addr   // the router's address towards the server
	ServerIP  netip.Addr   // where traffic goes
	ServiceIP netip.Addr   // a second address of the server: RADIUS and portal pages
	Store     netip.Addr   // of the host for a store that gateways share; invalid: there is none
	// LAN2, Gateway2 and RouterWAN2 are LAN, Gateway and RouterWAN of a second gateway with a LAN of its own; invalid:
	// there is none.
	LAN2                 netip.Prefix
	Gateway2, RouterWAN2 netip.Addr
	// Outer are the addresses of two gateways on the link between them, the clients' gateway first. They are invalid in a
	// topology with one router.
	Outer [2]netip.Addr
	// The same in IPv6, where the lab has it: the clients' network is a /64 for SLAAC. Outer6 as Outer.
	LAN6                            netip.Prefix
	Gateway6, RouterWAN6, ServerIP6 netip.Addr
	Outer6                          [2]netip.Addr
	// Sessions6 is the network behind the router of which clients of PPPoE sessions have a /64 each.
	Sessions6 netip.Prefix
	// FirstLease and LastLease are what the lab's own DHCP server gives; invalid
	// when LAN is the device's to lease.
	FirstLease, LastLease netip.Addr
}

// Node is a host of a topology.
type Node struct {
	Name    string // "router"; in logs and messages after the lab's: "a/router"
	Role    backend.Role
	Metered bool // its CPU is a result: devices are installed here
	Routes  []agent.Route
	Sysctls map[string]string // see agent.Network
	Switch  bool              // its ends are ports of one Ethernet switch
	Floods  bool              // and the switch learns no addresses: each frame leaves by all ports but its own
}

// Link is a cable between two nodes.
type Link struct{ A, B Port }

// Outside, as Port.Node, is an end that the lab does not make: a real switch, or a port of a router without an agent,
// into which the other end's cable is plugged already.
const Outside = ""

// Port is a node's end of a link.
type Port struct {
	Node string
	Name string // key for Lab.Port; empty where no code looks the port up
	// If is the interface's name within the lab, at most three bytes: meter.ThreadsNamed
	// distinguishes names of ten bytes, and the lab's prefix takes seven.
	If         string
	Addrs      []netip.Prefix
	Aggregate  bool        // GRO at its default size; false: single packets only
	TxChecksum bool        // the transmit checksum is left to the interface
	Shape      agent.Shape // of the frames that leave here
}

// Lab is a topology that was built.
type Lab struct {
	Name    string            // "a" or "b"
	Hosts   []*backend.Host   // all, in the order of the topology's nodes
	Clients []*backend.Host   // those of backend.RoleClient
	Ports   map[string]string // interfaces by their names in the topology
	Addressing
}

// Host is the lab's host of a name of the topology, such as "router"; nil when there is none.
func (l *Lab) Host(name string) *backend.Host {
	if i := slices.IndexFunc(l.Hosts, func(h *backend.Host) bool { return h.Name == l.Name+"/"+name }); i >= 0 {
		return l.Hosts[i]
	}
	return nil
}

// Of returns the lab's hosts of a role, in the order of the topology's nodes.
func (l *Lab) Of(role backend.Role) []*backend.Host {
	return slices.DeleteFunc(slices.Clone(l.Hosts), func(h *backend.Host) bool { return h.Role != role })
}

// Metered returns the hosts whose CPU time is a result, in the order of the topology's nodes.
func (l *Lab) Metered() []*backend.Host {
	return slices.DeleteFunc(slices.Clone(l.Hosts), func(h *backend.Host) bool { return !h.Metered })
}

// Port is the interface of a port's name in the topology, such as PortLAN; "" when there is none.
func (l *Lab) Port(name string) string { return l.Ports[name] }

// Lengths of transmit queues, packets. Without a queue a veth drops bursts of SYNs. The router's queues
// are longer, because an endpoint may be without its CPU for 50 ms. A full queue would lose packets, which
// would count as the router's loss, and would shorten the bursts of TCP streams from then on.
const (
	queueLen       = 2000
	routerQueueLen = 10000
)

// Build starts the hosts of a lab and connects them. On error nothing is left.
func (t Topology) Build(ctx context.Context, on backend.Backend, name string) (_ *Lab, err error) {
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("building lab %s: %w", name, err)
	}
	lab := &Lab{
		Name: name, Hosts: make([]*backend.Host, len(t.Nodes)), Addressing: t.Addressing, Ports: map[string]string{},
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("building lab %s: %w", name, errors.Join(err, lab.Close()))
		}
	}()
	err = backend.Each(t.Nodes, func(i int, n Node) (err error) {
		lab.Hosts[i], err = on.Start(ctx, name+"/"+n.Name, n.Metered)
		if err == nil {
			lab.Hosts[i].Role, lab.Hosts[i].Metered = n.Role, n.Metered
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	lab.Clients = lab.Of(backend.RoleClient)
	networks, err := t.connect(ctx, on, lab)
	if err != nil {
		return nil, err
	}
	// Routers and switches (hosts without a role) come first. A veth accepts XDP frames, which the faster generator of
	// frames sends, only if GRO, and so NAPI, was on at its other end before the veth itself was set up.
	for _, ends := range []bool{false, true} {
		err := backend.Each(lab.Hosts, func(i int, h *backend.Host) error {
			if ends != (h.Role != "") {
				return nil
			}
			return h.Apply(ctx, networks[i])
		})
		if err != nil {
			return lab, err
		}
	}
	if on.Describe().Cables {
		err = backend.Each(lab.Hosts, func(_ int, h *backend.Host) error { return h.AwaitLinks(ctx, h.Ifs) })
	}
	return lab, err
}

// connect makes all links and returns the network of each host.
func (t Topology) connect(ctx context.Context, on backend.Backend, lab *Lab) ([]agent.Network, error) {
	// The polling threads of all labs share one list of names, so interface names are never used twice. RouterLinks has
	// their form.
	id := "g" + strings.ToLower(rand.Text()[:5]) + "-"
	names := make([][2]string, len(t.Links))
	err := backend.Each(t.Links, func(i int, l Link) (err error) {
		var ends [2]backend.End
		for n, p := range []Port{l.A, l.B} {
			if p.Node != Outside {
				ends[n] = backend.End{Host: lab.Hosts[t.index(p.Node)], If: id + p.If, Port: p.Name}
			}
		}
		names[i][0], names[i][1], err = on.Connect(ctx, ends[0], ends[1])
		return err
	})
	if err != nil {
		return nil, err
	}
	networks := make([]agent.Network, len(t.Nodes))
	for i, n := range t.Nodes {
		networks[i] = agent.Network{Routes: n.Routes, Sysctls: n.Sysctls, Switch: n.Switch, Floods: n.Floods}
	}
	for i, l := range t.Links {
		for end, p := range []Port{l.A, l.B} {
			if p.Node == Outside {
				continue
			}
			index := t.index(p.Node)
			h, net, queue := lab.Hosts[index], &networks[index], queueLen
			if h.Metered {
				queue = routerQueueLen
			}
			if p.Name != "" {
				lab.Ports[p.Name] = names[i][end]
			}
			h.Ifs = append(h.Ifs, names[i][end])
			net.Links = append(net.Links, agent.Link{
				Name: names[i][end], Addrs: p.Addrs, TxChecksum: p.TxChecksum, Aggregate: p.Aggregate, QueueLen: queue,
				Shape: p.Shape, CPUs: h.CPUs,
				Priority: t.priority(h),
			})
		}
	}
	return networks, nil
}

// priority is the priority of the polling threads of a host's links.
func (t Topology) priority(h *backend.Host) uint32 {
	switch {
	case h.Metered && t.UrgentRouters:
		return realtime.Router
	case !h.Metered && t.Urgent:
		return realtime.Receiver
	}
	return 0
}

func (t Topology) index(node string) int {
	return slices.IndexFunc(t.Nodes, func(n Node) bool { return n.Name == node })
}

// check returns an error for a topology that cannot be built, which is a mistake in its Go code.
func (t Topology) check() error {
	roles, metered, linked, ports := map[backend.Role]int{}, 0, map[string]bool{}, map[string]string{}
	for _, l := range t.Links {
		for _, p := range []Port{l.A, l.B} {
			if p.Node == Outside {
				continue
			}
			if t.index(p.Node) < 0 {
				return fmt.Errorf("a link ends at %q, which is no host", p.Node)
			}
			if other, taken := ports[p.Name]; taken && p.Name != "" {
				return fmt.Errorf("ports of %s and %s have the name %q", other, p.Node, p.Name)
			}
			linked[p.Node], ports[p.Name] = true, p.Node
			for _, a := range p.Addrs {
				ip := a.Addr()
				if t.FirstLease.IsValid() && ip.Compare(t.FirstLease) >= 0 && ip.Compare(t.LastLease) <= 0 {
					return fmt.Errorf("%s of %s is one of the leases: there are too many hosts", ip, p.Node)
				}
			}
		}
	}
	for _, n := range t.Nodes {
		if !linked[n.Name] {
			return fmt.Errorf("%s has no link", n.Name)
		}
		roles[n.Role]++
		if n.Metered {
			metered++
		}
	}
	portal := roles[backend.RoleClient] > 0 && roles[backend.RoleServer] > 0
	if metered < 1 && !t.Closed || !portal && roles[backend.RoleGenerator] < 1 {
		return fmt.Errorf(
			"a topology has a metered host, and a client host with a server or else a generator, not %v with %d metered", roles,
			metered)
	}
	return nil
}

// PortalRoles are the roles of hosts that measures with clients need.
var PortalRoles = []string{string(backend.RoleClient), string(backend.RoleServer)}

// RouterLinks is a regular expression for the names of routers' interfaces, if the backend makes the links. The doctor
// finds the routers of labs on its machine by it.
const RouterLinks = `^g[a-z0-9]{5}-r[01]`

// Roles lists the roles of the topology's hosts, each once.
func (t Topology) Roles() (roles []string) {
	for _, n := range t.Nodes {
		if n.Role != "" && !slices.Contains(roles, string(n.Role)) {
			roles = append(roles, string(n.Role))
		}
	}
	return roles
}

// Gateways reports whether traffic crosses two metered hosts, between which a device makes a tunnel.
func (t Topology) Gateways() bool { return t.Outer[0].IsValid() }

// Size is what a lab without clients takes of its machine.
type Size struct {
	Hosts      int // agents, each in a network namespace of its own
	Neighbours int // entries of the machine's table
}

// Size counts a switch as a host, but not as a neighbour: it has no addresses.
func (t Topology) Size() (s Size) {
	for _, n := range t.Nodes {
		s.Hosts++
		if !n.Switch {
			s.Neighbours++
		}
	}
	return s
}

// Close ends all hosts of the lab; the kernel takes links and namespaces with
// them. Twice is harmless.
func (l *Lab) Close() error {
	return backend.Each(l.Hosts, func(_ int, h *backend.Host) error {
		if h == nil {
			return nil
		}
		return h.Stop()
	})
}

// ServeDHCP runs a DHCP server on the first metered host for clients that want leases from
// a router that gives none; the first so many addresses it keeps back for clients
// that have them without asking. It is not part of what is measured.
func (l *Lab) ServeDHCP(ctx context.Context, kept int) error {
	first := l.FirstLease
	for range kept {
		first = first.Next()
	}
	argv := []string{
		"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--bind-interfaces", "--no-ping",
		"--interface=" + l.Port(PortLAN), "--except-interface=lo", "--leasefile-ro", "--user=root", "--dhcp-authoritative",
		"--dhcp-lease-max=100000", "--log-facility=-", "--quiet-dhcp", "--pid-file=", // more leases than any lab has clients
		fmt.Sprintf("--dhcp-range=%s,%s,12h", first, l.LastLease),
		"--dhcp-option=option:router," + l.Gateway.String(),
	}
	if l.LAN6.IsValid() { // router advertisements with the network's prefix, for SLAAC, and no DHCPv6
		argv = append(argv, "--enable-ra", fmt.Sprintf("--dhcp-range=%s,ra-only,%d", l.LAN6.Addr(), l.LAN6.Bits()))
	}
	err := l.Metered()[0].Spawn(ctx, agent.Command{Name: "dnsmasq-lab", Support: true, Argv: argv})
	if err != nil {
		return fmt.Errorf("starting the lab's DHCP server: %w", err)
	}
	return nil
}
