package client

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/client/persona"
)

// Misdeeds: what a persona does on purpose that clients should not, or that
// gateways tend to forget.
const (
	// SpoofIP sends under another client's IP address and its own hardware address.
	SpoofIP = "spoof-ip"
	// SpoofMAC sends under its own IP address and another client's hardware address.
	SpoofMAC = "spoof-mac"
	// Vanish leaves without a word: its lease is not given back.
	Vanish = "vanish"
	// Roam vanishes and comes back at once: it asks for its old address alone.
	Roam = "roam"
	// Decline declines the next address it is given.
	Decline = "decline"
)

var misdeeds = []string{SpoofIP, SpoofMAC, Vanish, Roam, Decline}

// Misdeed is what one client is to do.
type Misdeed struct {
	Num  int    `json:"num"`  // the client's
	What string `json:"what"` // one of the misdeeds above
	// Victim is the number of the client whose address SpoofIP and SpoofMAC use.
	Victim int `json:"victim,omitempty"`
	// To is where they send to, and Packets how many.
	To      netip.AddrPort `json:"to,omitzero"`
	Packets int            `json:"packets,omitempty"`
}

// Misbehave has one client do a misdeed, for tests of devices: no experiment has a key
// for it. Only clients of kind persona can.
func (p *Pool) Misbehave(ctx context.Context, m Misdeed) error {
	done, err := p.crowd.hold()
	if err != nil {
		return err
	}
	defer done()
	c, err := p.persona(m.Num)
	if err != nil {
		return err
	}
	switch m.What {
	case SpoofIP, SpoofMAC:
		victim, err := p.persona(m.Victim)
		if err != nil {
			return err
		}
		err = c.spoof(victim, m)
		if err != nil {
			return fmt.Errorf("client %d posing as client %d: %w", m.Num, m.Victim, err)
		}
		return nil
	case Vanish, Roam, Decline:
		return c.misbehave(ctx, m.What)
	}
	return fmt.Errorf("unknown misdeed %q (known: %s)", m.What, strings.Join(misdeeds, ", "))
}

// persona is client num, counted over all hosts of the lab, of a pool that has such.
func (p *Pool) persona(num int) (*Client, error) {
	i := slices.IndexFunc(p.Clients, func(c *Client) bool { return c.Num == num })
	if i < 0 {
		return nil, fmt.Errorf("there is no client %d on this host", num)
	}
	if p.crowd == nil {
		return nil, fmt.Errorf("clients of kind %s only behave; those of kind %s can do otherwise", p.cfg.Kind, KindPersona)
	}
	return p.Clients[i], nil
}

func (c *Client) spoof(victim *Client, m Misdeed) error {
	mac, source := c.mac(), victim.LocalIP()
	if m.What == SpoofMAC {
		mac, source = victim.mac(), c.LocalIP()
	}
	s := c.self
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leased() || !source.IsValid() {
		return errNoLease
	}
	return s.crowd.dhcp.Spoof(mac, source, s.lease.From, m.To, max(1, m.Packets))
}

func (c *Client) misbehave(ctx context.Context, what string) error {
	s := c.self
	s.mu.Lock()
	defer s.mu.Unlock()
	if what == Decline {
		s.declines = true
		return nil
	}
	if !s.leased() {
		return errNoLease
	}
	old := s.lease
	if err := c.depart(); err != nil || what == Vanish {
		return err
	}
	lease, _, err := s.crowd.dhcp.Rejoin(ctx, c.mac(), old.Addr.Addr())
	if err != nil {
		return fmt.Errorf("coming back to %s: %w", old.Addr.Addr(), err)
	}
	if !s.crowd.claim(lease.Addr.Addr(), c.Num) {
		return errTaken
	}
	return c.settle(lease)
}

// Renew has all personas renew their leases, at a pace: for tests of devices.
func (p *Pool) Renew(ctx context.Context, pace Pace) ([]Outcome, error) {
	if p.crowd == nil {
		return nil, fmt.Errorf("clients of kind %s do not renew", p.cfg.Kind)
	}
	done, err := p.crowd.hold()
	if err != nil {
		return nil, err
	}
	defer done()
	return p.arrive(ctx, pace, func(ctx context.Context, c *Client) (Tries, error) { return c.renewPersona(ctx) }), nil
}

// State is what a persona is and has done.
type State struct {
	Address
	LeaseSeconds float64          `json:"lease_seconds"` // left of its lease; zero without one
	Counters     persona.Counters `json:"counters"`      // since it got the address
}

// States lists the personas' states, for tests of devices.
func (p *Pool) States() ([]State, error) {
	if p.crowd == nil {
		return nil, fmt.Errorf("clients of kind %s have no counters of their own", p.cfg.Kind)
	}
	list := make([]State, len(p.Clients))
	for i, c := range p.Clients {
		list[i].Address = Address{c.Num, c.LocalIP(), c.MAC.String()}
		s := c.self
		s.mu.Lock()
		has, leased, until := !s.until.IsZero(), s.leased(), s.until
		s.mu.Unlock()
		if !has {
			continue
		}
		if leased {
			list[i].LeaseSeconds = time.Until(until).Seconds()
		}
		var err error
		if list[i].Counters, err = p.crowd.link.Counters(list[i].IP); err != nil {
			return nil, fmt.Errorf("client %d: %w", c.Num, err)
		}
	}
	return list, nil
}
