package dhcp

import (
	"errors"
	"net/netip"
	"time"
)

// state is the state of an address.
type state uint8

const (
	blank    state = iota // free, without a last client
	known                 // free, and reserved for its last client while there are others
	reserved              // free, and reserved for one MAC for ever: static
	offered
	leased
	declined // in use by another host, as a client found
	claimed  // a device uses it without a lease (Server.Claim); not in the file
	states
)

// isHeld reports whether addresses in a state count as addresses that the client's MAC has. Declined addresses do not
// count: the client does not have them.
func (s state) isHeld() bool { return s == offered || s == leased }

// binding is an address that was ever leased, offered or set aside. It is in exactly one of the table's queues.
type binding struct {
	addr     netip.Addr
	client   client // zero: none
	hostname string
	state    state
	pool     int             // index of its pool; len(cfg.Pools): it is in none
	end      time.Time       // when the state ends; for known, when it began
	acked    time.Time       // lease on disk and reported until then; zero: not yet
	short    bool            // leased for cfg.ShortLease
	release  *pendingRelease // nil: none
	at       Attachment      // as of the last REQUEST
	answered time.Time       // when the client answered although it was said to leave

	prev, next *binding
}

// queue is a ring of bindings around its own zero binding. All bindings of a state have the same duration, so a queue
// is ordered by end.
type queue struct {
	ring  binding
	count int
}

func (q *queue) first() *binding {
	if q.count == 0 {
		return nil
	}
	return q.ring.next
}

func (q *queue) add(b *binding) {
	if q.ring.next == nil {
		q.ring.next, q.ring.prev = &q.ring, &q.ring
	}
	b.prev, b.next = q.ring.prev, &q.ring
	b.prev.next, b.next.prev = b, b
	q.count++
}

func (q *queue) remove(b *binding) {
	b.prev.next, b.next.prev = b.next, b.prev
	b.prev, b.next = nil, nil
	q.count--
}

// Reasons why a client gets no address.
var (
	errExhausted = errors.New("no address is free")
	errTooMany   = errors.New("its MAC has all the addresses it may have")
	errNotYours  = errors.New("the address is not this client's")
)

// table holds every address's state. Every operation takes constant time, however many addresses there are. It does no
// I/O and has no lock.
type table struct {
	cfg         Config
	statics     map[netip.Addr]MAC
	byAddr      map[netip.Addr]*binding
	byClient    map[client]*binding // the client's present or last address
	held        map[MAC][]*binding  // held addresses, that of the last event last
	queues      [states]queue       // by state; leases with short are in shortLeased instead
	shortLeased queue               // leased for cfg.ShortLease
	leasedIn    []int               // leased addresses by pool, and last those in none

	// The next address that was never used.
	pool int
	next netip.Addr
}

func newTable(cfg Config) *table {
	t := &table{
		cfg: cfg, statics: map[netip.Addr]MAC{},
		byAddr: map[netip.Addr]*binding{}, byClient: map[client]*binding{}, held: map[MAC][]*binding{},
		leasedIn: make([]int, len(cfg.Pools)+1),
	}
	for mac, addr := range cfg.Static {
		t.statics[addr] = mac
	}
	return t
}

// offer returns the address for a DISCOVER, in the order of RFC 2131, 4.3.1: the client's present one, its former one,
// the one it requests, any. The binding belongs to the table and must not be used after the server's lock is released.
func (t *table) offer(c client, hostname string, wish netip.Addr, now time.Time) (*binding, error) {
	known := t.matching(c, wish)
	b, err := t.choose(known, wish)
	if err != nil {
		return nil, err
	}
	if b.state == claimed { // by the client, which keeps it if it does not take the offer
		return b, nil
	}
	t.assign(b, c.named(known))
	b.hostname = hostname
	if b.state == leased { // an offer does not change a lease's end
		t.removeHeld(b)
		t.addHeld(b)
		return b, nil
	}
	t.move(b, offered, now.Add(offerTime))
	return b, nil
}

func (t *table) choose(c client, wish netip.Addr) (*binding, error) {
	addr, static := t.fixed(c)
	present := t.byClient[c]
	if present != nil && t.may(c, present.addr) && present.state.isHeld() {
		return present, nil
	}
	switch {
	case static:
		return t.bindingOf(addr), nil
	case len(t.held[c.mac]) >= t.most(c.mac):
		return nil, errTooMany
	case present != nil && t.may(c, present.addr):
		return present, nil
	case t.may(c, wish):
		return t.bindingOf(wish), nil
	}
	if b := t.vacant(); b != nil {
		return b, nil
	}
	return nil, errExhausted
}

