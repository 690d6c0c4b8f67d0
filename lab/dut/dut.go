// Package dut holds the devices under test (DUT): gateways, tunnels and capture programs that the lab installs on a
// router and compares with a clean router. New makes a device from its name in an experiment. A measure then calls
// Start, Stop and Traits, and the optional interfaces Counted, Provable, Admitter, Capturing and Encapsulating.
// Adding a device takes one file and one line of a table in table.go, capture.go or tunnel.go.
package dut

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
)

// ErrNotSupported is wrapped by Check when a DUT cannot run here. The DUT is then
// skipped with the reason; it never fails the run.
var ErrNotSupported = errors.New("not supported here")

// DUT is a device under test on one router. The lab makes a new one for each
// block and lab, calls Start once and always calls Stop, also after a failed
// or interrupted Start.
type DUT interface {
	// Start installs the DUT. It returns nil only when admitted clients'
	// traffic will be forwarded; otherwise an error that says what did not become ready.
	Start(ctx context.Context, env Env) error
	// Stop undoes Start, also a half-way one, and may be called twice.
	Stop(ctx context.Context, env Env) error
	// Traits are constant for a given number of clients and known before Start.
	Traits() Traits
}

// Counted is a DUT that counts its clients.
type Counted interface {
	DUT
	// Counts are numbers by what they count: "sessions" of admitted clients, "leases", ….
	// It changes nothing and may be called at any time between Start and Stop.
	Counts(ctx context.Context, env Env) (map[string]int, error)
}

// Provable is a DUT that can prove that the router forwards in the way that is to be measured. Without a proof, a
// device that is set up wrongly would be measured as if it were right: a flowtable, for instance, that no connection
// enters.
type Provable interface {
	DUT
	// FailedProof returns why the proof fails, as a sentence for reports, and "" when it holds. The router must carry
	// load when it is called. It changes nothing on the router. A trial whose proof fails is rejected. The error is of
	// a router that could not be queried.
	FailedProof(ctx context.Context, env Env) (string, error)
}

// BlocksUnadmitted reports whether a DUT must forward nothing for clients that are not admitted. That is true of every
// DUT that admits clients, unless it is open (Traits.Open). It is false for PPPoE: before their login those clients
// have no address and can send nothing.
func BlocksUnadmitted(d DUT) bool {
	t := d.Traits()
	if t.Open || t.PPPoE {
		return false
	}
	adm, ok := d.(Admitter)
	return t.Admission.Kind != client.AdmitNone || ok && adm.Admits()
}

// EndsAdmission reports whether a DUT blocks clients again before it is stopped, because they log out or because the
// DUT revokes their admission.
func EndsAdmission(d DUT) bool {
	adm, ok := d.(Admitter)
	return BlocksUnadmitted(d) && (len(d.Traits().Admission.Logout) > 0 || ok && adm.Revokes())
}

// Traits say what the lab must know of a DUT before it builds the lab around it.
type Traits struct {
	// LAN is the clients' network; the zero value is study 1's 192.168.137.0/24.
	LAN netip.Prefix
	// Families are the IP protocols that the DUT forwards, of client.IPv4 and client.IPv6; nil: IPv4 alone. NoIPv6 says
	// why not IPv6, as the end of a sentence; empty: nothing more is known.
	Families []client.Family
	NoIPv6   string
	// LeasesIPv4 is true when the DUT knows clients by their IPv4 leases, so that they have one with family IPv6 as well.
	LeasesIPv4 bool
	// DHCP is true when the DUT itself leases addresses. Otherwise the lab runs
	// a DHCP server for clients that want leases, and does not count it.
	DHCP bool
	// PPPoE is true when clients log in over PPPoE, with the user and the password of Admission.
	PPPoE bool
	// Neighbours is true when the DUT enters its clients into the router's neighbour table
	// itself, beyond the limit of entries that the kernel learns. The lab then enters none.
	Neighbours bool
	// Tunnel is true when the DUT makes a tunnel between two gateways, and is installed on both.
	Tunnel bool
	// Processes are the command names (comm) whose CPU and memory count; empty
	// counts every process the DUT started on the router.
	Processes []string
	// KernelThreads are names, up to the slash, of kernel threads whose CPU time counts as the DUT's: "kworker". All
	// threads of that name on the machine count, because the kernel does not tell for whom each one works.
	KernelThreads []string
	// NoAggregation asks for links towards the clients without GRO, whatever the profile.
	NoAggregation bool
	// NoTxChecksum asks for links with transmit checksum offload off; the clean
	// router beside the DUT gets the same.
	NoTxChecksum bool
	// Aggregates is true when the DUT itself joins several packets into one. The router's IP layer may then see fewer
	// packets than arrived.
	Aggregates bool
	// TakesFrames is true when captured frames do not reach the kernel's network stack. Such a DUT cannot run on a
	// router, which would forward nothing.
	TakesFrames bool
	// Housekeeping is how often the device works by itself, such as on sessions that have
	// run out; zero: not known. The report says when a run was too short to hold that work.
	Housekeeping time.Duration
	// Admission is what a client must do before its traffic is forwarded.
	// Addresses in it are valid once Start has returned.
	Admission client.Admission
	// Open is true when the DUT admits clients and nevertheless forwards their traffic before that. The lab then does
	// not prove that unadmitted clients are blocked.
	Open bool
	// Login is how long one of many clients takes to log in, and PersonaLogin one of
	// kind persona beside a steady load, for estimates; zero: not known. Once Start has
	// returned a Login is what the device found on this CPU.
	Login, PersonaLogin time.Duration
	// Needs are what the DUT uses on its hosts; Check looks for it.
	Needs []Need
	// About is one line for reports: "openNDS 9.10.0 (nftables)".
	About string
}

