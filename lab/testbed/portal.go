// Package testbed builds the hosts and links of a lab. A host is a role with
// an agent; a backend starts hosts; a topology says which hosts and links there
// are. Two labs of the same topology stand side by side for a duet.
package testbed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// Study 1's addressing (5.2.3).
var (
	DefaultLAN     = netip.MustParsePrefix("192.168.137.0/24")
	RouterLAN      = netip.MustParsePrefix("192.168.137.254/24")
	ClientHost     = netip.MustParsePrefix("192.168.137.253/24")
	RouterWAN      = netip.MustParsePrefix("192.168.89.99/24")
	ServerAddr     = netip.MustParsePrefix("192.168.89.1/24")
	ServiceAddr    = netip.MustParsePrefix("192.168.89.2/24") // RADIUS and portal pages, not the traffic's server
	firstLease     = netip.MustParseAddr("192.168.137.1")
	lastLease      = netip.MustParseAddr("192.168.137.250")
	queueLen       = 2000 // a veth drops bursts of SYNs without a queue
	lanNoAddresses = netip.Prefix{}
)

// Profiles: how packets look to the router.
const (
	PerPacket = "per-packet" // each packet handled alone, as on a NIC without GRO
	Bulk      = "bulk"       // GRO on
)

// Portal describes the topology client – router – server of study 1.
//
//	client host                 router                       server
//	 clients ── c0 ═══════ r0 192.168.137.254 ·· r1 192.168.89.99 ═══════ s0 192.168.89.1
type Portal struct {
	Backend       Netns
	Lab           string       // "a" or "b"
	Profile       string       // PerPacket or Bulk
	LAN           netip.Prefix // the clients' network; the zero value is DefaultLAN
	NoAggregation bool         // router's link towards the clients never aggregates
	NoTxChecksum  bool         // no transmit checksum offload on any link
}

// Lab is a standing topology.
type Lab struct {
	Name                   string
	Client, Router, Server *Host
	ClientIf, LANIf        string // ends of the link client – router
	WANIf, ServerIf        string // ends of the link router – server
	LAN                    netip.Prefix
	Profile                string
}

// Hosts are all hosts of the lab.
func (l *Lab) Hosts() []*Host { return []*Host{l.Client, l.Router, l.Server} }

// Build starts the hosts and connects them. On error nothing is left.
func (p Portal) Build(ctx context.Context) (_ *Lab, err error) {
	// The polling threads of all labs share one list of names, so interface
	// names are never used twice. Ten bytes at most, see meter.NAPIThreads.
	id := "g" + strings.ToLower(rand.Text()[:5]) + "-"
	lab := &Lab{Name: p.Lab, ClientIf: id + "c0", LANIf: id + "r0", WANIf: id + "r1", ServerIf: id + "s0", LAN: p.LAN, Profile: p.Profile}
	if lab.LAN == lanNoAddresses {
		lab.LAN = DefaultLAN
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("building lab %s: %w", p.Lab, errors.Join(err, lab.Close()))
		}
	}()
	endpoints := p.Backend.Placement.Endpoints
	start := func(role string, cpus []int, into **Host) func() error {
		return func() (err error) {
			*into, err = p.Backend.Start(ctx, p.Lab+"/"+role, cpus)
			return err
		}
	}
	err = Together(
		start("client", endpoints, &lab.Client),
		start("router", p.Backend.Placement.Router, &lab.Router),
		start("server", endpoints, &lab.Server))
	if err != nil {
		return nil, err
	}
	err = Together(
		func() error {
			return lab.Router.AddPair(ctx, agent.Pair{Name: lab.LANIf, Peer: lab.ClientIf, PeerPID: lab.Client.PID})
		},
		func() error {
			return lab.Router.AddPair(ctx, agent.Pair{Name: lab.WANIf, Peer: lab.ServerIf, PeerPID: lab.Server.PID})
		})
	if err != nil {
		return nil, err
	}
	return lab, Together(
		func() error { return lab.Client.Apply(ctx, p.clientNetwork(lab)) },
		func() error { return lab.Router.Apply(ctx, p.routerNetwork(lab)) },
		func() error { return lab.Server.Apply(ctx, p.serverNetwork(lab)) })
}

// Close ends all hosts of the lab; the kernel takes links and namespaces with
// them. Twice is harmless.
func (l *Lab) Close() error {
	var stops []func() error
	for _, h := range l.Hosts() {
		if h != nil {
			stops = append(stops, h.Stop)
		}
	}
	return Together(stops...)
}

