package datapathtest

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/rpc"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Service is the RPC service of a gateway's process (net/rpc).
type Service struct {
	path   Path
	config datapath.Setup

	mu     sync.Mutex
	dp     *datapath.Running // guarded by mu; nil: closed
	others *services         // guarded by mu
	seen   Sightings         // guarded by mu
}

// Nothing is the argument of RPC methods that need none.
type Nothing struct{}

// Orders configure a process.
type Orders struct {
	Prefix netip.Prefix // the gateway's address, with the LAN's length
	PinDir string
	LAN    string // interface; if it is not lanLink, the gateway has no portal and no other services
	Learn  bool   // the data path reports newcomers
	// Welcome: a newcomer becomes a known client, as if its address had been leased.
	Welcome bool
	PPPoE   bool // clients may be on PPPoE
	Outside bool // and have addresses outside the LAN
	IPv6    bool // clients have IPv6, see Six
}

// GardenPrefix is a prefix of the walled garden, with its end.
type GardenPrefix struct {
	Prefix netip.Prefix
	Until  time.Time
}

// TimedGardenPort is an argument of OpenPort.
type TimedGardenPort struct {
	Port  datapath.GardenPort
	Until time.Time
}

// Visit is an argument of OpenFor.
type Visit struct {
	MAC   datapath.MAC
	At    netip.AddrPort
	Until time.Time
}

// Newcomer is a client with an address that was not leased.
type Newcomer struct {
	Addr netip.Addr
	MAC  datapath.MAC
}

// Sightings are what the gateway's other parts received: reports of newcomers, and DHCP messages by each of the ways in
// which they can be read.
type Sightings struct {
	Newcomers []Newcomer
	// DHCP transaction IDs of clients' messages, as a packet socket, a UDP socket on the LAN interface, and Requests
	// received them.
	PacketDHCP, SocketDHCP, FrameDHCP map[uint32]int
}

// Outcome is an error that net/rpc can transport.
type Outcome struct {
	Text string // "": none
	Busy bool
}

// from converts an error.
func (o *Outcome) from(err error) {
	if err != nil {
		*o = Outcome{err.Error(), errors.Is(err, datapath.ErrBusy)}
	}
}

// err returns the error that the process returned.
func (o *Outcome) err() error {
	switch {
	case o.Text == "":
		return nil
	case o.Busy:
		return fmt.Errorf("%w (%s)", datapath.ErrBusy, o.Text)
	}
	return errors.New(o.Text)
}

