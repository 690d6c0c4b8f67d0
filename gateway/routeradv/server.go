package routeradv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/due"
	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// Config is what a server is to do. With Told each client is told something of its own (RFC 8273), always by frames to
// its MAC address alone, or in its PPPoE session. Without it, all hosts of the link are told All.
type Config struct {
	Interface string
	LinkLocal netip.Addr // the gateway's link-local address, which the interface has: hosts take it as their router

	All Advertisement
	// Told says what a client is told; false: it is told nothing. It is called for every client that solicits, as
	// often as PerMAC lets it, and then for each advertisement, until it says false or Close has returned; never twice at
	// a time. It may call the server's methods except Close. A server knows no prefixes of an earlier one: until they are
	// over, Told adds them with Preferred 0.
	Told func(Client) (Advertisement, bool)

	// Hosts are told again at random intervals of this length (RFC 4861, section 6.2.1). MaxInterval: 4 s to 1,800 s,
	// default 600 s. MinInterval: 3 s to 0.75 MaxInterval, default a third of MaxInterval, or 3 s.
	MinInterval, MaxInterval time.Duration

	PerMAC     budget.Rate // solicitations of one MAC address that are answered; default 8 at once and 1 a second
	MaxClients int         // that are remembered, or wait for an answer; default 65,536

	// Rogue is told of other routers that advertise themselves on the link: once a day of each, and of a bounded number.
	// It is called by the goroutine that reads; nil: nobody is told.
	Rogue func(Rogue)

	// Frames opens what solicitations and advertisements of the interface are read from, one Ethernet frame a Read; nil:
	// a packet socket. It is called again after the interface has gone and come back.
	Frames func() (io.ReadCloser, error)
	Log    *slog.Logger // default: slog's
}

// Rogue is another router on the link.
type Rogue struct {
	MAC    MAC
	Addr   netip.Addr   // its link-local address
	Prefix netip.Prefix // the first that it advertises; zero: none
}

const (
	defaultMaxInterval = 600 * time.Second
	defaultClients     = 65_536
	maxSenders         = 32_768 // MAC addresses whose solicitations are counted
	maxRogues          = 256    // other routers that are remembered: half of it is reported at once, and so many a day
)

// daily is how often a router of others' is reported.
var daily = budget.Rate{AtOnce: 1, EachSecond: 1. / (24 * 3600)}

func (c Config) withDefaults() (Config, error) {
	if c.MaxInterval == 0 {
		c.MaxInterval = defaultMaxInterval
	}
	if c.MinInterval == 0 {
		c.MinInterval = max(c.MaxInterval/3, minInterval)
	}
	if c.PerMAC == (budget.Rate{}) {
		c.PerMAC = budget.Rate{AtOnce: 8, EachSecond: 1}
	}
	if c.MaxClients == 0 {
		c.MaxClients = defaultClients
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	switch {
	case !c.LinkLocal.Is6() || !c.LinkLocal.IsLinkLocalUnicast() || c.LinkLocal.Zone() != "":
		return c, fmt.Errorf("%s is no link-local address, which hosts ask of their router", c.LinkLocal)
	case c.MaxInterval < 4*time.Second || c.MaxInterval > 1800*time.Second:
		return c, fmt.Errorf("longest interval %s is not 4 s to 1,800 s", c.MaxInterval)
	case c.MinInterval < minInterval || c.MinInterval > c.MaxInterval*3/4:
		return c, fmt.Errorf("shortest interval %s is not 3 s to %s", c.MinInterval, c.MaxInterval*3/4)
	}
	return c, c.check(c.All)
}

// check is for what all hosts or one client is told.
func (c Config) check(a Advertisement) error {
	a.Source = MAC{2} // takes the room that the server's own does
	if err := a.Check(); err != nil {
		return err
	}
	if a.RouterLifetime > 0 && a.RouterLifetime < c.MaxInterval {
		return fmt.Errorf("router lifetime %s is shorter than the longest interval %s: the router would vanish in between",
			a.RouterLifetime, c.MaxInterval)
	}
	return nil
}

// Server advertises a router on one link.
type Server struct {
	cfg     Config
	stats   counters
	senders budget.Senders[MAC]
	answers budget.Clock        // of a server that tells all hosts the same: answers to single hosts
	rogues  budget.Senders[MAC] // bounds what is reported of them
	badLog  budget.OncePerMinute
	link    *framelink.Link
	wake    chan struct{} // something is due earlier than before

	running sync.WaitGroup // Run
	stop    context.CancelFunc
	stopped context.Context // done: Close was called

	mu      sync.Mutex // guards what follows
	advert  Advertisement
	all     *audience // nil: each client is told something of its own
	clients map[Client]*audience
	queue   due.Queue[*audience]
}

// New opens the interface's sockets. Frames are received from now on; Run answers them.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("advertising a router on %s: %w", cfg.Interface, err)
	}
	s := &Server{
		cfg: cfg, advert: cfg.All.clone(), clients: map[Client]*audience{}, wake: make(chan struct{}, 1),
		senders: budget.Senders[MAC]{Rate: cfg.PerMAC, Size: maxSenders},
		rogues:  budget.Senders[MAC]{Rate: daily, Size: maxRogues},
	}
	s.stopped, s.stop = context.WithCancel(context.Background())
	if s.link, err = framelink.Open(linkConfig(cfg)); err != nil {
		return nil, fmt.Errorf("advertising a router on %s: %w", cfg.Interface, err)
	}
	if cfg.Told == nil {
		s.all = &audience{client: Client{MAC: groupMAC(allNodes.As16())}}
		s.announce()
	}
	return s, nil
}

