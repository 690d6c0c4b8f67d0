package dhcp6

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/due"
)

// identity is a client's identity association.
type identity struct {
	kind    Kind
	mac     MAC
	session uint16 // PPPoE's; 0: none
	iaid    uint32
	duid    string
}

func (id identity) client() Client { return Client{MAC: id.mac, Session: id.session} }

// binding is what an identity has.
type binding struct {
	identity
	via   netip.Addr // the client's link-local address
	items []*item
}

// item is an address or a prefix that is leased, registered or set aside.
type item struct {
	due.Place          // by end
	owner     *binding // nil: set aside
	prefix    netip.Prefix
	end       time.Time
	acked     bool // in the store, and reported
	placed    bool // of a pool of prefixes: taken in its space
	wished    bool // leased by a Wish for it, or for its network
	leave     *leave
	answered  time.Time // when the client answered although it was said to leave
}

// Before orders items by their ends.
func (it *item) Before(other *item) bool { return it.end.Before(other.end) }

func (it *item) lease() Lease {
	b := it.owner
	return Lease{Kind: b.kind, MAC: b.mac, Session: b.session, DUID: []byte(b.duid), IAID: b.iaid, Prefix: it.prefix,
		Via: b.via, End: it.end}
}

// holder is a client and a kind of lease, whose leases are counted.
type holder struct {
	client Client
	kind   Kind
}

// Reasons why a client gets nothing.
var (
	errExhausted = errors.New("nothing is free for it")
	errFull      = errors.New("as many leases as there may be are there")
	errTooMany   = errors.New("it has all the leases it may have")
	errNotFree   = errors.New("what it is to have is of no pool, or another's")
	errNotYours  = errors.New("it asks for an address or a prefix of another MAC")
)

// table holds all leases. The time that an operation takes does not grow with their number, but for a change of the
// pools of prefixes. It does no I/O and has no lock.
type table struct {
	cfg      Config
	secret   [32]byte
	byClient map[identity]*binding
	sessions map[Client][]*binding // of PPPoE sessions
	taken    map[netip.Prefix]*item
	held     map[holder]int
	total    map[Kind]int
	declined int
	byEnd    due.Queue[*item]

	spaces   map[netip.Prefix]*space // by pool of prefixes
	spacesOf []netip.Prefix          // pools and prefixes on the link for which spaces were made
}

func newTable(cfg Config, secret [32]byte) *table {
	return &table{
		cfg: cfg, secret: secret, byClient: map[identity]*binding{}, sessions: map[Client][]*binding{},
		taken: map[netip.Prefix]*item{}, held: map[holder]int{}, total: map[Kind]int{}, spaces: map[netip.Prefix]*space{},
	}
}

// limits returns how many leases of a kind a MAC may have, and how many there may be in all.
func (t *table) limits(kind Kind) (each, all int) {
	if kind == Delegated {
		return t.cfg.PrefixesPerMAC, t.cfg.MaxPrefixes
	}
	return t.cfg.AddressesPerMAC, t.cfg.MaxAddresses
}

// room reports why an identity may have no more than it has, when more others are about to be added; nil: it may.
func (t *table) room(id identity, more int) error {
	each, all := t.limits(id.kind)
	switch {
	case t.held[holder{id.client(), id.kind}]+more >= each:
		return errTooMany
	case t.total[id.kind]+more >= all:
		return errFull
	}
	return nil
}

// add gives a free prefix to an identity. It is not checked against limits.
func (t *table) add(id identity, prefix netip.Prefix, end time.Time) *item {
	b := t.byClient[id]
	if b == nil {
		b = &binding{identity: id}
		t.byClient[id] = b
		if id.session != 0 {
			t.sessions[id.client()] = append(t.sessions[id.client()], b)
		}
	}
	it := &item{owner: b, prefix: prefix, end: end, placed: id.kind == Delegated}
	b.items = append(b.items, it)
	t.taken[prefix] = it
	t.held[holder{id.client(), id.kind}]++
	t.total[id.kind]++
	t.byEnd.Put(it)
	return it
}

// remove ends a lease, or what is set aside.
func (t *table) remove(it *item) {
	t.byEnd.Remove(it)
	delete(t.taken, it.prefix)
	b := it.owner
	if b == nil {
		t.declined--
		return
	}
	if it.placed {
		for _, part := range t.spaces {
			part.release(it.prefix)
		}
	}
	b.items = slices.DeleteFunc(b.items, func(other *item) bool { return other == it })
	if len(b.items) == 0 {
		t.forget(b)
	}
	of := holder{b.client(), b.kind}
	if t.held[of]--; t.held[of] == 0 {
		delete(t.held, of)
	}
	t.total[b.kind]--
	it.leave = nil
}

// forget removes what a client had, which is nothing any more.
func (t *table) forget(b *binding) {
	delete(t.byClient, b.identity)
	if b.session == 0 {
		return
	}
	c := b.client()
	t.sessions[c] = slices.DeleteFunc(t.sessions[c], func(other *binding) bool { return other == b })
	if len(t.sessions[c]) == 0 {
		delete(t.sessions, c)
	}
}

