// Package dhcp6 is the gateway's DHCPv6 server (RFC 8415). It serves one interface without relays. It gives options to
// all (stateless), addresses (IA_NA) and prefixes (IA_PD, RFC 9663: one for each client) from pools, and takes
// registrations of addresses that clients made themselves (RFC 9686).
//
//	          REQUEST, SOLICIT with rapid commit        end, RELEASE, prefix withdrawn
//	(free) ─────────────────────────────────▶ leased ──────────────────────────────▶ (free)
//	   ▲                                       │ DECLINE
//	   └─────────── declineTime ── set aside ◀─┘
//
// A client is identified by its MAC address, DUID and IAID together: knowing another client's DUID is not enough to
// take over its address, and two devices with the same DUID are two clients. So are two PPPoE sessions. In these there
// are options, prefixes, and addresses for which there is a Wish; a lease ends with its session (End). A client's
// address is a keyed hash of its identity and the prefix. So nobody can guess it, the client gets the same one again,
// and an ADVERTISE needs to reserve nothing. A flood of SOLICITs therefore blocks no address.
//
// A lease is in the Store and reported to Events before the client gets its REPLY. Changes that arrive while the disk
// is busy are written together.
package dhcp6

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// MAC is a client's Ethernet address.
type MAC = [6]byte

// Client is whom messages come from: a device of the LAN, or the client of a PPPoE session.
type Client = framelink.Host

// Kind is what a lease is of.
type Kind uint8

// Kinds of leases. The numbers are in the file of leases.
const (
	Address    Kind = 1 // an address from a pool (IA_NA)
	Delegated  Kind = 2 // a prefix from a pool (IA_PD)
	Registered Kind = 3 // an address that the client made itself (RFC 9686)
)

func (k Kind) String() string {
	switch k {
	case Address:
		return "address"
	case Delegated:
		return "prefix"
	case Registered:
		return "registered address"
	}
	return "unknown kind"
}

// Pool is a prefix from which clients get addresses, or prefixes.
type Pool struct {
	Prefix    netip.Prefix
	Preferred time.Duration // left of it; 0: deprecated, which nobody gets who does not have it
	Valid     time.Duration // left of it; 0: withdrawn
	Named     bool          // only clients whose Wish is of it get something
}

// Wish is what a client is to have in place of others. The zero value is any, of the pools that are not Named.
type Wish struct {
	Prefixes []netip.Prefix // these alone, addresses as /128
	Within   netip.Prefix   // without Prefixes: one of this network. It is a pool, or part of one of addresses.
}

// isZero reports whether a wish is for nothing in particular.
func (w Wish) isZero() bool { return len(w.Prefixes) == 0 && !w.Within.IsValid() }

// Prefixes are the network's prefixes at the moment. At most four pools of each kind are used.
type Prefixes struct {
	// OnLink is where clients' addresses are. An address elsewhere is of another network, or of a former prefix. Nothing
	// of it is delegated.
	OnLink    []netip.Prefix
	Addresses []Pool // for IA_NA: IPv6, /112 or larger, within OnLink
	Delegated []Pool // for IA_PD: IPv6, not longer than the delegated prefixes
}

// Lengths are the lengths of delegated prefixes in bits.
type Lengths struct {
	Usual    int // default 64
	Shortest int // that a client gets who asks for it; default Usual
	Longest  int // that a client gets who asks for it; default Usual
}

