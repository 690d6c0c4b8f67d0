package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// Kinds of simulated client.
const (
	KindVeth    = "veth"    // study 1, 5.1.1: a veth pair and a static address each, one namespace
	KindMacvlan = "macvlan" // study 1, 5.1.2: a namespace and a macvlan with its own MAC each, DHCP
	KindPersona = "persona" // a MAC and a lease each, all in the host's own namespace: see package persona
)

// The most clients of a kind a lab takes.
const (
	MaxVeth = 250 // study 1's /24 network ends there
	// MaxMacvlan is what the files of one agent suffice for where their hard limit
	// is a common 20,000: a namespace and the sockets of a log-in each.
	MaxMacvlan = 4000
	MaxPersona = 65_000 // numbers of clients are two bytes of their hardware addresses
)

// kind is what differs between kinds of client. Each function acts for one client.
type kind struct {
	most    int
	create  func(*Client, context.Context) error
	acquire func(*Client, context.Context) (Tries, error)
	release func(*Client, context.Context) error // twice is harmless
}

var kinds = map[string]kind{
	KindVeth:    {MaxVeth, (*Client).createVeth, (*Client).keepStatic, (*Client).keep},
	KindMacvlan: {MaxMacvlan, (*Client).createMacvlan, (*Client).acquire, (*Client).release},
	KindPersona: {MaxPersona, (*Client).createPersona, (*Client).acquirePersona, (*Client).releasePersona},
}

// Most is how many clients of a kind a lab takes; zero for an unknown kind.
func Most(name string) int { return kinds[name].most }

// Leases reports whether clients of a kind get their addresses by DHCP.
func Leases(name string) bool { return name != KindVeth }

// Config describes the clients of one lab.
type Config struct {
	Kind  string `json:"kind"`  // one of the kinds above
	Count int    `json:"count"` // 1 to Most(Kind)
	First int    `json:"first"` // number of the first; zero is 1. Client hosts of one lab number on
	// Guests are more clients, numbered from FirstGuest on, who are only there for
	// Visit; of kind persona.
	Guests     int `json:"guests"`
	FirstGuest int `json:"first_guest"`

	Parent  string       `json:"parent"`  // the client host's interface towards the router
	LAN     netip.Prefix `json:"lan"`     // for static addresses
	Gateway netip.Addr   `json:"gateway"` // the router, for static addresses
	// FirstStatic is the static address of client 1, from which the others count on;
	// the zero Addr: personas lease. Guests always do, and clients of kind veth never.
	FirstStatic netip.Addr `json:"first_static"`
	Lab         byte       `json:"lab"` // makes MAC addresses of two labs differ
}

// Client is one simulated client. It implements Network.
type Client struct {
	Num int // counts from 1 over all client hosts of a lab
	MAC net.HardwareAddr

	cfg   *Config
	ns    *Namespace     // nil for kinds without one
	lease *dhcpv4.DHCPv4 // the ACK, nil without a lease; of kind macvlan
	self  *self          // of kind persona
	run   Runner

	mu sync.Mutex // guards ip
	ip netip.Addr
}

// Runner starts a program in a client's namespace (nil: the host's own) and
// returns what it printed.
type Runner func(ctx context.Context, ns *os.File, argv, env []string) (string, error)

// Pool is all simulated clients of one host.
type Pool struct {
	cfg     Config
	kind    kind
	crowd   *crowd // what clients of kind persona share
	Clients []*Client
	guests  []*Client
}

