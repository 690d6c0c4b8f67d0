// Package dhcp is the gateway's DHCPv4 server (RFC 2131, 2132). It serves one interface, and the
// relays there that it knows. It is the only server there, so it may refuse unknown addresses.
//
//	          DISCOVER         REQUEST            end, RELEASE
//	(blank) ───────────▶ offered ──────▶ leased ──────────────▶ known ──▶ (blank)
//	   ▲                   │ end           │                      │ needed for
//	   └───────────────────┘               │ DECLINE              │ another client
//	   ▲                                   ▼                      ▼
//	   └────────────── end ─────────── declined
//
// A client is identified by MAC and client identifier together: knowing another client's identifier is not enough to
// take over its address. Where the message or the lease has no identifier, the MAC alone decides, because some clients
// send theirs only sometimes. After a lease has ended, the address stays reserved for its last client until the pool
// has no other. Clients that may not stay, such as those before login, can get shorter leases.
//
// A lease is on disk and reported to the Listener before the client gets its ACK. Changes that arrive while the disk is
// busy are written together.
package dhcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// MAC is a client's Ethernet address.
type MAC = [6]byte

// Range is a range of addresses, both ends included.
type Range struct{ First, Last netip.Addr }

// Option is one DHCP option as sent.
type Option struct {
	Code byte
	Data []byte // 255 bytes at most
}

// Config is the configuration of a Server. Interface, Server, Subnet, Pools or Static, and Path are required.
type Config struct {
	Interface string       // of the LAN
	Server    netip.Addr   // the gateway's address on it: server identifier, source of replies
	Subnet    netip.Prefix // sent to clients
	Pools     []Range      // addresses to lease; the gateway's own and static ones are left out
	Static    map[MAC]netip.Addr

	Lease      time.Duration              // default 1 h, at least 1 s; T1 is half of it, T2 7/8
	ShortLease time.Duration              // lease of clients that are not Settled; 0: Lease, at most that
	Settled    func(MAC, netip.Addr) bool // needed with a shorter ShortLease; must not call the Server
	// addresses a MAC may have at once with different client identifiers; default 4
	AddressesPerMAC int
	// Repeaters are MAC addresses whose frames may be other devices', which their messages name (chaddr). All of one's
	// have at most BehindRepeater addresses.
	Repeaters      map[MAC]bool
	BehindRepeater int          // 0: AddressesPerMAC
	PerMAC         budget.Rate  // requests of one MAC; default 16 at once and 2 a second
	Routers        []netip.Addr // option 3; default Server
	DNS            []netip.Addr // option 6; default Server
	Domain         string       // option 15; empty: not sent
	MTU            int          // option 26 in bytes; 0: not sent
	// IPv6Only is how long clients that ask for option 108 do without an IPv4 address (RFC 8925): they are offered none.
	// At least 300 s; 0: they are offered an IPv4 address.
	IPv6Only         time.Duration
	CaptivePortalURL string // option 114 (RFC 8910), sent asked or not; empty: not sent
	// more options, sent on request; they replace the above but not 1, 51–59, 61, 82, 108
	Options []Option
	Boot    []Boot // what clients load that boot from the network; the first that fits a client is for it

	// Relays may send messages of clients, and are asked to hand on the replies. Others get no answer.
	Relays []Relay
	// Information means that relay agent information of messages without a relay is believed: switches add it and let
	// no client do so. That of Relays is believed in any case.
	Information bool

	// Present asks whether a client still answers for its address, which may take seconds. A RELEASE or DECLINE of a
	// client that does has no effect, nor has one about which it returns an error. nil: all of them have.
	Present  func(context.Context, MAC, netip.Addr) (bool, error)
	askAfter time.Duration // before it is asked; 0: defaultGoodbye

	// Requests opens a source of requests ahead of the kernel's stack, as a data path provides: each Read returns one
	// Ethernet frame, until Close, which may be called more than once. It is called again after each Close. nil: a packet
	// socket is used.
	Requests func() (io.ReadCloser, error)

	Path string // the file that keeps the leases
	// Written is called with each record that was written to the file, and must return at once; nil: nobody is told.
	// Nobody may change the record.
	Written func(addr string, record []byte)
	Log     *slog.Logger // default slog.Default()
}

