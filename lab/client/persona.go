package client

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client/persona"
)

// AnnounceMost is up to how many personas of a host ask for the router's hardware address
// once they have a lease, as any client does before its first packet: the router so
// learns theirs. More would overrun the machine's table of neighbours, which has
// room for a thousand; the lab tells the router of them instead.
const AnnounceMost = 250

// crowd is what the personas of one host share.
type crowd struct {
	link     *persona.Link
	dhcp     *persona.DHCP
	announce bool
	room     chan struct{} // has a place for each socket that log-ins may have open at once

	mu     sync.Mutex         // guards owners
	owners map[netip.Addr]int // number of the client that has the address
}

// self is one persona's part of the crowd.
type self struct {
	crowd  *crowd
	static netip.Addr // the address it has without asking; the zero Addr: it leases

	mu    sync.Mutex // guards what follows
	lease persona.Lease
	until time.Time // when the lease ends, or a static address was taken up; zero without an address
	// declines is that it declines the next address it is given.
	declines bool
}

// newCrowd prepares the host's link for personas.
func newCrowd(cfg Config) (*crowd, error) {
	link, err := persona.Open(persona.Config{Interface: cfg.Parent, LAN: cfg.LAN.Masked(), Clients: cfg.Count + cfg.Guests, Window: InitialWindow})
	if err != nil {
		return nil, err
	}
	w := &crowd{link: link, announce: cfg.Count <= AnnounceMost, room: make(chan struct{}, socketRoom()), owners: map[netip.Addr]int{}}
	if w.dhcp, err = persona.NewDHCP(cfg.Parent); err != nil {
		return nil, errors.Join(err, link.Close())
	}
	return w, nil
}

// FilesBeside are kept free for all else that an agent has open: programs, clients,
// sockets of another kind.
const FilesBeside = 1024

// socketRoom is how many sockets of log-ins may be open at once: what the limit of
// open files leaves. More clients than that wait for each other.
func socketRoom() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return MaxPersona // every Linux has this limit
	}
	return socketsWithin(files.Cur)
}

// socketsWithin is socketRoom under a limit of open files. Of a low one all else gets
// no more than half.
func socketsWithin(files uint64) int {
	files = min(files, MaxPersona+FilesBeside)
	return int(max(1, files-min(FilesBeside, files/2)))
}

// hold keeps the DHCP socket open until done is called; a nil crowd has none.
func (w *crowd) hold() (done func(), err error) {
	if w == nil {
		return func() {}, nil
	}
	return w.dhcp.Rest, w.dhcp.Hold()
}

func (w *crowd) close() error {
	if w == nil {
		return nil
	}
	return w.link.Close()
}

// claim makes client num the owner of an address; false when another has it.
func (w *crowd) claim(ip netip.Addr, num int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if owner, taken := w.owners[ip]; taken && owner != num {
		return false
	}
	w.owners[ip] = num
	return true
}

func (w *crowd) disown(ip netip.Addr, num int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owners[ip] == num {
		delete(w.owners, ip)
	}
}

func (c *Client) createPersona(context.Context) error { return nil }

// mac is the persona's hardware address.
func (c *Client) mac() persona.MAC { return persona.MAC(c.MAC) }

// mostDeclines bounds how often a persona declines an address in one go.
const mostDeclines = 3

// errTaken is why an address is declined.
var errTaken = errors.New("another client has the address it was given")

// acquirePersona gets a persona an address over DHCP, or the static one it has. An address that another has
// is declined, and asked for anew (RFC 2131, 3.1, 5). A second call renews nothing.
func (c *Client) acquirePersona(ctx context.Context) (Tries, error) {
	s := c.self
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.until.IsZero() {
		return Tries{Count: 1}, nil
	}
	if s.static.IsValid() {
		return Tries{Count: 1}, c.takeUp(s.static)
	}
	var all Tries
	for n := 1; ; n++ {
		lease, tries, err := s.crowd.dhcp.Lease(ctx, c.mac())
		all.add(tries)
		if err != nil {
			return all, fmt.Errorf("asking for a lease: %w", err)
		}
		if !s.declines && s.crowd.claim(lease.Addr.Addr(), c.Num) {
			return all, c.settle(lease)
		}
		s.declines = false
		if all.Refusal == nil {
			all.Refusal = errTaken
		}
		if err := s.crowd.dhcp.Decline(c.mac(), lease); err != nil {
			return all, fmt.Errorf("declining %s: %w", lease.Addr.Addr(), err)
		}
		if n == mostDeclines {
			return all, fmt.Errorf("%w, %d times; the last is %s", errTaken, n, lease.Addr.Addr())
		}
	}
}

// takeUp settles at a static address. The caller holds the lock of c.self.
func (c *Client) takeUp(ip netip.Addr) error {
	if !c.self.crowd.claim(ip, c.Num) {
		return fmt.Errorf("%w: %s", errTaken, ip)
	}
	return c.settle(persona.Lease{Addr: netip.PrefixFrom(ip, c.cfg.LAN.Bits()), Router: c.cfg.Gateway})
}

// add counts another exchange's tries.
func (t *Tries) add(more persona.Tries) {
	t.Count += more.Count
	if t.Refusal == nil {
		t.Refusal = more.Refusal
	}
}

// settle takes up a lease. The caller holds the lock of c.self.
func (c *Client) settle(lease persona.Lease) error {
	w := c.self.crowd
	ip := lease.Addr.Addr()
	if lease.Router.IsValid() {
		if err := w.link.SetRouter(lease.Router); err != nil {
			return err
		}
	}
	if err := w.link.Put(ip, c.mac()); err != nil {
		return err
	}
	c.self.lease, c.self.until = lease, time.Now().Add(lease.Length)
	c.mu.Lock()
	c.ip = ip
	c.mu.Unlock()
	if !w.announce {
		return nil
	}
	return w.dhcp.Ask(c.mac(), lease)
}

// depart gives up the address on this side. The caller holds the lock of c.self.
func (c *Client) depart() error {
	ip := c.self.lease.Addr.Addr()
	c.self.until = time.Time{}
	c.mu.Lock()
	c.ip = netip.Addr{}
	c.mu.Unlock()
	c.self.crowd.disown(ip, c.Num)
	return c.self.crowd.link.Remove(ip)
}

func (c *Client) releasePersona(context.Context) error {
	s := c.self
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until.IsZero() {
		return nil
	}
	if !s.static.IsValid() {
		if err := s.crowd.dhcp.Release(c.mac(), s.lease); err != nil {
			return fmt.Errorf("releasing its lease: %w", err)
		}
	}
	return c.depart()
}

// renewPersona extends its lease, also before half of it is over.
func (c *Client) renewPersona(ctx context.Context) (Tries, error) {
	s := c.self
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leased() {
		return Tries{Count: 1}, errNoLease
	}
	var all Tries
	lease, tries, err := s.crowd.dhcp.Renew(ctx, c.mac(), s.lease)
	all.add(tries)
	if err != nil {
		return all, fmt.Errorf("renewing its lease: %w", err)
	}
	s.lease.Length, s.until = lease.Length, time.Now().Add(lease.Length)
	return all, nil
}

// leased reports whether it has an address that a server gave it. The caller holds
// the lock.
func (s *self) leased() bool { return !s.until.IsZero() && !s.static.IsValid() }

var errNoLease = errors.New("it has no lease")
