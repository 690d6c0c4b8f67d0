// Package client simulates the clients of a gateway. A client leases an address, logs in at a portal, sends traffic and
// leaves. The package runs in the agent of a client host, the machine or namespace of which clients are part. NewPool
// makes the clients that a Config describes. All kinds of client (kind.go) have the same verbs: create, lease, login,
// status, logout, release.
//
// Words of its files: the device is the gateway under test; a clean router only forwards, without a device. A login
// storm is a measurement in which many clients log in at once. A guest is a client that arrives during a measurement,
// logs in, stays for a moment and leaves. A persona is a client without a namespace of its own.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// InitialWindow is the initial congestion window of every route of the lab, in segments, for clients and hosts alike.
// It is large enough for the first burst of a stream to leave as one.
const InitialWindow = 64

// Config describes the clients of one lab.
type Config struct {
	Kind  string `json:"kind"`  // one of Kinds
	Count int    `json:"count"` // 1 to the kind's MaxClients
	First int    `json:"first"` // number of the first client; 0 means 1. The numbers are unique in a lab
	// Guests is the number of guests, who come and go between Visit and Leave. The kind must support them. Their numbers
	// begin with FirstGuest.
	Guests     int `json:"guests"`
	FirstGuest int `json:"first_guest"`

	Parent  string       `json:"parent"`  // the client host's interface towards the router
	LAN     netip.Prefix `json:"lan"`     // the clients' network
	Gateway netip.Addr   `json:"gateway"` // the router, for static addresses
	// Family says which addresses the clients get. LAN6 is their IPv6 network, a /64, and Gateway6 the router in it.
	Family   Family       `json:"family,omitempty"`
	LAN6     netip.Prefix `json:"lan6,omitzero"`
	Gateway6 netip.Addr   `json:"gateway6,omitzero"`
	// Sessions6 is the network of which each client of a PPPoE session has a /64.
	Sessions6 netip.Prefix `json:"sessions6,omitzero"`
	// LeasesIPv4 is true when clients lease an IPv4 address with family IPv6 as well. They send by IPv6 all the same.
	LeasesIPv4 bool `json:"leases_ipv4,omitempty"`
	// FirstStatic is the static address of client 1; the others have the addresses after it. The zero Addr: clients lease.
	// It is for kinds whose clients can do both. Guests always lease.
	FirstStatic netip.Addr `json:"first_static"`
	Account     Account    `json:"account"` // for kinds that log in to get an address (PPPoE)
	// Singly is true when the kernel must hand the clients' packets to the interface one by one, without segmentation
	// offload.
	Singly bool `json:"singly"`
	Lab    byte `json:"lab"` // a byte of the hardware addresses, which keeps those of two labs apart
}

// leases4 reports whether clients have an IPv4 address.
func (c *Config) leases4() bool { return c.Family.Has4() || c.LeasesIPv4 }

// Account holds the clients' credentials; "%d" in User is replaced by the client's number.
type Account struct {
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
}

// Client is one simulated client. It implements Network.
type Client struct {
	Num int // from 1; unique among all client hosts of a lab
	MAC net.HardwareAddr

	cfg *Config
	ns  *Namespace // nil for kinds without one
	net attachment
	run Runner

	ip, ip6 atomic.Pointer[netip.Addr] // its IPv4 and its IPv6 address; nil before it has one
}

// Runner runs a program in the namespace ns (nil: the host's own) and returns what it printed.
type Runner func(ctx context.Context, ns *os.File, argv, env []string) (string, error)

// Pool is all simulated clients of one host.
type Pool struct {
	cfg     Config
	host    host
	Clients []*Client
	guests  []*Client

	mu    sync.Mutex // guards churn
	churn *churnRun  // nil while no guests come and go
}

// NewPool makes clients with their interfaces and namespaces. run will start their programs. On error it removes what
// it has made.
func NewPool(ctx context.Context, cfg Config, run Runner) (*Pool, error) {
	k := KindOf(cfg.Kind)
	if err := k.check(cfg); err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg}
	var err error
	if p.host, err = k.open(cfg); err != nil {
		return nil, err
	}
	p.Clients = p.newClients(max(1, cfg.First), cfg.Count, run)
	p.guests = p.newClients(cfg.FirstGuest, cfg.Guests, run)
	if err := p.each(ctx, 8, func(ctx context.Context, c *Client) error { return c.net.create(ctx) }); err != nil {
		return nil, errors.Join(fmt.Errorf("creating clients: %w", err), p.Close())
	}
	return p, nil
}

// Kind returns the kind of the clients.
func (p *Pool) Kind() Kind { return KindOf(p.cfg.Kind) }

