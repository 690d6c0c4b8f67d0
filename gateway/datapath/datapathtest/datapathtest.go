// Package datapathtest is what every data path of the gateway must show, whatever
// moves its packets: one suite, run over all of them in networks of real links,
// with the data path in a process of its own that can be killed.
package datapathtest

import (
	"flag"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netnstest"
)

// Datapath is a data path as the gateway runs it. One that must be shown the
// portal's socket has a method Portal(syscall.Conn) error besides.
type Datapath interface {
	datapath.Datapath
	// Clients lists the addresses that have an entry.
	Clients() ([]netip.Addr, error)
	// Total sums the counters of all addresses.
	Total() (datapath.Counters, error)
	// Packets counts packets by what became of them.
	Packets() (map[string]uint64, error)
	// Forwarding says how packets are forwarded at the moment, in a word.
	Forwarding() string
}

// Config is what a data path is opened for.
type Config struct {
	LAN, WAN    string       // interfaces
	Prefix      netip.Prefix // the LAN's network
	Gateway     netip.Addr   // the gateway's address in it
	PortalPorts []uint16
	Newcomer    func(netip.Addr, datapath.MAC) // nil: addresses are leased by the gateway
	PinDir      string                         // on a bpffs, of this network alone
	Log         *slog.Logger
}

// Path is a data path under test.
type Path struct {
	Name string // unique among those of the package, no slash
	Open func(Config) (Datapath, error)
	// Remove takes all out of the kernel that was left there. The interfaces are locked.
	Remove func(Config) error
	Promises
}

// Promises are where data paths may differ. All else is the same for all.
type Promises struct {
	// OwnAddress: it brings the gateway's address with it, and the LAN interface
	// must have none. False: the interface has it.
	OwnAddress bool
	// Unattended: when nobody holds it any more, admitted clients' packets go on
	// without a loss, counted and within their limits, and a successor finds
	// entries and counters. False: nobody's packets pass then, and a successor begins with
	// no clients and another epoch.
	Unattended bool
	// Lingers is how long admitted clients' packets may still pass when the process
	// that held it was killed; where it is not Unattended.
	Lingers time.Duration
	// Netfilter: the machine's rules, NAT among them, apply to what it forwards.
	Netfilter bool
	// TellsOwn: what a rule masquerades as the gateway on its way to a client is told
	// from what the gateway sends, and judged.
	TellsOwn bool
	// DHCPSocket: DHCP reaches UDP sockets on the LAN interface, such as another
	// server's, and not only packet sockets.
	DHCPSocket bool
	// Requests hears DHCP as whole frames, one a Read; no socket then sees any. nil:
	// sockets do.
	Requests func(Datapath) (io.ReadCloser, error)
	// Newcomers: it tells of clients it does not know, so that others can lease
	// addresses.
	Newcomers bool
	// Greets: the packet that makes a newcomer known goes its way once it was let in.
	// False: it is lost.
	Greets bool
	// Reassembles: fragments are put together before they are judged, so they are
	// billed as one packet, and a stranger's are rejected like whole ones.
	Reassembles bool
	// Joins: packets that reach it aggregated are billed as one, with one header.
	Joins bool
	// Restores: while it is held, rules that somebody flushes out of nftables come back
	// at once, and the admitted with them.
	Restores bool
	// LeavesSums: a packet of an admitted client whose IP header has a wrong sum may be
	// forwarded as it is, for the next hop to drop.
	LeavesSums bool
	// Burst is how long a client that was silent may send at any rate, as bits of
	// its rate limit.
	Burst time.Duration
}

// prepare makes what the worlds share: files, programs' pins, forwarding.
const prepare = `mount -t tmpfs none /run; mount -t bpf bpf /sys/fs/bpf; ip link set lo up; sysctl -qw net.ipv4.ip_forward=1`

// Main is for the TestMain of a package with data paths: it runs the tests in
// namespaces of their own, or is the gateway's process of a test, with one of the
// paths. It does not return.
func Main(m *testing.M, paths ...Path) {
	if name := os.Getenv(pathEnv); name != "" {
		serve(paths[slices.IndexFunc(paths, func(p Path) bool { return p.Name == name })])
	}
	flag.Set("test.parallel", "8") // they mostly wait
	netnstest.Main(m, prepare)
}

// behaviour is one thing every data path must show.
type behaviour struct {
	name  string
	check func(*testing.T, *World)
	shape Shape
}

// Shape is what networks of tests differ in.
type Shape struct {
	Prefix  netip.Prefix // of the LAN; the zero value is 10.1.0.0/24
	Bare    bool         // interfaces without offloads: every packet on its own, with its checksum
	Learn   bool         // the data path tells of newcomers
	Welcome bool         // and they are let in, as by a lease
	Without bool         // no data path is opened yet
}

var behaviours = slices.Concat(strangers, beforeLogin, portHTTP, accounts, limits, changes, routing, lifetimes)

// Run shows that a path does all that it must. The package's TestMain must have
// given the path to Main.
func Run(t *testing.T, p Path) {
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			b.check(t, NewWorld(t, p, b.shape))
		})
	}
}
