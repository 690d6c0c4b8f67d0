package client

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// kinds is the table of kinds of client. The first is the default of an experiment.
var kinds = []Kind{macvlanKind, vethKind, personaKind, pppoeKind}

// Kind is one kind of simulated client: the traits that the rest of the lab reads, and the function that makes its
// clients.
type Kind struct {
	Name string

	// MaxClients is the largest number of clients in a lab, MaxSending in a lab whose traffic is measured.
	MaxClients, MaxSending int

	Leases bool // clients can get their addresses by DHCP, or in a PPPoE session
	Static bool // clients can have static addresses
	Guests bool // the kind supports guests: further clients that come and go while the others send
	// Programs is true when each client can run a traffic program of its own.
	Programs bool
	// Shared is true when all clients use the namespace, the link and the open files of their host, so that several
	// processes can share their streams. Otherwise each client takes Needs.
	Shared bool
	Needs  Needs
	// MaxLearned is the largest number of clients whose hardware addresses the router learns by itself. Where there are
	// more, the lab enters all of them into the router's neighbour table. Zero: the router learns any number.
	MaxLearned int
	// PPPoE is true when clients log in over PPPoE, so that the device must be a PPPoE concentrator. The clean router, the
	// other side of a measurement, is no concentrator, so its clients are of the kind CleanKind.
	PPPoE     bool
	CleanKind string
	MTU       int // largest IP packet of a client, bytes

	Times Times

	open func(Config) (host, error)
}

// Needs is the largest use of the machine by one client.
type Needs struct {
	KiB        int // memory, with the client's stream and its state in gateway and server
	Files      int // open files in the agent of the client host
	Namespaces int // network namespaces
}

// Times is how long one client takes for its actions, for the estimate of a run's length.
type Times struct {
	Stay  time.Duration // creating the client, leasing and leaving, in two labs at the same time
	Storm time.Duration // the same in one lab, as in a login storm
	Login time.Duration // logging in
	// FastLogin is Login at a gateway that answers within a millisecond; zero: the same as Login.
	FastLogin time.Duration
}

// host is the part of a kind that its clients share on their client host, such as a packet socket.
type host interface {
	// attach returns client c's attachment. It changes nothing yet.
	attach(c *Client) attachment
	// hold opens what clients need to lease and to release, such as a socket; done closes it. done is never nil.
	hold() (done func(), err error)
	// close undoes what Kind.open did.
	close() error
}

// attachment connects one client with the network.
type attachment interface {
	// create makes the client's interface, if its kind has any.
	create(context.Context) error
	// lease leases the client's address. It does nothing while the client has one.
	lease(context.Context) (Tries, error)
	// release gives a leased address back. It does nothing when the client has none.
	release(context.Context) error
	// dial connects over TCP from the client's address.
	dial(ctx context.Context, addr string) (net.Conn, error)
}

// unsharedHost is the host part of kinds whose clients share nothing.
type unsharedHost func(*Client) attachment

func (s unsharedHost) attach(c *Client) attachment    { return s(c) }
func (s unsharedHost) hold() (done func(), err error) { return func() {}, nil }
func (s unsharedHost) close() error                   { return nil }

var _ host = (unsharedHost)(nil)

// KindOf returns the kind with a name; for an unknown name it returns the zero Kind.
func KindOf(name string) Kind {
	if i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return kinds[i]
	}
	return Kind{}
}

// Kinds lists the names of the kinds for which match returns true, or of all kinds when match is nil. The default kind
// is the first.
func Kinds(match func(Kind) bool) (names []string) {
	for _, k := range kinds {
		if match == nil || match(k) {
			names = append(names, k.Name)
		}
	}
	return names
}

func kindWithMostClients() Kind {
	return slices.MaxFunc(kinds, func(a, b Kind) int { return a.MaxClients - b.MaxClients })
}

// MaxClients returns the largest number of clients that any kind takes.
func MaxClients() int { return kindWithMostClients().MaxClients }

// LargestKind returns the name of the kind that takes the most clients.
func LargestKind() string { return kindWithMostClients().Name }

// check returns an error for more clients or guests than the kind supports.
func (k Kind) check(cfg Config) error {
	if k.Name == "" {
		return fmt.Errorf("unknown kind of client %q (known: %s)", cfg.Kind, strings.Join(Kinds(nil), ", "))
	}
	if last := max(1, cfg.First) + cfg.Count - 1; cfg.Count < 1 || last > k.MaxClients {
		return fmt.Errorf(
			"%d clients of kind %s, the last of which is number %d: want 1 to %d", cfg.Count, k.Name, last, k.MaxClients)
	}
	if last := cfg.FirstGuest + cfg.Guests - 1; cfg.Guests > 0 && (!k.Guests || last > k.MaxClients) {
		return fmt.Errorf(
			"%d guests of kind %s, the last of which is number %d: want kind %s and at most %d", cfg.Guests, k.Name, last,
			strings.Join(Kinds(func(k Kind) bool { return k.Guests }), " or "), MaxClients())
	}
	return nil
}
