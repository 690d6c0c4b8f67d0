// Package datapathtest is the test suite that every data path of the gateway must pass. It runs over all of them in
// networks of real links, with the data path in a process of its own that can be killed.
package datapathtest

import (
	"flag"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Path is a data path under test.
type Path struct {
	Name string // unique among those of the package, no slash
	Open func(datapath.Setup) (datapath.Running, error)
	// Remove removes everything that was left in the kernel. The interfaces are locked.
	Remove func(datapath.Setup) error
	Promises
}

// Promises are the properties in which kinds of data paths differ. Tests of other properties are the same for all.
type Promises struct {
	// OwnAddress: the data path creates the gateway's address, and the LAN interface must not have it. False: the
	// interface has it.
	OwnAddress bool
	// Unattended: without a process, admitted clients' packets continue without loss, counted and limited, and a successor
	// finds entries and counters. False: no packets pass then, and a successor begins without clients and with a new
	// epoch.
	Unattended bool
	// Keeps, with Unattended: the successor finds the admitted clients, and no others; each has an epoch of
	// its own. Quotas end traffic soon after they are reached.
	Keeps bool
	// Lingers is how long admitted clients' packets may still pass after the process was killed; for paths that are not
	// Unattended.
	Lingers time.Duration
	// Several: a client may have several addresses.
	Several bool
	// SharesWAN: gateways of other LANs may have the same WAN.
	SharesWAN bool
	// Netfilter: the machine's rules, including NAT, apply to forwarded packets.
	Netfilter bool
	// JudgesMasqueraded: packets that a rule masquerades with the gateway's address on their way to a client are distinguished from
	// the gateway's own packets, and judged.
	JudgesMasqueraded bool
	// DHCPSocket: DHCP reaches UDP sockets on the LAN interface, such as another server's, and not only packet sockets.
	DHCPSocket bool
	// LosesJoined: several UDP packets that a client passes to its kernel as one (UDP_SEGMENT) are lost, because the
	// packet sockets of this kernel cannot describe them (before 6.2).
	LosesJoined bool
	// Requests: it reads DHCP requests itself (datapath.Running.Requests). False: sockets receive them.
	Requests bool
	// Moves: it finds the clients that have sent or received packets in one pass (datapath.Running.Moved).
	Moves bool
	// Neighbours: the kernel's stack sends to clients on the LAN's interface, so they have entries in its neighbour
	// table. False: it sends to them on a device that has no neighbours.
	Neighbours bool
	// Visits: it lets one device alone reach a port (datapath.Running.OpenFor).
	Visits bool
	// Newcomers: the data path reports unknown clients, so that other programs can lease addresses.
	Newcomers bool
	// PPPoE: it takes PPPoE's header off and puts it on. False: clients on PPPoE are refused.
	PPPoE bool
	// Outside: clients on PPPoE may have addresses outside the LAN. False: no such data path is opened.
	Outside bool
	// PPPoEOnly: only clients on PPPoE can be admitted. The kernel drops frames that belong to no PPPoE session without
	// counting them, and ignores PPPoE's version and code.
	PPPoEOnly bool
	// Greets: the packet that makes a newcomer known is forwarded once the newcomer is admitted. False: the packet is
	// lost.
	Greets bool
	// Reassembles: fragments are reassembled before they are judged, so they count as one packet, and those of
	// unauthenticated clients are rejected like whole packets.
	Reassembles bool
	// Joins: several packets that arrive aggregated are counted as one packet with one header.
	Joins bool
	// Restores: while the process runs, rules flushed out of nftables are restored at once, with the admitted clients.
	Restores bool
	// LeavesSums: an admitted client's packet with a wrong IP header checksum may be forwarded unchanged, for the next hop
	// to drop.
	LeavesSums bool
	// SeesBridged: where netfilter sees the frames of the LAN's bridge, those between clients are judged as if they were
	// for the gateway, and an aggregated packet is counted as the packets of the MTU's size into which it is split.
	SeesBridged bool
	// Burst is the traffic that a silent client may send at once, as the time in which its rate limit would allow it.
	Burst time.Duration
}

// prepare creates what all worlds share: files, a bpffs, forwarding.
const prepare = `mount -t tmpfs none /run; mount -t bpf bpf /sys/fs/bpf; ip link set lo up; sysctl -qw net.ipv4.ip_forward=1`

// Main is for the TestMain of a package with data paths. It runs the tests in namespaces of their own. In a process
// that a test started as its gateway, it serves that test instead (Service), with one of the paths. It does not return.
func Main(m *testing.M, paths ...Path) {
	if name := os.Getenv(pathEnv); name != "" {
		serve(paths[slices.IndexFunc(paths, func(p Path) bool { return p.Name == name })])
	}
	flag.Set("test.parallel", "8") // they mostly wait
	netnstest.Main(m, prepare)
}

// behaviour is one property that every data path must have.
type behaviour struct {
	name  string
	check func(*testing.T, *World)
	shape Shape
}

// Shape is how the test network of a behaviour is built.
type Shape struct {
	Prefix  netip.Prefix    // of the LAN; the zero value is 10.1.0.0/24
	Bare    bool            // interfaces without offloads: no packet is aggregated, and each has its checksum
	Learn   bool            // the data path reports newcomers: clients with an address that was not leased
	Welcome bool            // with Learn: a newcomer becomes a known client, as if its address had been leased
	PPPoE   bool            // Alice is on PPPoE
	Outside bool            // with PPPoE: Alice has an address outside the LAN
	Without bool            // NewWorld does not open the data path; the test does
	Place   netnstest.Place // where the clients are linked to the gateway
	Switch  bool            // the hub's netfilter does not look at frames, so that broken ones reach the gateway
	IPv6    bool            // every machine also has the address Six of each of its IPv4 addresses
}

var behaviours = slices.Concat(attacks, uplink, neighbours, floods, strangers, beforeLogin, portHTTP, accounts, limits,
	changes, routing, decisions, lifetimes, pppoeBehaviours, outsideBehaviours)

// Run tests that a path has every required behaviour. The package's TestMain must have given the path to Main.
func Run(t *testing.T, p Path) {
	run(t, p, behaviours)
	if netnstest.DefaultPlace() {
		run(t, p, places)
	}
}

// RunPPPoE is Run for a path that is PPPoEOnly: the behaviours of clients on PPPoE, and some others, with Alice on
// PPPoE.
func RunPPPoE(t *testing.T, p Path) {
	all := slices.Concat(pppoeBehaviours, outsideBehaviours)
	for _, b := range behaviours {
		if slices.Contains([]string{"AdmissionEndsInTime", "RatesHoldUp", "RatesHoldDown", "StreamsKeepTheirRate",
			"RulesFlushed", "SecondGatewayIsRefused", "BooksAgree", "DetachLeavesNothing", "InterfacesMadeAgain"}, b.name) {
			b.shape.PPPoE = true
			all = append(all, b)
		}
	}
	run(t, p, all)
}

// RunAttached is Run for a path with the same eBPF programs as one that Run tests in the same package, but attached to
// the interfaces in another way. It runs the behaviours that can depend on that.
func RunAttached(t *testing.T, p Path) {
	all := slices.Concat(lifetimes, uplink, neighbours, floods)
	for _, b := range behaviours {
		if slices.Contains([]string{"NothingOfStrangersLeaves", "NothingReachesStrangers", "OtherInterfaces",
			"IPv6IsNoWayAround", "HTTPGoesToThePortal", "DHCPComesThrough",
			"PacketsAreCounted", "StreamsAreCounted", "CountersAgree", "RatesHoldUp", "RatesHoldDown", "ManyHands",
			"TrafficFollowsTheNetwork", "NATAndFirewalls", "HooksSeeEveryPacket",
			"PPPoEPacketsAreCounted", "PPPoEOfTheStack", "PPPoEBehindNAT", "ClosedWithPPPoE", "KilledWithPPPoE"}, b.name) {
			all = append(all, b)
		}
	}
	run(t, p, all)
}

func run(t *testing.T, p Path, behaviours []behaviour) {
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			b.check(t, NewWorld(t, p, b.shape))
		})
	}
}
