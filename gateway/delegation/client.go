package delegation

import (
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// maxWanted is how many prefixes a client can want. It is a power of two: see newIdentity.
const maxWanted = 8

// Options say what a Client asks for.
type Options struct {
	Interface string // the WAN's
	// Folder is the gateway's state folder. The client's file is delegation-INTERFACE there.
	Folder string
	Length int // of the prefix that is wished, 16 to 64; 0: whatever the server gives
	Wanted int // number of prefixes, at most 8; 0: 1
	// Changed is called by Run with all delegated prefixes, as State has them: at the start those that are known from
	// before, and whenever one is new, renewed, replaced, withdrawn or expired. A prefix that is missing has ended:
	// packets to it do not come any more. Run waits for Changed. nil: nobody is told.
	Changed func([]Prefix)
	Log     *slog.Logger // nil: nothing is logged
}

// Client obtains prefixes on one interface. Its methods may be called from several goroutines. Servers' answers come to
// UDP port 546 of the interface's link-local address: a firewall there must let them pass.
type Client struct {
	options Options
	log     *slog.Logger
	memory  *memory
	link    *link

	up       chan struct{}      // LinkUp was called
	released chan chan struct{} // Release was called; closed once the server has answered

	mu      sync.Mutex
	machine *machine // guarded by mu
	sending error    // guarded by mu: why the last message could not be sent
	keeping error    // guarded by mu: why the file could not be written

	told   report    // of Run's goroutine
	logged time.Time // when a problem was logged; of Run's goroutine
}

// Open opens the client: its file, and UDP port 546 of the interface. It sends nothing before Run. The error says
// what is wrong with the options, the interface or the file, and where another DHCPv6 client runs.
func Open(o Options) (*Client, error) {
	if o.Wanted == 0 {
		o.Wanted = 1
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Wanted < 0 || o.Wanted > maxWanted:
		return nil, fmt.Errorf("%d prefixes are wanted: it may be 1 to %d", o.Wanted, maxWanted)
	case o.Length != 0 && (o.Length < shortestLength || o.Length > longestLength):
		return nil, fmt.Errorf("a prefix of the length %d is wished: it may be %d to %d",
			o.Length, shortestLength, longestLength)
	}
	ifi, err := net.InterfaceByName(o.Interface)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Interface, err)
	}
	remembers, known, err := openMemory(o.Folder, ifi, o.Log)
	if err != nil {
		return nil, fmt.Errorf("reading which prefixes were delegated: %w", err)
	}
	l, err := openLink(o.Interface)
	if err != nil {
		return nil, err
	}
	var seed [32]byte
	cryptorand.Read(seed[:]) // never fails
	c := &Client{options: o, log: o.Log.With("interface", o.Interface), memory: remembers, link: l,
		up: make(chan struct{}, 1), released: make(chan chan struct{}),
		machine: newMachine(known.identity, o.Wanted, o.Length, rand.New(rand.NewChaCha8(seed)))}
	leases := slices.DeleteFunc(known.leases, func(p Prefix) bool { return p.Number >= o.Wanted })
	c.machine.start(time.Now(), leases, known.server)
	return c, nil
}

// Close closes the socket. The prefixes remain delegated, and the next client asks for them. It is called after Run has
// returned.
func (c *Client) Close() error { return c.link.Close() }

// LinkUp tells that the interface is connected again, perhaps elsewhere: the server is asked at once whether the
// prefixes hold. The client finds out by itself where the kernel tells.
func (c *Client) LinkUp() {
	select {
	case c.up <- struct{}{}:
	default: // it is to be noted already
	}
}

// State tells what the client knows.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.machine.state(time.Now())
	if c.sending != nil && c.machine.phase != bound {
		s.LastError = c.sending.Error()
	}
	if c.keeping != nil {
		s.Warnings = append(s.Warnings, fmt.Sprintf(
			"after another start the provider may delegate other prefixes: keeping these: %v", c.keeping))
	}
	return s
}