// Run serves until ctx ends or Close is called. It survives the interface's going down, disappearing and coming back.
// It may be called once.
func (s *Server) Run(ctx context.Context) error {
	s.running.Add(1)
	defer s.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopped, cancel)()
	var telling sync.WaitGroup
	defer telling.Wait()
	telling.Go(func() { s.tellAll(ctx) })
	s.link.Run(ctx, s.handle, s.announce)
	return nil
}

// Close ends Run, waits for it, tells all hosts or each remembered client that the router goes, and closes the sockets.
// A daemon that will be back soon ends without it: hosts go on meanwhile.
func (s *Server) Close() error {
	first := s.stopped.Err() == nil
	s.stop()
	s.running.Wait()
	if first {
		s.sayFarewell()
	}
	s.link.Close()
	return nil
}

// Update changes what all hosts are told, and tells them within 3 s, and thrice in all. It fails, and changes nothing,
// where the changed advertisement is wrong. change must not call the server.
func (s *Server) Update(change func(*Advertisement)) error {
	if s.all == nil {
		return errors.New("updating an advertisement: each client is told something of its own")
	}
	s.mu.Lock()
	next := s.advert.clone()
	change(&next)
	err := s.cfg.check(next)
	same := reflect.DeepEqual(next, s.advert)
	if err == nil {
		s.advert = next
	}
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("updating the advertisement of %s: %w", s.cfg.Interface, err)
	}
	if !same {
		s.announce()
	}
	return nil
}

// Retell tells clients anew what Told says of them, and thrice in all, also clients that have not solicited, such as
// those of an earlier server; without clients: all that are remembered. They are told as fast as retellPause lets it.
func (s *Server) Retell(clients ...Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all != nil {
		return // Update does that
	}
	if len(clients) == 0 {
		clients = slices.Collect(maps.Keys(s.clients))
	}
	at := time.Now()
	for _, one := range clients {
		if to := s.client(one); to != nil {
			to.soon = initialAdverts
			s.bring(to, at)
			at = at.Add(retellPause)
		}
	}
}

// client is a client's audience, a new one for a new client; nil: there are as many as there may be. The caller has the
// lock.
func (s *Server) client(c Client) *audience {
	to := s.clients[c]
	if to == nil && len(s.clients) < s.cfg.MaxClients {
		to = &audience{client: c}
		s.clients[c] = to
	}
	return to
}

// Forget ends what a client is told, without a word to it, because its PPPoE session has ended.
func (s *Server) Forget(c Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to := s.clients[c]; to != nil {
		s.queue.Remove(to)
		delete(s.clients, c)
	}
}

// handle takes one frame. Only the receiving goroutine calls it.
func (s *Server) handle(frame []byte) {
	from, packet, _ := framelink.Split(frame)
	solicits := len(packet) > ipv6Len && packet[ipv6Len] == typeRS
	if solicits && !s.admits(from) { // costs little more than reading it
		s.stats.refused.Add(1)
		return
	}
	h, err := parseFrame(frame)
	switch own := s.link.MAC(); {
	case err != nil || h.from.MAC == own:
		s.stats.malformed.Add(1)
	case h.advert:
		s.stats.rogue.Add(1)
		if s.cfg.Rogue != nil && s.rogues.Spend(h.from.MAC, false, budget.Now()) {
			s.cfg.Rogue(Rogue{MAC: h.from.MAC, Addr: h.src, Prefix: h.prefix})
		}
	default:
		s.solicited(h.from, time.Now())
	}
}

// admits reports whether another solicitation of a client is answered; those of a MAC address have one budget. Clients
// that have been told something have a budget apart from that of new ones.
func (s *Server) admits(c Client) bool {
	s.mu.Lock()
	to := s.clients[c]
	known := to != nil && !to.history.empty()
	s.mu.Unlock()
	return s.senders.Spend(c.MAC, known, budget.Now())
}

// send writes an advertisement to the link. A failure is counted, and logged once a minute: the next one may arrive.
func (s *Server) send(to Client, a Advertisement, now time.Time) {
	own := s.link.MAC()
	if to.Session == 0 { // PPP has no such addresses (RFC 5072, section 5)
		a.Source = own
	}
	message, err := encode(a, now)
	if err == nil {
		err = s.link.Send(framelink.Frame(to, own, Packet(s.cfg.LinkLocal, allNodes, message)))
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		s.stats.sendErrors.Add(1)
		s.badLog.Do(func() {
			s.cfg.Log.Warn("a router advertisement was not sent", "interface", s.cfg.Interface,
				"to", to.String(), "err", err)
		})
	}
}