// serve runs the process until the socket is closed.
func serve(p Path) {
	if err := ownSys(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	f := os.NewFile(3, "test")
	conn, err := net.FileConn(f)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	f.Close()
	s := rpc.NewServer()
	s.Register(&Service{
		path: p, seen: Sightings{PacketDHCP: map[uint32]int{}, SocketDHCP: map[uint32]int{}, FrameDHCP: map[uint32]int{}}})
	s.ServeConn(conn)
	os.Exit(0)
}

// ownSys gives the process a /sys with its own interfaces, and the bpffs that all of the test's processes share.
func ownSys() error {
	const bpffs, kept = "/sys/fs/bpf", "/run/bpf"
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return fmt.Errorf("making %s: %w", kept, err)
	}
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
	}{
		{"none", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{bpffs, kept, "", unix.MS_BIND},
		{"none", "/sys", "sysfs", 0},
		{kept, bpffs, "", unix.MS_BIND},
	} {
		if err := unix.Mount(m.from, m.to, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}
	return nil
}

// Begin configures the process.
func (s *Service) Begin(o Orders, out *Outcome) error {
	lan := datapath.Network{Interface: o.LAN, Address: o.Prefix}
	if o.Outside {
		lan.Outside = outside
	}
	if o.IPv6 {
		lan.Address6, lan.Inbound6 = netip.PrefixFrom(Six(Gateway), 64), []netip.Prefix{netip.PrefixFrom(Six(Second), 128)}
	}
	s.config = datapath.Setup{
		Networks: []datapath.Network{lan}, WAN: wanLink,
		PortalPorts: []uint16{portalPort}, PinDir: o.PinDir, PPPoE: o.PPPoE,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if o.Learn {
		s.config.Newcomer = func(a netip.Addr, m datapath.MAC) {
			s.mu.Lock()
			s.seen.Newcomers = append(s.seen.Newcomers, Newcomer{a, m})
			dp := s.dp
			s.mu.Unlock()
			if a == slow {
				s.untilAnother()
			}
			if o.Welcome && dp != nil {
				if err := dp.Set(datapath.Client{Addrs: []netip.Addr{a}, MAC: m}); err != nil {
					s.config.Log.Error("welcoming a newcomer", "err", err)
				}
			}
		}
	}
	return nil
}

// slow is a newcomer about which the gateway decides only when another newcomer has been reported, as if it waited for
// the disk.
var slow = netip.MustParseAddr("10.1.0.60")

// untilAnother waits until a newcomer other than slow is reported; at most for a minute, which is longer than a test
// waits for that.
func (s *Service) untilAnother() {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		last := s.seen.Newcomers[len(s.seen.Newcomers)-1]
		s.mu.Unlock()
		if last.Addr != slow {
			return
		}
	}
}

// Open opens the data path, then the services behind it.
func (s *Service) Open(_ Nothing, out *Outcome) error {
	dp, err := s.path.Open(s.config)
	if err != nil {
		out.from(err)
		return nil
	}
	others := &services{}
	if s.config.LAN() == lanLink {
		others, err = s.listen(dp)
	}
	if err != nil {
		out.from(errors.Join(err, dp.Close()))
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dp, s.others = &dp, others
	return nil
}

// Close closes the data path and the services.
func (s *Service) Close(_ Nothing, out *Outcome) error {
	s.mu.Lock()
	dp, others := s.dp, s.others
	s.dp, s.others = nil, nil
	s.mu.Unlock()
	if dp != nil {
		out.from(errors.Join(dp.Close(), others.close()))
	}
	return nil
}

// claims are the interfaces that the data path needs.
func (s *Service) claims() []datapath.Claim {
	if s.path.SharesWAN {
		return datapath.Sharing(s.config.LAN(), s.config.WAN)
	}
	return datapath.ExclusiveClaims(s.config.LAN(), s.config.WAN)
}

// Detach removes everything.
func (s *Service) Detach(_ Nothing, out *Outcome) error {
	locks, err := datapath.Lock(s.claims()...)
	if err == nil {
		err = errors.Join(s.path.Remove(s.config), locks.Close())
	}
	out.from(err)
	return nil
}

// opened returns the data path, or an error if it is closed.
func (s *Service) opened() (*datapath.Running, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dp == nil {
		return nil, errors.New("no data path is open")
	}
	return s.dp, nil
}

// Set sets clients.
func (s *Service) Set(clients []datapath.Client, out *Outcome) error {
	dp, err := s.opened()
	for _, c := range clients {
		if err == nil {
			err = dp.Set(c)
		}
	}
	out.from(err)
	return nil
}

// Remove removes addresses.
func (s *Service) Remove(addrs []netip.Addr, out *Outcome) error {
	dp, err := s.opened()
	for _, a := range addrs {
		if err == nil {
			err = dp.Remove(datapath.IDOf(a))
		}
	}
	out.from(err)
	return nil
}

// OpenGarden opens the walled garden for a prefix.
func (s *Service) OpenGarden(d GardenPrefix, out *Outcome) error {
	dp, err := s.opened()
	if err == nil {
		err = dp.Open(d.Prefix, d.Until)
	}
	out.from(err)
	return nil
}

// OpenPort opens a port of the walled garden, or shuts it.
func (s *Service) OpenPort(d TimedGardenPort, out *Outcome) error {
	dp, err := s.opened()
	if err == nil {
		err = dp.OpenPort(d.Port, d.Until)
	}
	out.from(err)
	return nil
}

// OpenFor lets one device reach a port, or ends that.
func (s *Service) OpenFor(v Visit, out *Outcome) error {
	dp, err := s.opened()
	if err == nil && dp.OpenFor == nil {
		err = datapath.ErrNotSupported
	}
	if err == nil {
		err = dp.OpenFor(v.MAC, v.At, v.Until)
	}
	out.from(err)
	return nil
}

// Counters reads an address's counters.
func (s *Service) Counters(a netip.Addr, c *datapath.Counters) error {
	dp, err := s.opened()
	if err == nil {
		*c, err = dp.Counters(datapath.IDOf(a))
	}
	return err
}

// Total reads the sum of all counters.
func (s *Service) Total(_ Nothing, c *datapath.Counters) error {
	dp, err := s.opened()
	if err == nil {
		*c, err = dp.Total()
	}
	return err
}

// Moved lists the addresses that have counted packets since the last call.
func (s *Service) Moved(_ Nothing, a *[]netip.Addr) error {
	dp, err := s.opened()
	if err != nil {
		return err
	}
	return dp.Moved(func(id datapath.ID) { *a = append(*a, id.Addr()) })
}

// Clients lists the addresses that have an entry.
func (s *Service) Clients(_ Nothing, a *[]netip.Addr) error {
	dp, err := s.opened()
	if err != nil {
		return err
	}
	all, err := dp.Clients()
	for _, id := range all {
		*a = append(*a, id.Addr())
	}
	return err
}

// Packets counts packets by outcome.
func (s *Service) Packets(_ Nothing, n *map[string]uint64) error {
	dp, err := s.opened()
	if err == nil {
		*n, err = dp.Packets()
	}
	return err
}

// Forwarding is a way of forwarding.
type Forwarding struct{ Word, Why string }

// Forwarding returns the present way of forwarding.
func (s *Service) Forwarding(_ Nothing, f *Forwarding) error {
	dp, err := s.opened()
	if err == nil {
		f.Word, f.Why = dp.Forwarding()
	}
	return err
}

// Seen returns what the gateway's other parts received.
func (s *Service) Seen(_ Nothing, out *Sightings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*out = Sightings{append([]Newcomer(nil), s.seen.Newcomers...), maps.Clone(s.seen.PacketDHCP), maps.Clone(
		s.seen.SocketDHCP), maps.Clone(s.seen.FrameDHCP)}
	return nil
}