// newClients makes count clients with the numbers from first on, without interfaces and addresses.
func (p *Pool) newClients(first, count int, run Runner) []*Client {
	list := make([]*Client, count)
	for i := range list {
		n := first + i
		// 02 marks a locally administered address; its last bytes are the lab and the client's number.
		mac := net.HardwareAddr{0x02, 0x67, 0x77, p.cfg.Lab, byte(n >> 8), byte(n)}
		list[i] = &Client{Num: n, MAC: mac, cfg: &p.cfg, run: run}
		list[i].net = p.host.attach(list[i])
	}
	return list
}

// each calls fn for every client, for at most parallel of them at once. It returns the first error, with the number of
// further clients that failed. When ctx has ended it calls fn no more.
func (p *Pool) each(ctx context.Context, parallel int, fn func(context.Context, *Client) error) error {
	return FirstFailure(p.inTurn(
		ctx, Pace{Parallel: parallel}, func(ctx context.Context, c *Client) (Tries, error) { return Tries{}, fn(ctx, c) }))
}

// Logout logs every client out.
func (p *Pool) Logout(ctx context.Context, adm Admission) error {
	return p.each(ctx, max(adm.Parallel, 4), func(ctx context.Context, c *Client) error {
		return Logout(ctx, c, adm, c.Num)
	})
}

// Release gives all leases back (RFC 2131, 4.4.6). A second call does nothing.
func (p *Pool) Release(ctx context.Context) error {
	done, err := p.host.hold()
	defer done()
	if err != nil {
		return err
	}
	return p.each(ctx, 32, func(ctx context.Context, c *Client) error { return c.net.release(ctx) })
}

// Close removes all clients' namespaces and interfaces.
func (p *Pool) Close() error {
	errs := []error{p.host.close()}
	for _, c := range p.Clients {
		if c.ns != nil {
			errs = append(errs, c.ns.Do(EndConnections), c.ns.Close())
			c.ns = nil
		}
	}
	return errors.Join(errs...)
}

// SNMPFiles opens the network counters (/proc/net/snmp) of the clients' own namespaces.
func (p *Pool) SNMPFiles() (files []*meter.SNMPFile, err error) {
	for _, c := range p.Clients {
		if c.ns == nil {
			continue
		}
		err := c.Do(func() error {
			f, err := meter.OpenSNMP()
			files = append(files, f)
			return err
		})
		if err != nil {
			return files, fmt.Errorf("client %d: opening its counters: %w", c.Num, err)
		}
	}
	return files, nil
}

// Address is a client's number, IP addresses and MAC. The zero Addr is an address that it does not have.
type Address struct {
	Num int        `json:"num"`
	IP  netip.Addr `json:"ip"`
	IP6 netip.Addr `json:"ip6,omitzero"`
	MAC string     `json:"mac"`
}

// IPs returns the addresses that the client has, that of IPv4 first.
func (a Address) IPs() (list []netip.Addr) {
	for _, ip := range []netip.Addr{a.IP, a.IP6} {
		if ip.IsValid() {
			list = append(list, ip)
		}
	}
	return list
}

// Addresses lists the clients' addresses. A client that has not leased yet has no IP.
func (p *Pool) Addresses(context.Context) []Address {
	list := make([]Address, len(p.Clients))
	for i, c := range p.Clients {
		list[i] = Address{c.Num, load(&c.ip), load(&c.ip6), c.MAC.String()}
	}
	return list
}

// load returns an address of a client, the zero Addr while it has none.
func load(p *atomic.Pointer[netip.Addr]) netip.Addr {
	if ip := p.Load(); ip != nil {
		return *ip
	}
	return netip.Addr{}
}

// LocalIP returns the address from which the client sends its traffic, the zero Addr while it has none.
func (c *Client) LocalIP() netip.Addr {
	if c.cfg.Family.Sends6(c.Num) {
		return load(&c.ip6)
	}
	return load(&c.ip)
}

// AddressTo returns the client's address of the family of a remote one, the zero Addr while it has none.
func (c *Client) AddressTo(remote netip.Addr) netip.Addr {
	if remote.Is4() {
		return load(&c.ip)
	}
	return load(&c.ip6)
}

// setIP sets the client's address of its family; the zero Addr means that it has no IPv4 address.
func (c *Client) setIP(ip netip.Addr) {
	if ip.Is6() {
		c.ip6.Store(&ip)
		return
	}
	c.ip.Store(&ip)
}

// DialContext connects as this client, over TCP. addr is a literal address and port.
func (c *Client) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	return c.net.dial(ctx, addr)
}

// Exec runs a command as this client.
func (c *Client) Exec(ctx context.Context, argv, env []string) (string, error) {
	return c.run(ctx, c.NetNS(), argv, env)
}

// NetNS returns the client's namespace, nil when it shares the host's.
func (c *Client) NetNS() *os.File {
	if c.ns == nil {
		return nil
	}
	return c.ns.file
}

// Do runs fn on a thread in the client's namespace. Sockets that fn makes belong to the namespace.
func (c *Client) Do(fn func() error) error { return c.ns.Do(fn) }