// FamiliesText names the families where IPv6 is one of them: "IPv4 and IPv6"; else it is empty.
func (t Traits) FamiliesText() string {
	switch {
	case !slices.Contains(t.Families, client.IPv6):
		return ""
	case !slices.Contains(t.Families, client.IPv4):
		return "IPv6 alone"
	}
	return "IPv4 and IPv6"
}

// Host is a machine of the lab a DUT is installed on, spoken to through its agent.
type Host interface {
	// Run executes a command to its end. An exit status other than zero is an
	// error that carries the last lines of its output; Output is filled either way.
	Run(ctx context.Context, cmd agent.Command) (agent.Output, error)
	// Spawn starts a long-running command; its output goes to the run's logs.
	Spawn(ctx context.Context, cmd agent.Command) error
	// End ends a spawned command with all that it started: the signals of the request in turn, at last SIGKILL. It
	// returns how it ended and what it printed; an unknown name is the zero Program and no error.
	End(ctx context.Context, e agent.Ending) (agent.Program, error)
	// WriteFile writes a file the host's processes see. /etc, /run, /tmp and
	// /var/lib of a namespace host are private copies: writing there never reaches the machine.
	WriteFile(ctx context.Context, path string, data []byte, mode uint32) error
	// Programs lists the spawned commands that End has not ended, with exit status
	// and last lines of output.
	Programs(ctx context.Context) ([]agent.Program, error)
}

// Env is where a DUT is installed.
type Env struct {
	Hosts   map[string]Host   // by the names of the topology; see Host
	Ports   map[string]string // interfaces by the names of the topology; see Port
	LAN     netip.Prefix      // clients' network, wide enough for Clients
	Gateway netip.Addr        // router's address in LAN
	// RouterWAN is the router's address towards the server, study 1: 192.168.89.99.
	RouterWAN netip.Addr
	// ServerIP is where traffic goes, study 1: 192.168.89.1.
	ServerIP netip.Addr
	// LAN6, Gateway6, RouterWAN6 and ServerIP6 are the same in IPv6; invalid in a lab whose clients have none.
	LAN6                            netip.Prefix
	Gateway6, RouterWAN6, ServerIP6 netip.Addr
	// Sessions6 is the network of which clients of PPPoE sessions have a /64 each; invalid as LAN6 is.
	Sessions6 netip.Prefix
	// ServiceIP is a second address of the server for RADIUS and portal pages,
	// so that opening it to unauthenticated clients does not open ServerIP.
	ServiceIP netip.Addr
	// Store is the address of the host "store"; invalid in a topology without one.
	Store netip.Addr
	// LAN2, Gateway2 and RouterWAN2 are of a second gateway with a LAN of its own, see Second; invalid where none is.
	LAN2                 netip.Prefix
	Gateway2, RouterWAN2 netip.Addr
	// Outer are the addresses of two gateways on the link between them, first that of the clients' gateway: invalid
	// where there is one router.
	Outer [2]netip.Addr
	// Routers are the names of the metered hosts, in the order in which clients' packets pass them.
	Routers []string
	// On is the host that the device is installed on, by its name in the topology, and Capture that host's
	// interface where the frames pass: a router's towards the server, or the one that a splitter leads to.
	On, Capture string
	Clients     int    // clients that will be admitted
	Scratch     string // private directory on each host, removed with the lab
	// Install returns the file by which the router's programs reach one of the device's
	// Needs. Where that takes a copy, it is put into dir.
	Install func(ctx context.Context, n Need, dir string) (path string, err error)
}

// Host is the host that the lab's topology calls by a name: "router", "server". A device
// asks only for hosts that its topology has.
func (e Env) Host(name string) Host {
	h, known := e.Hosts[name]
	if !known {
		panic(fmt.Sprintf("dut: the lab has no host %q", name))
	}
	return h
}

// Port is the interface that the lab's topology calls by a name: "lan", towards the
// clients, "wan", towards the server.
func (e Env) Port(name string) string {
	port, known := e.Ports[name]
	if !known {
		panic(fmt.Sprintf("dut: the lab has no port %q", name))
	}
	return port
}

// queryTimeout bounds a command that reads the router's state under load. It usually takes milliseconds; a fully loaded
// emulated CPU takes much longer.
const queryTimeout = 3 * time.Minute

// queryRouter runs a program on the router and returns its standard output. The program's CPU time does not count as
// the DUT's.
func queryRouter(ctx context.Context, env Env, argv ...string) (string, error) {
	out, err := env.Host("router").Run(ctx, agent.Command{Argv: argv, Support: true, Timeout: queryTimeout})
	if err != nil {
		return "", fmt.Errorf("asking the device what it knows: %w", err)
	}
	return out.Stdout, nil
}
