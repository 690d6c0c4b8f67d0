// Package prefixpool gives each client of a network a /64 of its own (RFC 8273), so that no two clients share a prefix,
// and nobody learns of others what their addresses have in common.
//
// A client's /64 is where a hash of its MAC address and a secret points: it gets the same one again, also from another
// daemon, and nobody can guess it. Where another client has that one, the next hash counts. Clients that use addresses
// keep their /64; those that do not lose it to others once there are as many as there may be.
//
// A server may give a client other /64s of the pool (Give) as long as a session lasts.
package prefixpool

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
)

// Each is the length of a client's prefix: hosts make addresses of no other (RFC 4862, section 5.5.3).
const Each = 64

// Shortest is the length of the largest pool.
const Shortest = 32

// Client is a client: a MAC address, and the PPPoE session, 0 for none. The hash is that of the MAC address: a device
// that dials again gets what it had, where nobody has it.
type Client struct {
	MAC     [6]byte
	Session uint16
}

// Pool gives /64s of one prefix. Its methods may be called from several goroutines.
type Pool struct {
	prefix netip.Prefix
	secret []byte
	most   int // clients at once

	mu    sync.Mutex          // guards what follows
	of    map[Client]*share   // the one by the hash
	given map[Client][]*share // those that were given, and those by the hash that were given too
	owner map[uint64]*share
	idle  *list.List // of *share: of those by the hash, the ones without addresses, the one that was longest so first
}

// share is a client's part of a pool.
type share struct {
	client Client
	index  uint64
	used   int           // addresses
	given  int           // sessions to which it is given
	place  *list.Element // in idle; nil: addresses are used, or it is given
}

// Check fails for prefixes that make no pool.
func Check(prefix netip.Prefix) error {
	if !prefix.IsValid() || !prefix.Addr().Is6() || prefix.Addr().Is4In6() || prefix != prefix.Masked() {
		return fmt.Errorf("%s is no IPv6 network", prefix)
	}
	if prefix.Bits() < Shortest || prefix.Bits() >= Each {
		return fmt.Errorf("a /64 for each client takes a network from /%d to /%d, not /%d", Shortest, Each-1, prefix.Bits())
	}
	return nil
}

// New makes a pool for as many clients at once. The secret is the same for all daemons of a gateway. It fails as Check
// does.
func New(prefix netip.Prefix, secret []byte, most int) (*Pool, error) {
	if err := Check(prefix); err != nil {
		return nil, err
	}
	size := uint64(1) << (Each - prefix.Bits())
	return &Pool{prefix: prefix, secret: secret, most: int(min(uint64(most), size)), of: map[Client]*share{},
		given: map[Client][]*share{}, owner: map[uint64]*share{}, idle: list.New()}, nil
}

// Prefix is the pool's own.
func (p *Pool) Prefix() netip.Prefix { return p.prefix }

// Of returns a client's /64, and gives it one where it has none. false: all are used by others.
func (p *Pool) Of(c Client) (netip.Prefix, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[c]
	if s == nil {
		if (len(p.of) >= p.most || p.full()) && !p.forgetIdle() {
			return netip.Prefix{}, false
		}
		s = p.add(c, p.free(c))
	}
	if s.place != nil {
		p.idle.MoveToBack(s.place)
	}
	return p.at(s.index), true
}