// endpointSysctls hold what would otherwise change by itself between cells:
// a stream that pauses between bursts keeps its window (RFC 2861 would halve it).
var endpointSysctls = map[string]string{
	"ipv4/tcp_slow_start_after_idle": "0",
	"ipv4/tcp_no_metrics_save":       "1",
	"ipv4/tcp_autocorking":           "0",
	"ipv6/conf/all/disable_ipv6":     "1",
	"ipv6/conf/default/disable_ipv6": "1",
}

var routerSysctls = map[string]string{
	"ipv4/ip_forward":                "1",
	"ipv4/conf/all/rp_filter":        "0",
	"ipv4/conf/default/rp_filter":    "0",
	"ipv4/conf/all/send_redirects":   "0",
	"ipv6/conf/all/disable_ipv6":     "1",
	"ipv6/conf/default/disable_ipv6": "1",
}

// Sysctls are the settings of all hosts below net/, for the record.
func Sysctls() map[string]string {
	all := maps.Clone(endpointSysctls)
	maps.Copy(all, routerSysctls)
	return all
}

func (p Portal) link(name string, aggregate bool, cpus []int, addrs ...netip.Prefix) agent.Link {
	return agent.Link{Name: name, Addrs: addrs, TxChecksum: !p.NoTxChecksum, Aggregate: aggregate, QueueLen: queueLen, CPUs: cpus}
}

func (p Portal) clientNetwork(l *Lab) agent.Network {
	return agent.Network{
		Links:   []agent.Link{p.link(l.ClientIf, true, p.Backend.Placement.Endpoints, ClientHost)},
		Routes:  []agent.Route{{Via: RouterLAN.Addr()}},
		Sysctls: endpointSysctls,
	}
}

func (p Portal) routerNetwork(l *Lab) agent.Network {
	aggregate := p.Profile == Bulk
	cpus := p.Backend.Placement.Router
	return agent.Network{
		Links: []agent.Link{
			p.link(l.LANIf, aggregate && !p.NoAggregation, cpus, RouterLAN),
			p.link(l.WANIf, aggregate, cpus, RouterWAN),
		},
		Routes:  []agent.Route{{Via: ServerAddr.Addr()}},
		Sysctls: routerSysctls,
	}
}

func (p Portal) serverNetwork(l *Lab) agent.Network {
	n := agent.Network{
		Links:   []agent.Link{p.link(l.ServerIf, true, p.Backend.Placement.Endpoints, ServerAddr, ServiceAddr)},
		Routes:  []agent.Route{{To: DefaultLAN, Via: RouterWAN.Addr()}},
		Sysctls: endpointSysctls,
	}
	if l.LAN != DefaultLAN {
		n.Routes = append(n.Routes, agent.Route{To: l.LAN, Via: RouterWAN.Addr()})
	}
	return n
}

// Gateway is the router's address in the clients' network: study 1's .254, or
// the first address of another network.
func (l *Lab) Gateway() netip.Addr {
	if l.LAN == DefaultLAN {
		return RouterLAN.Addr()
	}
	return l.LAN.Masked().Addr().Next()
}

// dhcpServer is the name of the lab's own DHCP server among a host's programs.
const dhcpServer = "dnsmasq-lab"

// ServeDHCP runs a DHCP server on the router for clients that want leases from
// a router that gives none. It is not part of what is measured.
func (l *Lab) ServeDHCP(ctx context.Context) error {
	err := l.Router.Spawn(ctx, agent.Command{Name: dhcpServer, Support: true, Argv: []string{
		"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--bind-interfaces", "--no-ping",
		"--interface=" + l.LANIf, "--except-interface=lo", "--leasefile-ro", "--user=root", "--dhcp-authoritative",
		"--dhcp-lease-max=1000", "--log-facility=-", "--quiet-dhcp", "--pid-file=",
		fmt.Sprintf("--dhcp-range=%s,%s,12h", firstLease, lastLease),
		"--dhcp-option=option:router," + RouterLAN.Addr().String(),
	}})
	if err != nil {
		return fmt.Errorf("starting the lab's DHCP server: %w", err)
	}
	return nil
}

// Together works on several hosts at once: it runs all functions, waits for all,
// and joins their errors. What two hosts complain of alike is said once.
func Together(fns ...func() error) error {
	errs := make([]error, len(fns))
	var wg sync.WaitGroup
	for i, fn := range fns {
		wg.Go(func() { errs[i] = fn() })
	}
	wg.Wait()
	said := map[string]bool{}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		again := err == nil || said[err.Error()]
		if !again {
			said[err.Error()] = true
		}
		return again
	})...)
}