// vacant returns a free address: one without a last client, one never used, the one whose client has been gone longest,
// and only then one that was offered but not taken, or declined.
func (t *table) vacant() *binding {
	if b := t.queues[blank].first(); b != nil {
		return b
	}
	if addr, ok := t.unused(); ok {
		return t.bindingOf(addr)
	}
	if b := t.queues[known].first(); b != nil {
		return b
	}
	for b, q := t.queues[offered].first(), &t.queues[offered]; b != nil && b != &q.ring; b = b.next {
		if !t.static(b) { // skips at most that many
			return b
		}
	}
	if b := t.queues[declined].first(); b != nil && !t.static(b) {
		return b
	}
	return nil
}

// unused returns the pools' next address that has no binding. Each address is visited once.
func (t *table) unused() (netip.Addr, bool) {
	for ; t.pool < len(t.cfg.Pools); t.pool++ {
		r := t.cfg.Pools[t.pool]
		if !t.next.IsValid() || t.next.Compare(r.First) < 0 {
			t.next = r.First
		}
		for t.next.Compare(r.Last) <= 0 {
			addr := t.next
			t.next = addr.Next()
			if t.byAddr[addr] == nil && t.dynamic(addr) {
				return addr, true
			}
		}
	}
	return netip.Addr{}, false
}

// confirm leases an address that a client claims was offered to it, or was its own. A free address is granted even if
// there is no record, so that clients keep their addresses after the leases file was lost.
func (t *table) confirm(c client, hostname string, addr netip.Addr, now time.Time) (*binding, error) {
	had := t.matching(c, addr)
	if !t.may(had, addr) && !t.open(c, addr) {
		return nil, errNotYours
	}
	present := t.byClient[had]
	_, static := t.fixed(c)
	// A client has one address: a REQUEST for a second one is NAKed, and the client is then offered its own. A client that
	// gets a static address lets its former one expire.
	if present != nil && present.addr != addr && present.state.isHeld() && !static {
		return nil, errNotYours
	}
	b := t.byAddr[addr]
	if !static && (b == nil || !b.state.isHeld() || b.client.mac != c.mac) && len(t.held[c.mac]) >= t.most(c.mac) {
		return nil, errTooMany
	}
	b = t.bindingOf(addr)
	t.assign(b, c.named(had))
	b.hostname = hostname
	if b.state != leased {
		b.acked = time.Time{}
	}
	term := t.term(c, addr)
	t.setState(b, leased, now.Add(term), term < t.cfg.Lease)
	return b, nil
}

// unconfirm undoes a confirm that was not reported.
func (t *table) unconfirm(c client, addr netip.Addr, now time.Time) {
	if b := t.byAddr[addr]; b != nil && b.client.mac == c.mac && b.state == leased && b.acked.IsZero() {
		t.move(b, offered, now.Add(offerTime))
	}
}

// withdraw frees an offer to a client that accepted another server's.
func (t *table) withdraw(c client) {
	if b := t.byClient[t.matching(c, netip.Addr{})]; b != nil && b.state == offered {
		t.free(b, b.end)
	}
}

// release ends a client's lease of addr.
func (t *table) release(c client, addr netip.Addr, now time.Time) (*binding, error) {
	b := t.leaseOf(c, addr)
	if b == nil {
		return nil, errNotYours
	}
	t.free(b, now)
	return b, nil
}

// decline sets addr aside, because its client found it in use. A device that declines without end sets
// hundreds of addresses aside: then vacant takes these for others.
func (t *table) decline(c client, addr netip.Addr, now time.Time) (b *binding, wasLeased bool, err error) {
	b = t.byClient[t.matching(c, addr)]
	if b == nil || b.addr != addr || (b.state != leased && b.state != offered) {
		return nil, false, errNotYours
	}
	wasLeased = b.state == leased
	delete(t.byClient, b.client)
	t.move(b, declined, now.Add(declineTime))
	return b, wasLeased, nil
}

// expire frees at most limit bindings that have expired, and returns copies of the leases among them.
func (t *table) expire(now time.Time, limit int) (ended []binding) {
	for _, q := range []*queue{&t.queues[offered], &t.queues[declined], &t.queues[leased], &t.shortLeased} {
		for b := q.first(); b != nil && !b.end.After(now) && limit > 0; b = q.first() {
			limit--
			lease := b.state == leased
			t.free(b, now)
			if lease {
				ended = append(ended, *b)
			}
		}
	}
	return ended
}