// Owner returns the client whose /64 an address is of.
func (p *Pool) Owner(addr netip.Addr) (c Client, ok bool) {
	if !p.prefix.Contains(addr) {
		return c, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.owner[p.indexOf(addr)]
	if s == nil {
		return c, false
	}
	return s.client, true
}

// Keep gives a client that has no /64 that of an address, which a former daemon gave it, unless another client has it.
func (p *Pool) Keep(c Client, addr netip.Addr) {
	if !p.prefix.Contains(addr) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if index := p.indexOf(addr); p.of[c] == nil && p.owner[index] == nil && (len(p.of) < p.most || p.forgetIdle()) {
		p.add(c, index)
	}
}

// Used notes that a client has an address, which keeps its /64. Addresses of other /64s change nothing.
func (p *Pool) Used(c Client, addr netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shareOf(c, addr); s != nil {
		s.used++
		p.settle(s)
	}
}

// Unused notes that a client no longer has an address that Used noted.
func (p *Pool) Unused(c Client, addr netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shareOf(c, addr); s != nil && s.used > 0 {
		s.used--
		p.settle(s)
	}
}

// Forget frees what a client has, because its session has ended: its addresses are used no longer.
func (p *Pool) Forget(c Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range append([]*share{p.of[c]}, p.given[c]...) {
		if s == nil {
			continue
		}
		if s.place != nil {
			p.idle.Remove(s.place)
			s.place = nil
		}
		delete(p.owner, s.index)
	}
	delete(p.of, c)
	delete(p.given, c)
}

// add gives a client a free part. mu is held.
func (p *Pool) add(c Client, index uint64) *share {
	s := &share{client: c, index: index}
	s.place = p.idle.PushBack(s)
	p.of[c], p.owner[index] = s, s
	return s
}

// forgetIdle takes the /64 of the client that has used no address for the longest time. mu is held.
func (p *Pool) forgetIdle() bool {
	first := p.idle.Front()
	if first == nil {
		return false
	}
	p.forget(first.Value.(*share))
	return true
}

// shareOf returns a client's part that has an address; nil: it has none. mu is held.
func (p *Pool) shareOf(c Client, addr netip.Addr) *share {
	if !p.prefix.Contains(addr) {
		return nil
	}
	if s := p.owner[p.indexOf(addr)]; s != nil && s.client == c {
		return s
	}
	return nil
}

// settle puts a part among the idle, takes it from there, or frees one that is given no longer and was not the client's
// by the hash. mu is held.
func (p *Pool) settle(s *share) {
	byHash, busy := p.of[s.client] == s, s.used > 0 || s.given > 0
	if s.given == 0 && (byHash || !busy) {
		p.ungive(s)
	}
	switch {
	case busy && s.place != nil:
		p.idle.Remove(s.place)
		s.place = nil
	case !busy && byHash && s.place == nil:
		s.place = p.idle.PushBack(s)
	case !busy && !byHash:
		delete(p.owner, s.index)
	}
}

// forget frees a part that is idle. mu is held.
func (p *Pool) forget(s *share) {
	p.idle.Remove(s.place)
	delete(p.of, s.client)
	delete(p.owner, s.index)
}

// hashes is how many of a client's hashes are tried before the part after the last one is.
const hashes = 8

// full reports whether no part is free. mu is held.
func (p *Pool) full() bool { return uint64(len(p.owner)) >= uint64(1)<<(Each-p.prefix.Bits()) }

// free returns a free part for a client; there is one. mu is held.
func (p *Pool) free(c Client) uint64 {
	mask := uint64(1)<<(Each-p.prefix.Bits()) - 1
	var index uint64
	for n := range byte(hashes) {
		sum := sha256.Sum256(append(append([]byte(nil), p.secret...), append(c.MAC[:], n)...))
		if index = binary.BigEndian.Uint64(sum[:]) & mask; p.owner[index] == nil {
			return index
		}
	}
	for p.owner[index] != nil {
		index = (index + 1) & mask
	}
	return index
}

// at is a part of the pool.
func (p *Pool) at(index uint64) netip.Prefix {
	b := p.prefix.Addr().As16()
	binary.BigEndian.PutUint64(b[:], binary.BigEndian.Uint64(b[:])|index)
	return netip.PrefixFrom(netip.AddrFrom16(b), Each)
}

// indexOf is the part of the pool that an address is of.
func (p *Pool) indexOf(addr netip.Addr) uint64 {
	b := addr.As16()
	return binary.BigEndian.Uint64(b[:]) & (1<<(Each-p.prefix.Bits()) - 1)
}