// NewPool creates the clients' interfaces and namespaces, in parallel. On
// error nothing is left.
func NewPool(ctx context.Context, cfg Config, run Runner) (*Pool, error) {
	k, ok := kinds[cfg.Kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind of client %q (known: %s)", cfg.Kind, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	if last := max(1, cfg.First) + cfg.Count - 1; cfg.Count < 1 || last > Most(cfg.Kind) {
		return nil, fmt.Errorf("%d clients of kind %s, the last of which is number %d: want 1 to %d", cfg.Count, cfg.Kind, last, Most(cfg.Kind))
	}
	if last := cfg.FirstGuest + cfg.Guests - 1; cfg.Guests > 0 && (cfg.Kind != KindPersona || last > MaxPersona) {
		return nil, fmt.Errorf("%d guests of kind %s, the last of which is number %d: want kind %s and at most %d", cfg.Guests, cfg.Kind, last, KindPersona, MaxPersona)
	}
	p := &Pool{cfg: cfg, kind: k}
	if cfg.Kind == KindPersona {
		var err error
		if p.crowd, err = newCrowd(cfg); err != nil {
			return nil, err
		}
	}
	for i := range cfg.Count {
		c := p.client(max(1, cfg.First)+i, run)
		if c.self != nil && cfg.FirstStatic.IsValid() {
			c.self.static = after(cfg.FirstStatic, c.Num-1)
		}
		p.Clients = append(p.Clients, c)
	}
	for i := range cfg.Guests {
		p.guests = append(p.guests, p.client(cfg.FirstGuest+i, run))
	}
	if err := p.each(ctx, 8, k.create); err != nil {
		return nil, errors.Join(fmt.Errorf("creating clients: %w", err), p.Close())
	}
	return p, nil
}

// client is the pool's client of a number, without interface and address.
func (p *Pool) client(n int, run Runner) *Client {
	// 02: locally administered; the rest tells lab and client apart.
	mac := net.HardwareAddr{0x02, 0x67, 0x77, p.cfg.Lab, byte(n >> 8), byte(n)}
	c := &Client{Num: n, MAC: mac, cfg: &p.cfg, run: run}
	if p.crowd != nil {
		c.self = &self{crowd: p.crowd}
	}
	return c
}

// each runs fn for every client, at most parallel at once, and returns the
// first error with the number of clients that failed. Once ctx has ended it is not run any more.
func (p *Pool) each(ctx context.Context, parallel int, fn func(*Client, context.Context) error) error {
	return GaveUp(p.arrive(ctx, Pace{Parallel: parallel}, func(ctx context.Context, c *Client) (Tries, error) { return Tries{}, fn(c, ctx) }))
}

// Logout logs every client out.
func (p *Pool) Logout(ctx context.Context, adm Admission) error {
	return p.each(ctx, max(adm.Parallel, 4), func(c *Client, ctx context.Context) error {
		return Logout(ctx, c, adm, c.Num)
	})
}

// Release gives all leases back (RFC 2131, 4.4.6). Twice is harmless.
func (p *Pool) Release(ctx context.Context) error {
	done, err := p.crowd.hold()
	if err != nil {
		return err
	}
	defer done()
	return p.each(ctx, 32, p.kind.release)
}

// Close lets go of all clients' namespaces and interfaces.
func (p *Pool) Close() error {
	var errs []error
	for _, c := range p.Clients {
		errs = append(errs, c.close())
	}
	return errors.Join(append(errs, p.crowd.close())...)
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

// Addresses lists the clients' addresses; call it after Lease.
func (p *Pool) Addresses() []Address {
	list := make([]Address, len(p.Clients))
	for i, c := range p.Clients {
		list[i] = Address{c.Num, c.LocalIP(), c.MAC.String()}
	}
	return list
}

// LocalIP is the client's address; invalid before Lease.
func (c *Client) LocalIP() netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ip
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
	return c.ns.File()
}

// Do runs fn on a thread in the client's namespace; sockets made there stay in it.
func (c *Client) Do(fn func() error) error {
	if c.ns == nil {
		return fn()
	}
	return c.ns.Do(fn)
}

// close lets go of what the client holds. Twice is harmless.
func (c *Client) close() error {
	if c.ns == nil {
		return nil
	}
	ns := c.ns
	c.ns = nil
	return errors.Join(ns.Do(EndConnections), ns.Close())
}
