// Package datapath is the seam between the session table and what moves the
// packets.
package datapath

import (
	"net/netip"
	"time"
)

// LargestLAN is the shortest prefix of a LAN, of 262,144 addresses: a data path has a
// place for each address in its tables, and what one kind takes all do.
const LargestLAN = 14

// MAC is a client's Ethernet address.
type MAC [6]byte

// Client is what a data path must know of a client: who has the address, and
// what it may do.
type Client struct {
	Addr     netip.Addr // IPv4 address in the LAN
	MAC      MAC        // the only one that may use Addr
	Admitted bool       // false: DHCP, DNS, the portal and the walled garden only
	Until    time.Time  // end of admission, kept even when nobody is there to end it; zero: none
	Limits   Limits     // while admitted
}

// Limits bound what an admitted client sends and receives. Zero values do not.
type Limits struct {
	UpBps, DownBps uint64 // bits of IP packets a second
	// UpBytes, DownBytes and TotalBytes are values of the address's Counters (for
	// TotalBytes of their sum) at which nothing more passes.
	UpBytes, DownBytes, TotalBytes uint64
}

// Counters are what went through the gateway for an address: forwarded IP
// packets, not what the gateway itself answered. They only grow while Epoch
// stays the same; sessions are differences.
type Counters struct {
	Epoch                  uint64 // of this data path's state; another one: counting began anew at 0
	UpBytes, UpPackets     uint64
	DownBytes, DownPackets uint64
	DroppedPackets         uint64    // beyond a limit
	Seen                   time.Time // of the client's last admitted packet; zero: none yet
}

// Datapath moves packets for the clients it was told of, and for nobody else.
// Every method may be called at any time from several goroutines.
type Datapath interface {
	// Set makes a client's entry what is given, whatever it was: the address's
	// former owner is out from then on. Once it has returned for a client that was
	// admitted and no longer is, Counters have its last packet. On error the entry
	// is as it was.
	Set(Client) error
	// Remove takes an address's entry away: nothing of it passes any more, and
	// Counters are as after Set. An address without an entry is no error.
	Remove(netip.Addr) error
	// Counters reads an address's counters, also after Remove.
	Counters(netip.Addr) (Counters, error)
	// Open lets clients that are not admitted reach a prefix until the given
	// time; the zero time is for ever, one that has passed closes it again.
	Open(netip.Prefix, time.Time) error
	// Close lets go of the data path. Whether packets of admitted clients still
	// pass afterwards, each data path says; those of others never do.
	Close() error
}
