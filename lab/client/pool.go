// Package client simulates the clients of a gateway: devices that lease an address, log in at a portal, send traffic
// and leave. It runs in the agent of a client host. NewPool makes the clients that a Config describes. All kinds of
// client offer the same verbs: create, lease, login, status, logout, release.
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
	Count int    `json:"count"` // 1 to the kind's Most
	First int    `json:"first"` // number of the first client; 0 means 1. The numbers are unique in a lab
	// Guests is the number of further clients, which come and go (Visit). Their numbers begin with FirstGuest. The kind
	// must support guests.
	Guests     int `json:"guests"`
	FirstGuest int `json:"first_guest"`

	Parent  string       `json:"parent"`  // the client host's interface towards the router
	LAN     netip.Prefix `json:"lan"`     // for static addresses
	Gateway netip.Addr   `json:"gateway"` // the router, for static addresses
	// FirstStatic is the static address of client 1; the others have the addresses after it. It is for kinds that can both
	// lease and have static addresses. The zero Addr: clients lease. Guests always lease.
	FirstStatic netip.Addr `json:"first_static"`
	Account     Account    `json:"account"` // for kinds that log in to get an address (PPPoE)
	// Singly is true when personas must send packets one by one, without segmentation offload.
	Singly bool `json:"singly"`
	Lab    byte `json:"lab"` // a byte of the hardware addresses, so that those of two labs differ
}

// Account holds the clients' credentials; "%d" in User is replaced by the client's number.
type Account struct {
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
}

// Client is one simulated client. It implements Network.
type Client struct {
	Num int // counts from 1 over all client hosts of a lab
	MAC net.HardwareAddr

	cfg *Config
	ns  *Namespace // nil for kinds without one
	net attachment
	run Runner

	ip atomic.Pointer[netip.Addr] // nil before it has an address
}

// Runner starts a program in a client's namespace (nil: the host's own) and
// returns what it printed.
type Runner func(ctx context.Context, ns *os.File, argv, env []string) (string, error)

// Pool is all simulated clients of one host.
type Pool struct {
	cfg     Config
	host    host
	Clients []*Client
	guests  []*Client

	mu       sync.Mutex // guards visiting
	visiting *guests    // nil while no guests come
}

// NewPool creates the clients' interfaces and namespaces, in parallel. run starts their programs. On error it removes
// what it has created.
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

// Kind is the clients' kind.
func (p *Pool) Kind() Kind { return KindOf(p.cfg.Kind) }

// newClients makes count clients with the numbers from first on, without interfaces and addresses.
func (p *Pool) newClients(first, count int, run Runner) []*Client {
	list := make([]*Client, count)
	for i := range list {
		n := first + i
		// 02: locally administered; the rest tells lab and client apart.
		mac := net.HardwareAddr{0x02, 0x67, 0x77, p.cfg.Lab, byte(n >> 8), byte(n)}
		list[i] = &Client{Num: n, MAC: mac, cfg: &p.cfg, run: run}
		list[i].net = p.host.attach(list[i])
	}
	return list
}

// each calls fn for every client, for at most parallel of them at once. It returns the first error and the number of
// clients that failed. After the end of ctx it does not call fn any more.
func (p *Pool) each(ctx context.Context, parallel int, fn func(context.Context, *Client) error) error {
	return GaveUp(p.inTurn(
		ctx, Pace{Parallel: parallel}, func(ctx context.Context, c *Client) (Tries, error) { return Tries{}, fn(ctx, c) }))
}

// Logout logs every client out.
func (p *Pool) Logout(ctx context.Context, adm Admission) error {
	return p.each(ctx, max(adm.Parallel, 4), func(ctx context.Context, c *Client) error {
		return Logout(ctx, c, adm, c.Num)
	})
}

// Release gives all leases back (RFC 2131, 4.4.6). Twice is harmless.
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

// SNMPFiles opens the counters of the clients' own namespaces.
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

// Address is a client's number, IP and MAC.
type Address struct {
	Num int        `json:"num"`
	IP  netip.Addr `json:"ip"`
	MAC string     `json:"mac"`
}

// Addresses lists the clients' addresses; clients that lease have none before.
func (p *Pool) Addresses(context.Context) []Address {
	list := make([]Address, len(p.Clients))
	for i, c := range p.Clients {
		list[i] = Address{c.Num, c.LocalIP(), c.MAC.String()}
	}
	return list
}

// LocalIP is the client's address; invalid before Lease.
func (c *Client) LocalIP() netip.Addr {
	if ip := c.ip.Load(); ip != nil {
		return *ip
	}
	return netip.Addr{}
}

// setIP sets the client's address; the zero Addr means none.
func (c *Client) setIP(ip netip.Addr) { c.ip.Store(&ip) }

// DialContext connects as this client, over TCP. addr is a literal address and port.
func (c *Client) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	return c.net.dial(ctx, addr)
}

// Exec runs a command as this client.
func (c *Client) Exec(ctx context.Context, argv, env []string) (string, error) {
	return c.run(ctx, c.NetNS(), argv, env)
}

// NetNS is the client's namespace, nil when it shares the host's.
func (c *Client) NetNS() *os.File {
	if c.ns == nil {
		return nil
	}
	return c.ns.file
}

// Do runs fn on a thread in the client's namespace; sockets made there stay in it.
func (c *Client) Do(fn func() error) error { return c.ns.Do(fn) }
