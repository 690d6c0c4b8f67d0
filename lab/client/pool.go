// Package client simulates the clients of a gateway. It runs in the agent of
// the client host. All kinds of client offer the same verbs: create, lease,
// login, status, logout, release.
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

// InitialWindow is the initial congestion window of every route of the lab, of
// clients and hosts alike, segments: the first burst of a stream leaves whole.
const InitialWindow = 64

// Config describes the clients of one lab.
type Config struct {
	Kind  string `json:"kind"`  // one of Kinds
	Count int    `json:"count"` // 1 to the kind's Most
	First int    `json:"first"` // number of the first; zero is 1. Client hosts of one lab number on
	// Guests are more clients, numbered from FirstGuest on, for Visit alone. The kind
	// has to take guests.
	Guests     int `json:"guests"`
	FirstGuest int `json:"first_guest"`

	Parent  string       `json:"parent"`  // the client host's interface towards the router
	LAN     netip.Prefix `json:"lan"`     // for static addresses
	Gateway netip.Addr   `json:"gateway"` // the router, for static addresses
	// FirstStatic is the static address of client 1, from which the others count on, for a
	// kind that both leases and takes static addresses. The zero Addr: its clients lease.
	// Guests always lease.
	FirstStatic netip.Addr `json:"first_static"`
	Account     Account    `json:"account"` // for a kind that logs in to have an address
	// Singly is that the packets that personas send are made one by one.
	Singly bool `json:"singly"`
	Lab    byte `json:"lab"` // makes MAC addresses of two labs differ
}

// Account is what clients log in with; "%d" in User becomes the client's number.
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

// NewPool creates the clients' interfaces and namespaces, in parallel. On
// error nothing is left.
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

// newClients are so many clients, without interfaces and addresses.
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

// each runs fn for every client, at most parallel at once, and returns the
// first error with the number of clients that failed. Once ctx has ended it is not run any more.
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

// Close lets go of all clients' namespaces and interfaces.
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

// setIP notes the client's address; the zero Addr: it has none any more.
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
