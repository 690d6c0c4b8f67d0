package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client/persona"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// KindPersona is a client without a namespace: all clients of a host share its namespace, and each has its own hardware
// address and lease (package persona).
const KindPersona = "persona"

const (
	maxPersonas = 65_000 // a client's number is two bytes of its hardware address
	// learnPersonas is the largest number of personas of a host that the router learns by itself. Each persona then asks
	// for the router's hardware address once it has a lease, as any client does before its first packet, and the router
	// learns the persona's from that request. More of them would overflow the machine's neighbour table, which has about a
	// thousand entries.
	learnPersonas = 250
)

var personaKind = Kind{
	Name:       KindPersona,
	MaxClients: maxPersonas, MaxSending: maxPersonas,
	Leases: true, Static: true, Guests: true, Shared: true,
	Needs:      Needs{KiB: 20, Files: 1},
	MaxLearned: learnPersonas,
	MTU:        traffic.EthernetMTU,
	Times: Times{
		Stay: time.Millisecond, Storm: 500 * time.Microsecond,
		Login: 50 * time.Millisecond, FastLogin: 900 * time.Microsecond, // 65,000 took 52 to 58 s
	},
	open: func(cfg Config) (host, error) { return newPersonaHost(cfg, 0) },
}

// personaHost is what the personas of one host share.
type personaHost struct {
	link     *persona.Link
	dhcp     *persona.DHCP
	ndp      *persona.NDP  // nil: the personas have no IPv6
	announce bool          // personas ask for the router's hardware address: see learnPersonas
	sockets  chan struct{} // holds one element for each open socket of a login; its capacity is their largest number

	mu     sync.Mutex         // guards owners
	owners map[netip.Addr]int // number of the client that has the address
}

// newPersonaHost prepares the host's interface. mtu is the MTU of the clients' route in bytes; 0: the interface's.
func newPersonaHost(cfg Config, mtu int) (*personaHost, error) {
	on := persona.Config{Interface: cfg.Parent, LAN: cfg.LAN.Masked(), Clients: cfg.Count + cfg.Guests,
		Window: InitialWindow, MTU: mtu, Singly: cfg.Singly}
	if cfg.Family.Has6() {
		on.LAN6, on.Gateway6 = cfg.LAN6, cfg.Gateway6
		// Without this, sockets bind to addresses of interfaces alone, other than with IPv4.
		if err := SetSysctls(map[string]string{"ipv6/ip_nonlocal_bind": "1"}); err != nil {
			return nil, err
		}
	}
	link, err := persona.Open(on)
	if err != nil {
		return nil, err
	}
	var files unix.Rlimit
	dhcp, err := persona.NewDHCP(cfg.Parent)
	var discovery *persona.NDP
	if err == nil && cfg.Family.Has6() {
		discovery, err = persona.NewNDP(cfg.Parent, cfg.LAN6)
	}
	if err = errors.Join(err, unix.Getrlimit(unix.RLIMIT_NOFILE, &files)); err != nil {
		return nil, errors.Join(err, link.Close())
	}
	return &personaHost{
		link: link, dhcp: dhcp, ndp: discovery, announce: cfg.Count <= learnPersonas,
		sockets: make(chan struct{}, maxSockets(files.Cur)), owners: map[netip.Addr]int{},
	}, nil
}

// ReservedFiles are open files that an agent keeps free for everything but the sockets of its load or logins.
const ReservedFiles = 1024

// maxSockets returns how many sockets of logins may be open at once where files is the limit of open files. It leaves
// ReservedFiles, or half of a low limit, for the rest of the agent. More clients than that wait for each other.
func maxSockets(files uint64) int {
	files = min(files, maxPersonas+ReservedFiles)
	return int(max(1, files-min(ReservedFiles, files/2)))
}

// attach makes c a persona. A guest leases even where the other clients have static addresses.
func (h *personaHost) attach(c *Client) attachment {
	p := &personaClient{Client: c, host: h}
	if first, guests := c.cfg.FirstStatic, c.cfg.Guests > 0 && c.Num >= c.cfg.FirstGuest; first.IsValid() && !guests {
		p.static = addAddr(first, c.Num-1)
	}
	return p
}

// hold keeps the sockets of DHCP and of neighbour discovery open until done is called.
func (h *personaHost) hold() (done func(), err error) {
	if err := h.dhcp.Hold(); err != nil {
		return func() {}, err
	}
	if h.ndp == nil {
		return h.dhcp.Unhold, nil
	}
	if err := h.ndp.Hold(); err != nil {
		return h.dhcp.Unhold, err
	}
	return func() { h.ndp.Unhold(); h.dhcp.Unhold() }, nil
}

func (h *personaHost) close() error { return h.link.Close() }

// claim makes client num the owner of an address; false when another client has it.
func (h *personaHost) claim(ip netip.Addr, num int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if owner, taken := h.owners[ip]; taken && owner != num {
		return false
	}
	h.owners[ip] = num
	return true
}