// Release gives the prefixes back to the server while Run runs, and returns when it has answered, or has not answered
// four messages (15 s). Changed has been called before. After that the client asks for none.
func (c *Client) Release(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case c.released <- done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run obtains prefixes and renews them until ctx ends. It is called once.
func (c *Client) Run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() { c.link.follow(ctx, c.LinkUp) })

	var waiting []chan struct{} // of Release
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.act()
		now := c.report()
		c.tell(now)
		if now.phase == idle {
			for _, done := range waiting {
				close(done)
			}
			waiting = nil
		}
		timer.Reset(c.untilDue())
		var event func(time.Time)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			continue
		case datagram := <-c.link.received:
			event = func(at time.Time) { c.machine.receive(at, datagram) }
		case <-c.up:
			event = c.machine.linkUp
		case done := <-c.released:
			waiting = append(waiting, done)
			event = c.machine.release
		}
		c.mu.Lock()
		event(time.Now())
		c.mu.Unlock()
	}
}

// act sends what is due.
func (c *Client) act() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for message := c.machine.tick(time.Now()); message != nil; message = c.machine.tick(time.Now()) {
		c.log.Debug("asking DHCPv6 servers", "phase", c.machine.phase, "times", c.machine.exchange.sent)
		err := c.link.send(message)
		if err != nil && (c.sending == nil || err.Error() != c.sending.Error()) {
			c.log.Warn("prefix delegation", "err", err)
		}
		c.sending = err
	}
}

// farAway is how long the client waits where nothing is to be done.
const farAway = time.Hour

// untilDue is how long it is until something is to be done.
func (c *Client) untilDue() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.machine.due()
	if due.IsZero() {
		return farAway
	}
	return max(time.Until(due), 0)
}

// report is what others are told, and what the file has.
type report struct {
	phase   phase
	problem string
	silent  bool      // no server answers, and no prefix is known
	known   knowledge // without an identity: nobody has been told yet
}

func (c *Client) report() report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return report{phase: c.machine.phase, problem: c.machine.problem, silent: c.machine.silent(),
		known: knowledge{identity: c.machine.identity, server: slices.Clone(c.machine.server),
			leases: sorted(c.machine.leases)}}
}

// problemPause is how long no other problem is logged after one: strangers on the link can send refusals.
const problemPause = 10 * time.Second

// tell writes the file before the gateway learns of new prefixes, and logs what has changed.
func (c *Client) tell(now report) {
	before := c.told
	c.told = now
	if now.problem != "" && now.problem != before.problem && time.Since(c.logged) > problemPause {
		c.log.Warn("prefix delegation", "err", now.problem)
		c.logged = time.Now()
	}
	if now.silent && !before.silent {
		c.log.Warn("no DHCPv6 server answers: clients have no IPv6 prefix of the provider, and go on by IPv4",
			"asked", silentAfter)
	}
	first := before.known.identity.DUID == nil
	same := slices.Equal(before.known.leases, now.known.leases)
	if !first && same && slices.Equal(before.known.server, now.known.server) {
		return
	}
	c.keep(now.known)
	if !first && same {
		return
	}
	c.logPrefixes(before.known.leases, now.known.leases)
	if c.options.Changed != nil {
		c.options.Changed(slices.Clone(now.known.leases))
	}
}

// keep writes the file. The prefixes are used also where that fails, for example because the disk is full.
func (c *Client) keep(k knowledge) {
	err := c.memory.save(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.keeping == nil {
		c.log.Warn("the delegated prefixes cannot be kept: after another start there may be others", "err", err)
	}
	c.keeping = err
}

// logPrefixes says which prefixes have come, are deprecated and have gone. Renewals are not worth a line.
func (c *Client) logPrefixes(before, now []Prefix) {
	find := func(list []Prefix, p Prefix) (Prefix, bool) {
		i := slices.IndexFunc(list, func(l Prefix) bool { return l.Prefix == p.Prefix && l.Number == p.Number })
		if i < 0 {
			return Prefix{}, false
		}
		return list[i], true
	}
	at := time.Now()
	for _, p := range now {
		former, found := find(before, p)
		switch {
		case !found:
			c.log.Info("a prefix is delegated", "prefix", p.Prefix, "valid", p.ValidUntil.Sub(at).Round(time.Second))
			for _, warning := range warnings([]Prefix{p}) {
				c.log.Warn(warning)
			}
		case p.Deprecated(at) && former.PreferredUntil.After(p.PreferredUntil):
			c.log.Info("a delegated prefix is replaced", "prefix", p.Prefix, "valid", p.ValidUntil.Sub(at).Round(time.Second))
		}
	}
	for _, p := range before {
		if _, found := find(now, p); !found {
			c.log.Info("a delegated prefix has ended", "prefix", p.Prefix)
		}
	}
}
