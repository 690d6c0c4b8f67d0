package datapath

import (
	"context"
	"io"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Kind is a kind of data path: how it is opened, how it is removed from the kernel (to leave it), and what the daemon
// must know about it. The zero value of a field is right for most kinds.
type Kind struct {
	Traits
	// Open opens the data path. As soon as the packets of clients that are not admitted are kept from passing, it calls
	// Setup.LeaveFormer, which removes what other kinds left. It fails with ErrBusy if another gateway has an interface.
	// After an error nothing is open.
	Open func(Setup) (Running, error)
	// Check reports what keeps Open from working on this machine, as far as that can be known without opening.
	Check func(Setup) error
	// Warn returns what may keep the data path from doing all that is asked of it; nil: nothing is known.
	Warn func(Setup) []string
	// Left reports whether something is in the kernel that Leave would remove; nil: only what kinds share shows that.
	Left func(Setup) bool
	// Leave removes what a data path of this kind left, except what kinds share. What does not exist is no error. The
	// interfaces must be locked, and may be gone.
	Leave func(Setup) error
	// LeavesClosed: Leave first has the guard (package guard) let nothing pass, and removes the guard in the end.
	LeavesClosed bool
	// InSight checks that Leave would find everything; nil: it would.
	InSight func(Setup) error

	Shares       []Shared      // what it uses of what kinds share
	Pins         bool          // it pins BPF objects, in a folder that no other gateway may have
	Capabilities []int         // of Linux, that a daemon that serves needs for it in addition to those for all kinds
	Opening      []int         // capabilities that the daemon needs to open one while others serve
	OwnWAN       bool          // gateways of other LANs cannot share its WAN
	Outlives     time.Duration // how long admitted clients' packets pass without the daemon
	// Interface returns the interface on which the kernel receives clients' packets for the gateway; "": each client has
	// its own. nil: it is the LAN's.
	Interface func(Setup) string
	// OwnAddress: the data path gives that interface the gateway's address, and the LAN's must not have it.
	OwnAddress bool
	// Keep is the process that has a killed daemon's files meanwhile (Setup.Keeper); nil: none is needed.
	Keep func(listener *os.File, log *slog.Logger) error
}

// Forever is the value of Outlives of data paths that need no daemon.
const Forever = time.Duration(math.MaxInt64)

// Shared is something in the kernel that several kinds of data paths use, such as the guard. Each LAN has its own.
type Shared int

const (
	Neighbours Shared = iota // clients' entries in the neighbour table
	Routes                   // to networks behind clients, by the LAN's interface
	Frames                   // the rule that drops the LAN's frames
	Guarding                 // the rules that keep the kernel from forwarding
)

// Setup is what a gateway's configuration and machine give its data path. No kind needs all of it.
type Setup struct {
	Kind        string // that the configuration names
	Networks    []Network
	WAN         string   // interface; Ethernet, without a VLAN tag of its own, where programs or rules read its frames
	PortalPorts []uint16 // TCP ports of the portal, at most 4; clients' HTTP goes to the first
	PPPoE       bool     // clients may be on PPPoE
	Sessions    int      // how many PPPoE sessions there can be at once
	Flows       bool     // connections are logged
	DHCP        bool     // the gateway leases addresses, and reads what Requests returns
	// Newcomer is called for clients with an address that was not leased; nil: their packets are dropped silently.
	Newcomer    func(netip.Addr, MAC)
	ForeignPins []string         // pins of links of gatewayd's other programs at the interfaces
	Keeper      func() *exec.Cmd // the command of a process that calls Keep; nil: none
	// Shared is the folder for pins of what several networks of a daemon share; "": there is one network. Reaches are the
	// interfaces of the networks whose clients and this network's may reach each other.
	Shared       string
	Reaches      []string
	StayClosed   bool         // Leave has the guard let nothing pass, and leaves it there
	RemoveFormer func() error // removes what data paths of other kinds left; nil: nothing is to be removed
	Log          *slog.Logger

	// The keys of [datapath].
	Fast                        bool
	Device                      string
	Forward, FlowCache, Shaping string
	PinDir                      string
}

// LAN is the interface of the first network; "": there is none.
func (s Setup) LAN() string {
	if len(s.Networks) == 0 {
		return ""
	}
	return s.Networks[0].Interface
}

// LeaveFormer removes everything that data paths of other kinds left in the kernel.
func (s Setup) LeaveFormer() error {
	if s.RemoveFormer == nil {
		return nil
	}
	return s.RemoveFormer()
}

// Forwarder is what every kind of data path does for the daemon.
type Forwarder interface {
	Datapath
	// Clients lists the clients that have an entry.
	Clients() ([]ID, error)
	// Total sums the counters of all clients.
	Total() (Counters, error)
	// Packets counts packets by outcome.
	Packets() (map[string]uint64, error)
	// Forwarding names the present way of forwarding, in a word or two, and the reason where it is not the usual one.
	Forwarding() (word, why string)
}

// MaxVisits bounds the ports that are open for one device each (Running.OpenFor).
const MaxVisits = 1 << 16

// Running is an open data path. Fields that are nil are abilities that this kind does not have.
type Running struct {
	Forwarder
	// Wait returns when ctx ends, or with the reason why the data path has failed. nil: it cannot fail.
	Wait func(context.Context) error
	// Portal sets the listening socket that gets clients' HTTP for any address, until it is closed.
	Portal func(listener syscall.Conn) error
	// Requests returns a reader of clients' DHCP requests. Each Read returns one whole frame. No socket receives them
	// then.
	Requests func() (io.ReadCloser, error)
	// OpenPort lets unauthenticated clients reach a port until the given time, or keeps them from it; the zero
	// time means without end, a past time ends that. A port that is shut stays shut while the same one is opened.
	OpenPort func(GardenPort, time.Time) error
	// OpenFor lets one device reach a TCP port of an address until the given time, before it logs in; a past time ends
	// that. Other devices do not reach it. The addresses of this machine stay closed. There may be MaxVisits, and
	// those whose time is over count until a call ends them.
	OpenFor func(MAC, netip.AddrPort, time.Time) error
	// Moved calls f for the clients whose packet counters have changed since its last call; at the first call, for those
	// whose counters are not 0. It reads all in one pass, which costs far less than reading them one by one. It has one
	// caller at a time. After an error, clients that it has not reached follow with the next call.
	Moved func(f func(ID)) error
	// Forget forgets the packets of each direction of connections. Connections that it does not know are no error.
	Forget func([]Tracked) error
	// Repairs counts, by what it was, what this data path has put back after other programs removed it.
	Repairs  func() map[string]uint64
	Carrier  Carrier
	Bypassed BypassCounter
	IPv6     IPv6
}

// IPv6 is what a data path also does for networks with IPv6.
type IPv6 interface {
	// Heard6 returns a reader of frames that tell clients' IPv6 addresses; each Read returns one Ethernet frame, until
	// Close. Frames of neighbour discovery and DHCPv6 are whole. Of other packets from addresses that no client has, they
	// are the Ethernet and IPv6 headers.
	Heard6() (io.ReadCloser, error)
	// Portal6 sets the listening socket that gets clients' HTTP for any IPv6 address, until it is closed.
	Portal6(listener syscall.Conn) error
	// SetPrefixes6 sets the prefixes that the network has, the gateway's own one among them, and those to which the
	// machine is to have a route because their hosts are on the LAN's link. It fails if there are more than the data path
	// can compare.
	SetPrefixes6(all, onLink []netip.Prefix) error
	// SetPools6 sets the prefixes out of which clients are given networks (Client.Routes). The machine's routes to these
	// prefixes lead to the LAN, and packets for networks that no client has are dropped. It fails as SetPrefixes6 does.
	SetPools6([]netip.Prefix) error
}

// Carrier receives the frames of PPPoE sessions for the concentrator, which cannot receive them itself because the
// data path has the kernel remove PPPoE's header.
type Carrier interface {
	// Carry begins to receive a session's frames. Repeating it has no effect.
	Carry(mac [6]byte, session uint16) error
	// Release ends what Carry began. It does nothing for other sessions.
	Release(mac [6]byte, session uint16)
	// Frames calls f with frames of PPP's control protocols, one after the other until ctx ends. A frame begins with PPP's
	// protocol number; nil: no more frames of the session will come.
	Frames(ctx context.Context, f func(mac [6]byte, session uint16, frame []byte)) error
}

// BypassCounter counts packets that are forwarded without connection tracking, which therefore does not count them.
type BypassCounter interface {
	// Keep forgets all connections except these, which still exist. It is called once, when the log is opened.
	Keep(there []Tracked) error
	// Take returns the traffic of connections that have ended, in their order, and forgets it. With an error
	// some of it may be missing.
	Take(ended []Tracked) ([]Traffic, error)
}
