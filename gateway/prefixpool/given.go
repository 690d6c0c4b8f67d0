package prefixpool

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Held is a /64 that a client has.
type Held struct {
	Prefix netip.Prefix
	Own    bool // by the hash
	Given  bool // by a session
	Used   bool // the client has addresses of it
}

// Held returns the /64s that a client has, without giving it one.
func (p *Pool) Held(c Client) (all []Held) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shares := p.given[c]
	if s := p.of[c]; s != nil && !slices.Contains(shares, s) {
		shares = append([]*share{s}, shares...)
	}
	for _, s := range shares {
		all = append(all, Held{p.at(s.index), p.of[c] == s, s.given > 0, s.used > 0})
	}
	return all
}

// Give gives a client a /64 of the pool beside its own, until TakeBack was called as often. It fails where another
// client has it, unless that one has it by the hash and has no address of it.
func (p *Pool) Give(c Client, prefix netip.Prefix) error {
	if prefix.Bits() != Each || !p.prefix.Contains(prefix.Addr()) {
		return fmt.Errorf("%s is no /%d of %s", prefix, Each, p.prefix)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.give(c, p.indexOf(prefix.Addr()))
}

// give is Give for a part. mu is held.
func (p *Pool) give(c Client, index uint64) error {
	s := p.owner[index]
	if s != nil && s.client != c {
		if s.place == nil {
			return fmt.Errorf("another client has %s: %s", p.at(index), net.HardwareAddr(s.client.MAC[:]))
		}
		p.forget(s)
		s = nil
	}
	if s == nil {
		s = &share{client: c, index: index}
		p.owner[index] = s
	}
	if s.given++; !slices.Contains(p.given[c], s) {
		p.given[c] = append(p.given[c], s)
	}
	p.settle(s)
	return nil
}

// GiveAny is Give for a /64 that the client was given and has still, or else a free one, which its hash chooses. false:
// all are used by others.
func (p *Pool) GiveAny(c Client) (netip.Prefix, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var index uint64
	switch held := p.given[c]; {
	case len(held) > 0:
		index = held[0].index
	case p.full() && !p.forgetIdle():
		return netip.Prefix{}, false
	default:
		index = p.free(c)
	}
	return p.at(index), p.give(c, index) == nil
}

// TakeBack undoes a Give. The client keeps the /64 as long as it has addresses of it.
func (p *Pool) TakeBack(c Client, prefix netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shareOf(c, prefix.Addr()); s != nil && s.given > 0 {
		s.given--
		p.settle(s)
	}
}

// ungive removes a part from those that were given. mu is held.
func (p *Pool) ungive(s *share) {
	left := slices.DeleteFunc(p.given[s.client], func(other *share) bool { return other == s })
	if len(left) == 0 {
		delete(p.given, s.client)
		return
	}
	p.given[s.client] = left
}

// Leave takes a /64 that is given to nobody now from a client, although that has addresses of it.
func (p *Pool) Leave(c Client, prefix netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shareOf(c, prefix.Addr())
	if s == nil || s.given > 0 {
		return
	}
	s.used = 0
	if p.settle(s); p.of[c] == s {
		p.forget(s)
	}
}
