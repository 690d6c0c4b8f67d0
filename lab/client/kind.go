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

// Kind is one kind of simulated client: its traits, which the rest of the lab asks
// for, and how its clients are made.
type Kind struct {
	Name string

	// Most is how many clients a lab takes, and MostSending how many where their
	// traffic is measured.
	Most, MostSending int

	Leases bool // over DHCP, or in a PPPoE session
	Static bool // can have addresses without DHCP
	Guests bool // more clients can come and go while the others send
	// Programs is that each client can run a traffic program of its own.
	Programs bool
	// Shared is that clients share the namespace, the link and the open files of their
	// host, and that several processes can share their streams. Others take Needs each.
	Shared bool
	Needs  Needs
	// LearnMost is up to how many clients the router learns their hardware addresses from what
	// they send; those of more are entered into its neighbour table. Zero: of any number.
	LearnMost int
	// Line is that clients log in over PPPoE, for which the router must be a concentrator. Beside is the kind of
	// client behind a router that is none.
	Line   bool
	Beside string
	MTU    int // bytes of IP in a packet of a client

	Times Times

	open func(Config) (host, error)
}

// Needs is what one client takes of its machine, at most.
type Needs struct {
	KiB        int // of memory, with a stream and what gateway and server know of the client
	Files      int // open in the agent of the client host
	Namespaces int // network namespaces
}

// Times is what one client takes, for the estimate of a run's length.
type Times struct {
	Stay  time.Duration // to be created, to lease and to leave, in two labs side by side
	Storm time.Duration // the same in a storm of logins, which has one lab
	Login time.Duration // to log in
	// FastLogin is Login at a gateway that answers within a millisecond; zero: as Login.
	FastLogin time.Duration
}

// host is what the clients of one kind share on their client host.
type host interface {
	// attach is client c's way into the network. It changes nothing yet.
	attach(c *Client) attachment
	// hold readies the host for clients that lease and release, until done is called. done
	// is never nil.
	hold() (done func(), err error)
	// close undoes what opening the host did.
	close() error
}

// attachment is one client's way into the network.
type attachment interface {
	// create makes the client's interface, if its kind has any.
	create(context.Context) error
	// lease gets the client its address. The second call does nothing.
	lease(context.Context) (Tries, error)
	// release gives a leased address back. The second call does nothing.
	release(context.Context) error
	// dial connects over TCP from the client's address.
	dial(ctx context.Context, addr string) (net.Conn, error)
}

// unsharedHost is the host of clients that share nothing.
type unsharedHost func(*Client) attachment

func (s unsharedHost) attach(c *Client) attachment    { return s(c) }
func (s unsharedHost) hold() (done func(), err error) { return func() {}, nil }
func (s unsharedHost) close() error                   { return nil }

var _ host = (unsharedHost)(nil)

// KindOf is the kind of a name; an unknown one has no name and no clients.
func KindOf(name string) Kind {
	if i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return kinds[i]
	}
	return Kind{}
}

// Kinds lists the names of the kinds for which has is true, of all when it is nil, the
// default kind first.
func Kinds(has func(Kind) bool) (names []string) {
	for _, k := range kinds {
		if has == nil || has(k) {
			names = append(names, k.Name)
		}
	}
	return names
}

func largestKind() Kind { return slices.MaxFunc(kinds, func(a, b Kind) int { return a.Most - b.Most }) }

// Most is the largest number of clients of any kind.
func Most() int { return largestKind().Most }

// Largest is the name of the kind that takes the most clients.
func Largest() string { return largestKind().Name }

// check refuses clients that the kind does not take.
func (k Kind) check(cfg Config) error {
	if k.Name == "" {
		return fmt.Errorf("unknown kind of client %q (known: %s)", cfg.Kind, strings.Join(Kinds(nil), ", "))
	}
	if last := max(1, cfg.First) + cfg.Count - 1; cfg.Count < 1 || last > k.Most {
		return fmt.Errorf(
			"%d clients of kind %s, the last of which is number %d: want 1 to %d", cfg.Count, k.Name, last, k.Most)
	}
	if last := cfg.FirstGuest + cfg.Guests - 1; cfg.Guests > 0 && (!k.Guests || last > k.Most) {
		return fmt.Errorf(
			"%d guests of kind %s, the last of which is number %d: want kind %s and at most %d", cfg.Guests, k.Name, last,
			strings.Join(Kinds(func(k Kind) bool { return k.Guests }), " or "), Most())
	}
	return nil
}