// Listener is notified of leases before their clients. Calls for one address come in the order of events; calls for
// different addresses may be concurrent. Calls are repeated after errors and restarts.
type Listener interface {
	// Leased reports that a client has an address until its End, for a new or renewed lease. On error the client gets no
	// answer and will ask again.
	Leased(Lease) error
	// Released reports that a lease ended: released, declined or expired. An error is logged; the address is free in any
	// case.
	Released(mac net.HardwareAddr, addr netip.Addr) error
}

// Lease is an address that a client has.
type Lease struct {
	MAC      net.HardwareAddr
	ClientID []byte // option 61; nil: the client sent none
	Addr     netip.Addr
	Hostname string // letters, digits, '-', '_' and '.'; empty: the client sent none
	End      time.Time
	Static   bool
	Attachment
}

const (
	// offerTime is how long an offer is reserved for its client. If the pool has no other address, the oldest offer is
	// also made to the next client, and the first one to request it gets it. A flood of DISCOVERs therefore blocks no
	// address.
	offerTime   = 10 * time.Second
	declineTime = 10 * time.Minute // an address found in use is left alone
)

// withDefaults returns the configuration with every default in place, or says what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	if c.Lease == 0 {
		c.Lease = time.Hour
	}
	if c.ShortLease == 0 {
		c.ShortLease = c.Lease
	}
	if c.AddressesPerMAC == 0 {
		c.AddressesPerMAC = 4
	}
	if c.BehindRepeater == 0 {
		c.BehindRepeater = c.AddressesPerMAC
	}
	if c.PerMAC == (budget.Rate{}) {
		c.PerMAC = budget.Rate{AtOnce: 16, EachSecond: 2}
	}
	if len(c.Routers) == 0 {
		c.Routers = []netip.Addr{c.Server}
	}
	if len(c.DNS) == 0 {
		c.DNS = []netip.Addr{c.Server}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.Subnet = c.Subnet.Masked()
	c.Pools = slices.Clone(c.Pools)
	slices.SortFunc(c.Pools, func(a, b Range) int { return a.First.Compare(b.First) })
	return c, c.check()
}

func (c Config) check() error {
	switch {
	case c.Interface == "":
		return errors.New("dhcp: no interface given")
	case c.Path == "":
		return errors.New("dhcp: no file given to keep leases in")
	case !c.Subnet.Addr().Is4() || c.Subnet.Bits() > 30:
		return fmt.Errorf("dhcp: subnet %s must be an IPv4 network of /30 or larger", c.Subnet)
	case !c.host(c.Server):
		return fmt.Errorf("dhcp: the server's address %s is no host address of subnet %s", c.Server, c.Subnet)
	case c.Lease < time.Second || c.Lease > 366*24*time.Hour:
		return fmt.Errorf("dhcp: lease time %s must be between 1 s and a year", c.Lease)
	case c.ShortLease < time.Second || c.ShortLease > c.Lease || c.ShortLease < c.Lease && c.Settled == nil:
		return fmt.Errorf(
			"dhcp: lease time %s of those who are not settled must be between 1 s and %s, and it must be known who they are",
			c.ShortLease, c.Lease)
	case c.AddressesPerMAC < 0:
		return fmt.Errorf("dhcp: %d addresses a MAC: must be 1 or more", c.AddressesPerMAC)
	case c.IPv6Only != 0 && (c.IPv6Only < 300*time.Second || c.IPv6Only > 366*24*time.Hour):
		return fmt.Errorf("dhcp: %s without IPv4 must be between 300 s and a year", c.IPv6Only)
	case c.MTU != 0 && (c.MTU < 576 || c.MTU > 65535):
		return fmt.Errorf("dhcp: MTU %d must be between 576 and 65535", c.MTU)
	case len(c.Pools) == 0 && len(c.Static) == 0:
		return errors.New("dhcp: neither pools nor static leases given: there is nothing to lease")
	}
	if err := errors.Join(c.checkAddresses(), c.checkRelays()); err != nil {
		return err
	}
	return c.checkOptions()
}

