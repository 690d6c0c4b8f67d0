// Package prefixpool gives each client of a network a /64 of its own (RFC 8273), so that no two clients share a prefix,
// and nobody learns of others what their addresses have in common.
//
// A client's /64 is where a hash of its MAC address and a secret points: it gets the same one again, also from another
// daemon, and nobody can guess it. Where another client has that one, the next hash counts. Clients that use addresses
// keep their /64; those that do not lose it to others once there are as many as there may be.
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

// MAC identifies a client.
type MAC = [6]byte

// Pool gives /64s of one prefix. Its methods may be called from several goroutines.
type Pool struct {
	prefix netip.Prefix
	secret []byte
	most   int // clients at once

	mu    sync.Mutex // guards what follows
	of    map[MAC]*share
	owner map[uint64]*share
	idle  *list.List // of *share: those without addresses, the one that was longest so first
}

// share is a client's part of a pool.
type share struct {
	mac   MAC
	index uint64
	used  int           // addresses
	place *list.Element // in idle; nil: addresses are used
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
	return &Pool{prefix: prefix, secret: secret, most: int(min(uint64(most), size)), of: map[MAC]*share{},
		owner: map[uint64]*share{}, idle: list.New()}, nil
}

// Prefix is the pool's own.
func (p *Pool) Prefix() netip.Prefix { return p.prefix }

// Of returns a client's /64, and gives it one where it has none. false: all are used by others.
func (p *Pool) Of(mac MAC) (netip.Prefix, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[mac]
	if s == nil {
		if len(p.of) >= p.most && !p.forgetIdle() {
			return netip.Prefix{}, false
		}
		s = p.add(mac, p.free(mac))
	}
	if s.place != nil {
		p.idle.MoveToBack(s.place)
	}
	return p.at(s.index), true
}

// Owner returns the client whose /64 an address is of.
func (p *Pool) Owner(addr netip.Addr) (mac MAC, ok bool) {
	if !p.prefix.Contains(addr) {
		return mac, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.owner[p.indexOf(addr)]
	if s == nil {
		return mac, false
	}
	return s.mac, true
}

// Keep gives a client that has no /64 that of an address, which a former daemon gave it, unless another client has it.
func (p *Pool) Keep(mac MAC, addr netip.Addr) {
	if !p.prefix.Contains(addr) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if index := p.indexOf(addr); p.of[mac] == nil && p.owner[index] == nil && (len(p.of) < p.most || p.forgetIdle()) {
		p.add(mac, index)
	}
}

// Used notes that a client has an address, which keeps its /64. Addresses of other /64s change nothing.
func (p *Pool) Used(mac MAC, addr netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[mac]
	if s == nil || !p.prefix.Contains(addr) || s.index != p.indexOf(addr) {
		return
	}
	if s.used++; s.place != nil {
		p.idle.Remove(s.place)
		s.place = nil
	}
}

// Unused notes that a client no longer has an address that Used noted.
func (p *Pool) Unused(mac MAC, addr netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[mac]
	if s == nil || s.used == 0 || !p.prefix.Contains(addr) || s.index != p.indexOf(addr) {
		return
	}
	if s.used--; s.used == 0 {
		s.place = p.idle.PushBack(s)
	}
}

// add gives a client a free part. mu is held.
func (p *Pool) add(mac MAC, index uint64) *share {
	s := &share{mac: mac, index: index}
	s.place = p.idle.PushBack(s)
	p.of[mac], p.owner[index] = s, s
	return s
}

// forgetIdle takes the /64 of the client that has used no address for the longest time. mu is held.
func (p *Pool) forgetIdle() bool {
	first := p.idle.Front()
	if first == nil {
		return false
	}
	s := first.Value.(*share)
	p.idle.Remove(first)
	delete(p.of, s.mac)
	delete(p.owner, s.index)
	return true
}

// hashes is how many of a client's hashes are tried before the part after the last one is.
const hashes = 8

// free returns a free part for a client; there is one. mu is held.
func (p *Pool) free(mac MAC) uint64 {
	mask := uint64(1)<<(Each-p.prefix.Bits()) - 1
	var index uint64
	for n := range byte(hashes) {
		sum := sha256.Sum256(append(append([]byte(nil), p.secret...), append(mac[:], n)...))
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