// Config is the configuration of a Server. Interface, DUID and Store are required.
type Config struct {
	Interface string     // of the LAN
	DUID      []byte     // the server's identifier, type included: always the same; 3 to 130 bytes
	Source    netip.Addr // link-local address of replies; zero: the interface's own
	Store     Store      // keeps the leases; the caller closes it after the Server

	// Prefixes tells the present prefixes. It is called for each message and must neither wait nor call the Server. nil:
	// there are none; clients get options only.
	Prefixes func() Prefixes
	// Taken reports whether an address belongs to another host than a client, for another reason than a lease: the client
	// does not get it. It must neither wait nor call the Server. nil: no address does.
	Taken func(Client, netip.Addr) bool

	Lease      time.Duration     // default 1 h, 1 min to a year; T1 is half of it, T2 4/5
	ShortLease time.Duration     // lease of clients that are not Settled; 0: Lease, at most that
	Settled    func(Client) bool // needed with ShortLease; must neither wait nor call the Server

	// Wanted returns what addresses, or delegated prefixes, a client gets, if they are of pools and no other client has
	// them. What it has besides is taken from it with its next message. It must neither wait nor call the Server. nil: all
	// wishes are zero.
	Wanted func(Client, Kind) Wish

	Lengths         Lengths
	AddressesPerMAC int         // default 16, counted apart for leased and registered ones
	PrefixesPerMAC  int         // default 4
	MaxAddresses    int         // in all, counted apart for leased and registered ones; default 262,144
	MaxPrefixes     int         // in all; default 65,536
	PerMAC          budget.Rate // messages of one MAC; default 16 at once and 2 a second

	Preference byte         // option 7; 255: clients take this server at once; 0: not sent
	DNS        []netip.Addr // option 23; empty: not sent
	// DNSOf returns the servers that a client is told in DNS's place; empty: DNS. It must neither wait nor call the
	// Server. nil: all clients are told DNS.
	DNSOf            func(Client) []netip.Addr
	Search           []string      // option 24: domains; empty: not sent
	CaptivePortalURL string        // option 103 (RFC 8910), sent asked or not; empty: not sent
	Refresh          time.Duration // option 32, 10 min or more; 0: not sent
	Register         bool          // clients may register addresses (RFC 9686)

	// Present asks whether a client still answers for its address, which may take seconds. A RELEASE or DECLINE of a
	// client that does has no effect, nor has one about which it returns an error. nil: all of them have.
	Present  func(context.Context, MAC, netip.Addr) (bool, error)
	askAfter time.Duration // before it is asked; 0: defaultGoodbye

	// InSession reports whether a PPPoE session is there, whose client gets options and prefixes. It must neither wait nor
	// call the Server. nil: none is.
	InSession func(Client) bool

	// Requests opens a source of messages ahead of the kernel's stack, as a data path provides: each Read returns one
	// Ethernet frame with a UDP datagram to port 547 or 546, until Close, which may be called more than once. It is called
	// again after each Close. nil: a packet socket is used.
	Requests func() (io.ReadCloser, error)

	Log *slog.Logger // default slog.Default()
}

// Events is told of leases before their clients. Calls for one address or prefix come in the order of events; calls for
// different clients may be concurrent. Calls are repeated after errors.
type Events interface {
	// Leased reports a new or renewed lease. On error the client gets no answer and will ask again.
	Leased(Lease) error
	// Released reports that a lease ended: released, declined, expired, or its prefix was withdrawn. An error is logged;
	// the address is free in any case.
	Released(Lease) error
	// Rogue reports a device of the LAN that sends what only servers send, once each of the last 1,024 such devices. It
	// must not wait.
	Rogue(mac MAC, source netip.Addr)
}

// Lease is an address or a prefix that a client has.
type Lease struct {
	Kind    Kind
	MAC     MAC
	Session uint16 // PPPoE's; 0: none
	DUID    []byte // the client's identifier, type included
	IAID    uint32 // of the client's identity association; 0 for Registered
	Prefix  netip.Prefix
	Via     netip.Addr // the client's link-local address: next hop of a delegated prefix; zero for Registered
	End     time.Time
}

// Client is the lease's.
func (l Lease) Client() Client { return Client{MAC: l.MAC, Session: l.Session} }

const (
	declineTime = 10 * time.Minute // an address found in use is left alone
	maxDeclined = 4096             // addresses left alone at once: some of 65,536, the smallest pool
	retryTime   = 10 * time.Second // a lease that the disk or Events refused is kept for its client's next try
	// maxRegistration is the longest registration: a client's address is valid for 30 days by default (RFC 4861, 6.2.1).
	maxRegistration = 30 * 24 * time.Hour
)