func (c Config) checkAddresses() error {
	for i, r := range c.Pools {
		if !c.host(r.First) || !c.host(r.Last) || r.First.Compare(r.Last) > 0 {
			return fmt.Errorf(
				"dhcp: pool %s-%s must be host addresses of subnet %s, the lower one first", r.First, r.Last, c.Subnet)
		}
		if i > 0 && c.Pools[i-1].Last.Compare(r.First) >= 0 {
			return fmt.Errorf("dhcp: pool %s-%s overlaps the one that ends at %s", r.First, r.Last, c.Pools[i-1].Last)
		}
	}
	owners := map[netip.Addr]MAC{c.Server: {}}
	for mac, addr := range c.Static {
		hw := net.HardwareAddr(mac[:])
		if !c.host(addr) {
			return fmt.Errorf("dhcp: static lease %s of %s is no host address of subnet %s", addr, hw, c.Subnet)
		}
		if other, taken := owners[addr]; taken {
			return fmt.Errorf("dhcp: static lease %s of %s belongs to %s already", addr, hw, net.HardwareAddr(other[:]))
		}
		owners[addr] = mac
	}
	return nil
}

func (c Config) checkOptions() error {
	for _, a := range slices.Concat(c.Routers, c.DNS) {
		if !a.Is4() {
			return fmt.Errorf("dhcp: router or DNS server %s is no IPv4 address", a)
		}
	}
	if len(c.Routers) > 63 || len(c.DNS) > 63 {
		return errors.New("dhcp: more than 63 routers or DNS servers do not fit an option")
	}
	if len(c.Domain) > 253 || strings.ContainsAny(c.Domain, " \x00") {
		return fmt.Errorf("dhcp: %q is no domain name", c.Domain)
	}
	if u, err := url.Parse(c.CaptivePortalURL); err != nil || len(c.CaptivePortalURL) > 255 ||
		(c.CaptivePortalURL != "" && u.Host == "") {
		return fmt.Errorf("dhcp: captive portal API %q must be a full URL of at most 255 bytes", c.CaptivePortalURL)
	}
	for _, o := range c.Options {
		if len(o.Data) == 0 || len(o.Data) > 255 || ownOption(o.Code) {
			return fmt.Errorf(
				"dhcp: option %d needs 1 to 255 bytes, and cannot be 0, 1, 50 to 59, 61, 82, 108 or 255, which the server sets",
				o.Code)
		}
	}
	for _, b := range c.Boot {
		if b.File == "" || len(b.File) > 255 || b.Server.IsValid() && !b.Server.Is4() {
			return fmt.Errorf("dhcp: file %q to boot needs 1 to 255 bytes, and an IPv4 address as server, not %s", b.File,
				b.Server)
		}
	}
	return nil
}

// ownOption reports whether only the server sets an option.
func ownOption(code byte) bool {
	return code == dhcpv4.OptionPad.Code() || code == dhcpv4.OptionEnd.Code() || code == dhcpv4.OptionSubnetMask.Code() ||
		(code >= dhcpv4.OptionRequestedIPAddress.Code() && code <= dhcpv4.OptionRebindingTimeValue.Code()) ||
		code == dhcpv4.OptionClientIdentifier.Code() || code == dhcpv4.OptionRelayAgentInformation.Code() ||
		code == codeIPv6Only
}

// host reports whether addr can be a host's address in the subnet.
func (c Config) host(addr netip.Addr) bool {
	return addr.Is4() && c.Subnet.Contains(addr) && addr != c.Subnet.Addr() && addr != broadcastOf(c.Subnet)
}

// broadcastOf is a subnet's last address.
func broadcastOf(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	mask := net.CIDRMask(p.Bits(), 32)
	for i := range a {
		a[i] |= ^mask[i]
	}
	return netip.AddrFrom4(a)
}