// term returns the length of a new lease of an address for a client.
func (t *table) term(c client, addr netip.Addr) time.Duration {
	_, static := t.fixed(c)
	if static || t.cfg.ShortLease == t.cfg.Lease || t.cfg.Settled(c.mac, addr) {
		return t.cfg.Lease
	}
	return t.cfg.ShortLease
}

// term returns the length of a binding's present lease.
func (b *binding) term(cfg Config) time.Duration {
	if b.short {
		return cfg.ShortLease
	}
	return cfg.Lease
}

// leases counts the addresses that are leased.
func (t *table) leases() int { return t.queues[leased].count + t.shortLeased.count }

// free makes an address free. It stays reserved for its client if that has had it.
func (t *table) free(b *binding, now time.Time) {
	switch {
	case t.static(b):
		t.move(b, reserved, now)
	case b.state == claimed:
		t.vacate(b)
	case b.state == leased:
		t.move(b, known, now)
	default:
		t.move(b, blank, now)
		t.removeClient(b)
	}
}

// removeClient removes a binding's client.
func (t *table) removeClient(b *binding) {
	if t.byClient[b.client] == b {
		delete(t.byClient, b.client)
	}
	b.client, b.hostname, b.at = client{}, "", Attachment{}
}

// assign sets a binding's client, and makes it the client's only binding.
func (t *table) assign(b *binding, c client) {
	if b.client != c {
		t.removeHeld(b)
		t.removeClient(b)
		b.client = c
		t.addHeld(b)
	}
	if former := t.byClient[c]; former != nil && former != b && former.state == known {
		t.move(former, blank, former.end)
		former.client, former.hostname, former.at = client{}, "", Attachment{}
	}
	t.byClient[c] = b
}

// move changes a binding's state; a lease is of full length.
func (t *table) move(b *binding, to state, end time.Time) { t.setState(b, to, end, false) }

func (t *table) setState(b *binding, to state, end time.Time, brief bool) {
	t.removeHeld(b)
	t.queueOf(b).remove(b)
	if b.state == leased {
		t.leasedIn[b.pool]--
	}
	if to == leased {
		t.leasedIn[b.pool]++
	}
	b.state, b.end, b.short, b.release = to, end, brief, nil
	t.queueOf(b).add(b)
	t.addHeld(b)
}

func (t *table) queueOf(b *binding) *queue {
	if b.state == leased && b.short {
		return &t.shortLeased
	}
	return &t.queues[b.state]
}

// bindingOf returns an address's binding, creating a free one if needed.
func (t *table) bindingOf(addr netip.Addr) *binding {
	b := t.byAddr[addr]
	if b == nil {
		b = &binding{addr: addr, pool: t.poolOf(addr)}
		if t.static(b) {
			b.state = reserved
		}
		t.byAddr[addr] = b
		t.queues[b.state].add(b)
	}
	return b
}

// may reports whether a client may get an address now.
func (t *table) may(c client, addr netip.Addr) bool {
	b := t.byAddr[addr]
	if fixed, static := t.fixed(c); static {
		return addr == fixed
	}
	switch {
	case !t.dynamic(addr):
		return false
	case b != nil && b.state == claimed: // of what is behind a repeater nobody knows which device has claimed it
		return b.client.mac == c.mac && !t.cfg.Repeaters[c.mac]
	case b == nil:
		return true
	case b.client == c:
		return b.state != declined
	}
	return b.state == blank || b.state == known
}

// open reports whether an address was offered to a client that has not taken it, so that any client may.
func (t *table) open(c client, addr netip.Addr) bool {
	_, static := t.fixed(c)
	b := t.byAddr[addr]
	return !static && t.dynamic(addr) && b != nil && b.state == offered
}

// fixed returns a client's static address. One that it has declined is none meanwhile.
func (t *table) fixed(c client) (netip.Addr, bool) {
	addr, static := t.cfg.Static[t.hardware(c)]
	b := t.byAddr[addr]
	return addr, static && (b == nil || b.state != declined)
}

// dynamic reports whether an address may be leased to any client.
func (t *table) dynamic(addr netip.Addr) bool {
	if _, static := t.statics[addr]; static || addr == t.cfg.Server {
		return false
	}
	return t.poolOf(addr) < len(t.cfg.Pools)
}

// poolOf is the index of an address's pool; len(cfg.Pools): it is in none.
func (t *table) poolOf(addr netip.Addr) int {
	for i, r := range t.cfg.Pools {
		if addr.Compare(r.First) >= 0 && addr.Compare(r.Last) <= 0 {
			return i
		}
	}
	return len(t.cfg.Pools)
}

func (t *table) static(b *binding) bool {
	_, static := t.statics[b.addr]
	return static
}