// setAside leaves a leased address alone for a while, because its client found it in use. A device that declines
// without end sets maxDeclined aside at most.
func (t *table) setAside(it *item, now time.Time) {
	t.remove(it)
	if t.declined < maxDeclined {
		t.declined++
		aside := &item{prefix: it.prefix, end: now.Add(declineTime)}
		t.taken[aside.prefix] = aside
		t.byEnd.Put(aside)
	}
}

// extend moves the end of a lease.
func (t *table) extend(it *item, end time.Time) {
	it.end = end
	t.byEnd.Put(it)
}

// expire removes at most limit leases that have ended, and returns them.
func (t *table) expire(now time.Time, limit int) (ended []*item) {
	for it := t.byEnd.First(); it != nil && !it.end.After(now) && limit > 0; it = t.byEnd.First() {
		limit--
		t.remove(it)
		if it.owner != nil {
			ended = append(ended, it)
		}
	}
	return ended
}

// owns reports whether a client has any lease.
func (t *table) owns(c Client) bool {
	return t.held[holder{c, Address}]+t.held[holder{c, Delegated}]+t.held[holder{c, Registered}] > 0
}

// maxAttempts bounds the search for a free address. Of a pool of 65,536 that is half full, one search in 2^32 fails.
const maxAttempts = 32

// choose returns a free address or prefix of a pool for an identity, and takes it from its space if it is a prefix.
func (t *table) choose(id identity, pool netip.Prefix, hints []netip.Prefix) (netip.Prefix, error) {
	if id.kind == Delegated {
		return t.choosePrefix(id, pool, hints)
	}
	for attempt := range maxAttempts {
		addr := t.hashed(id, pool, attempt)
		prefix := netip.PrefixFrom(addr, 128)
		if t.taken[prefix] == nil && !isAnycast(addr) && !t.cfg.Taken(id.client(), addr) {
			return prefix, nil
		}
	}
	return netip.Prefix{}, errExhausted
}

// choosePrefix takes a prefix from its pool: the one that the client names if it is free, so that clients keep theirs
// after the leases were lost, else one of the length that it asks for.
func (t *table) choosePrefix(id identity, pool netip.Prefix, hints []netip.Prefix) (netip.Prefix, error) {
	lengths, length := t.cfg.Lengths, t.cfg.Lengths.Usual
	wish := t.hashed(id, pool, 0)
	for _, hint := range hints {
		if hint.Bits() > 0 {
			length = min(max(hint.Bits(), lengths.Shortest), lengths.Longest)
		}
		if pool.Contains(hint.Addr()) {
			wish = hint.Addr()
			break
		}
	}
	part := t.spaces[pool]
	if part == nil {
		return netip.Prefix{}, errExhausted
	}
	for _, length := range []int{length, lengths.Usual, lengths.Longest} { // where no large one is left, a smaller one
		if prefix, ok := part.take(length, wish); ok {
			return prefix, nil
		}
	}
	return netip.Prefix{}, errExhausted
}

// hashed returns an address of a pool: the pool's bits, and then those of a keyed hash of the identity.
func (t *table) hashed(id identity, pool netip.Prefix, attempt int) netip.Addr {
	pooled := pool.Addr().As16()
	mac := hmac.New(sha256.New, t.secret[:])
	mac.Write(pooled[:])
	mac.Write([]byte{byte(pool.Bits()), byte(id.kind), byte(attempt)})
	mac.Write(id.mac[:])
	mac.Write(binary.BigEndian.AppendUint32(nil, id.iaid))
	mac.Write([]byte(id.duid))
	sum := [16]byte(mac.Sum(nil))
	for i := range pool.Bits() {
		at, mask := i/8, byte(0x80)>>(i%8)
		sum[at] = sum[at]&^mask | pooled[at]&mask
	}
	return netip.AddrFrom16(sum)
}

// isAnycast reports whether an interface identifier is for anycast: that of routers (RFC 4291, 2.6.1), or a reserved
// one (RFC 2526, 2).
func isAnycast(addr netip.Addr) bool {
	id := binary.BigEndian.Uint64(addr.AsSlice()[8:])
	return id == 0 || id >= 0xfdffffffffffff80 && id <= 0xfdffffffffffffff
}

// follow makes the spaces of the present pools of prefixes. What is on the link is not delegated.
func (t *table) follow(present Prefixes) {
	of := slices.Clone(present.OnLink)
	for _, pool := range present.Delegated {
		of = append(of, pool.Prefix)
	}
	if slices.Equal(of, t.spacesOf) {
		return
	}
	t.spacesOf = of
	clear(t.spaces)
	for _, pool := range present.Delegated {
		part := &space{pool: pool.Prefix}
		for _, prefix := range present.OnLink {
			part.claim(prefix.Masked())
		}
		t.spaces[pool.Prefix] = part
	}
	for _, it := range t.taken {
		if it.owner == nil || it.owner.kind != Delegated {
			continue
		}
		it.placed = false
		for _, part := range t.spaces {
			it.placed = it.placed || part.claim(it.prefix)
		}
	}
}