// personaClient is one persona.
type personaClient struct {
	*Client
	host   *personaHost
	static netip.Addr // its static address; the zero Addr: it leases

	state sync.Mutex    // guards held and held6
	held  persona.Lease // the lease of its address; the zero Lease: it has none
	held6 []netip.Addr  // its IPv6 addresses, the link-local one too
}

func (c *personaClient) create(context.Context) error { return nil }

// mac is the persona's hardware address.
func (c *personaClient) mac() persona.MAC { return persona.MAC(c.MAC) }

// maxDeclines is how often a persona declines an address before lease gives up.
const maxDeclines = 3

// errAddressInUse is why a persona declines an address.
var errAddressInUse = errors.New("another client has the address it was given")

// lease gets the addresses of the client's family: that of IPv4 by DHCP, those of IPv6 by SLAAC.
func (c *personaClient) lease(ctx context.Context) (tries Tries, err error) {
	c.state.Lock()
	defer c.state.Unlock()
	tries = Tries{Count: 1}
	if c.cfg.leases4() {
		tries, err = c.lease4(ctx)
	}
	if err == nil && c.cfg.Family.Has6() && len(c.held6) == 0 {
		var more Tries
		more, err = c.autoconfigure(ctx)
		tries.Add(Tries{Count: more.Count - 1, Refusal: more.Refusal})
	}
	return tries, err
}

// lease4 leases an address by DHCP, or takes the static one. It declines an address that another client has, and asks
// for another (RFC 2131, 3.1, step 5). It does nothing while the persona has an address. The caller has locked state.
func (c *personaClient) lease4(ctx context.Context) (all Tries, err error) {
	if c.held.Addr.IsValid() {
		return Tries{Count: 1}, nil
	}
	if c.static.IsValid() {
		if !c.host.claim(c.static, c.Num) {
			return Tries{Count: 1}, fmt.Errorf("%w: %s", errAddressInUse, c.static)
		}
		return Tries{Count: 1},
			c.setAddress(persona.Lease{Addr: netip.PrefixFrom(c.static, c.cfg.LAN.Bits()), Router: c.cfg.Gateway})
	}
	for n := 1; ; n++ {
		lease, tries, err := c.host.dhcp.Lease(ctx, c.mac())
		all.Add(tries)
		if err != nil {
			return all, fmt.Errorf("asking for a lease: %w", err)
		}
		ip := lease.Addr.Addr()
		if c.host.claim(ip, c.Num) {
			return all, c.setAddress(lease)
		}
		all.Add(Tries{Refusal: errAddressInUse})
		if err := c.host.dhcp.Decline(c.mac(), lease); err != nil {
			return all, fmt.Errorf("declining %s: %w", ip, err)
		}
		if n == maxDeclines {
			return all, fmt.Errorf("%w, %d times; the last is %s", errAddressInUse, n, ip)
		}
	}
}

// setAddress gives the client the address of a lease. The caller has locked state.
func (c *personaClient) setAddress(lease persona.Lease) error {
	h, ip := c.host, lease.Addr.Addr()
	if lease.Router.IsValid() {
		if err := h.link.SetRouter(lease.Router); err != nil {
			return err
		}
	}
	if err := h.link.Put(ip, c.mac()); err != nil {
		return err
	}
	c.held = lease
	c.setIP(ip)
	if !h.announce {
		return nil
	}
	return h.dhcp.Ask(c.mac(), lease)
}

// dropAddress takes the client's address away, without telling the server. The caller has locked state.
func (c *personaClient) dropAddress() error {
	ip := c.held.Addr.Addr()
	c.held = persona.Lease{}
	c.setIP(netip.Addr{})
	c.host.mu.Lock()
	if c.host.owners[ip] == c.Num {
		delete(c.host.owners, ip)
	}
	c.host.mu.Unlock()
	return c.host.link.Remove(ip)
}

func (c *personaClient) release(context.Context) error {
	c.state.Lock()
	defer c.state.Unlock()
	if err := c.dropAddresses6(); err != nil || !c.held.Addr.IsValid() {
		return err
	}
	if !c.static.IsValid() {
		if err := c.host.dhcp.Release(c.mac(), c.held); err != nil {
			return fmt.Errorf("releasing its lease: %w", err)
		}
	}
	return c.dropAddress()
}

// dial waits until the host may open another socket, and connects. It switches TCP's keep-alive off: a login is over
// long before the first probe, and setting it up takes time for ten thousand connections.
func (c *personaClient) dial(ctx context.Context, addr string) (net.Conn, error) {
	sockets := c.host.sockets
	select {
	case sockets <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for an open file of the client host: %w", context.Cause(ctx))
	}
	d := c.dialer(addr)
	d.Timeout, d.KeepAlive = longestAttempt, -1
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		<-sockets
		return nil, err
	}
	return &countedSocket{conn, sync.OnceFunc(func() { <-sockets })}, nil
}

// countedSocket counts as one of personaHost.sockets until it is closed.
type countedSocket struct {
	net.Conn
	giveBack func() // its second call does nothing
}

func (s *countedSocket) Close() error {
	defer s.giveBack()
	return s.Conn.Close()
}

var (
	_ host       = (*personaHost)(nil)
	_ attachment = (*personaClient)(nil)
)
