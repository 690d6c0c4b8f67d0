// Package datapath is the interface between the session table and the data paths, which move the packets.
package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// PPPoEMTU is the MTU of a PPPoE session on an Ethernet of 1500 bytes (RFC 2516, 7).
const PPPoEMTU = 1492

// ParallelNewcomers is how many newcomers a data path reports at once: each waits for the disk, and those that wait
// together are written together.
const ParallelNewcomers = 64

// MAC is a client's Ethernet address.
type MAC [6]byte

// ID identifies a client as long as it is known, whatever addresses it has. The zero value is none.
type ID uint64

// IDOf is the identity of a client that is first known by an IPv4 address: no two clients have the same address. For
// other addresses it is 0, because no client is first known by one.
func IDOf(addr netip.Addr) ID {
	if addr = addr.Unmap(); !addr.Is4() {
		return 0
	}
	b := addr.As4()
	return ID(binary.BigEndian.Uint32(b[:]))
}

// numbered is the first identity that is no IPv4 address.
const numbered = 1 << 32

// Numbered is the identity of a client that has no IPv4 address. The caller gives each such client another number, from
// 0 on.
func Numbered(n uint32) ID { return numbered + ID(n) }

// Number is the number of an identity that Numbered returned.
func (id ID) Number() (n uint32, is bool) {
	return uint32(id), id>>32 == numbered>>32
}

// Addr is the IPv4 address that a client was first known by; invalid: it has a number.
func (id ID) Addr() netip.Addr {
	if id >= numbered {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(id))))
}

// String is the address that the client was first known by, or "#7" for a number.
func (id ID) String() string {
	if n, is := id.Number(); is {
		return fmt.Sprintf("#%d", n)
	}
	return id.Addr().String()
}

// Client is a client as a data path knows it: who it is, which addresses it has, and what is allowed. All of its
// addresses share its limits and are counted together.
type Client struct {
	ID      ID           // 0: that of the first address
	Addrs   []netip.Addr // in the LAN, at least one
	MAC     MAC          // the only one that may use Addrs
	Session uint16       // PPPoE session, the only one in which Addrs are used; 0: they are used without PPPoE
	MTU     uint16       // of the PPPoE session, bytes of an IP packet; 0: PPPoEMTU
	// Routes are networks outside the LAN that are behind the client: packets from and to them are treated as packets of
	// Addrs. No other client has the same network. Only admitted clients on PPPoE have IPv4 networks.
	Routes   []netip.Prefix
	Admitted bool      // false: DHCP, DNS, the portal and the walled garden only
	Until    time.Time // end of admission, enforced also without a daemon; zero: none
	Limits   Limits    // while admitted
}

// Identity is the client's ID; 0: it has none, because its first address is not of IPv4.
func (c Client) Identity() ID {
	if c.ID == 0 && len(c.Addrs) > 0 {
		return IDOf(c.Addrs[0])
	}
	return c.ID
}

// Addr is the address of a client that has a single one, by which it was first known. For other clients it returns an
// error: that of data paths that serve no such clients.
func (c Client) Addr() (netip.Addr, error) {
	if len(c.Addrs) == 1 && c.Addrs[0].Is4() && c.Identity() == IDOf(c.Addrs[0]) {
		return c.Addrs[0], nil
	}
	return netip.Addr{}, fmt.Errorf("the addresses %v: %w: this data path has one IPv4 address of each client", c.Addrs,
		ErrNotSupported)
}

// Limits bound what an admitted client sends and receives. Zero values do not limit.
type Limits struct {
	UpBps, DownBps uint64 // bits of IP packets a second
	// UpBytes, DownBytes and TotalBytes are values of the client's Counters (for TotalBytes of their sum) at which
	// forwarding stops.
	UpBytes, DownBytes, TotalBytes uint64
	// Connections are how many connections the client may have at once. Data paths leave that to package connlimit.
	Connections uint32
}

// Counters count the IP packets forwarded for a client as on the wire (a buffer of many counts as all that it
// stands for), not those that the gateway itself answered. Data paths' counts of packets by outcome agree with
// them: "forwarded" and "stack" are all clients' packets up and down, "rate" and "quota" the dropped ones;
// docs/gateway-reference.md defines all. They only grow while Epoch stays the same; sessions are differences.
type Counters struct {
	Epoch                  uint64 // of this data path's state; a different one: counting restarted at 0
	UpBytes, UpPackets     uint64
	DownBytes, DownPackets uint64
	DroppedPackets         uint64    // beyond a limit
	Seen                   time.Time // of the client's last admitted packet; zero: none yet
}

// Datapath moves packets for the clients that were Set, and for no others. Every method may be called at any time from
// several goroutines.
type Datapath interface {
	// Set replaces a client's entry; its addresses' former owners are blocked from then on, and so are addresses that it
	// had and has no longer. When Set returns for a client that was admitted and no longer is, Counters include its last
	// packet. On error the entry is unchanged.
	Set(Client) error
	// Remove removes a client's entry: no packet of its addresses passes any more, and Counters are as after Set. A client
	// without an entry is no error.
	Remove(ID) error
	// Counters reads a client's counters, also after Remove. It fails with ErrForeign for one that no network has.
	Counters(ID) (Counters, error)
	// Open lets unauthenticated clients reach a prefix until the given time; the zero time means without end, a past time
	// closes the prefix again.
	Open(netip.Prefix, time.Time) error
	// Close closes the data path. Each data path documents whether packets of admitted clients still pass afterwards;
	// those of other clients never do.
	Close() error
}

// GardenPort is a port within a part of the walled garden.
type GardenPort struct {
	Prefix   netip.Prefix
	Protocol uint8 // TCP or UDP, as in IP
	Port     uint16
	Shut     bool // it is closed, whatever else is open of the prefix: HTTP goes to the portal there
}

// Tracked is a connection of the kernel's connection tracking, or one direction of it.
type Tracked struct {
	From, To netip.AddrPort // of its first packet
	Protocol uint8
	Start    time.Time // by the kernel; zero: it has no times
}

// Traffic are IP packets of a client, without its link's headers.
type Traffic struct{ UpBytes, UpPackets, DownBytes, DownPackets uint64 }
