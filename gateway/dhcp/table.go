package dhcp

import (
	"errors"
	"net/netip"
	"time"
)

// state is where an address stands.
type state uint8

const (
	blank    state = iota // free, and nobody's
	known                 // free, and its last client's while there are others
	reserved              // free, and one MAC's for ever: static
	offered
	leased
	declined // in use by somebody else, as a client found
	states
)

// held reports whether addresses in a state count against their client's MAC.
func (s state) held() bool { return s == offered || s == leased || s == declined }

// client is who asks.
type client struct {
	mac MAC
	id  string // client identifier (option 61); empty: none
}

// binding is an address that has ever been given out or set aside, in exactly one
// of the table's queues.
type binding struct {
	addr     netip.Addr
	client   client // zero: nobody's
	hostname string
	state    state
	end      time.Time // of the state; of known when it began
	acked    time.Time // lease on disk and told of until then; zero: not yet
	brief    bool      // leased for cfg.Brief

	prev, next *binding
}

// queue is a ring of bindings around its own zero binding. All bindings of a
// state stay in it equally long, so it is in the order of their ends.
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

// Why a client gets no address.
var (
	errExhausted = errors.New("no address is free")
	errTooMany   = errors.New("its MAC has all the addresses it may have")
	errNotYours  = errors.New("the address is not this client's")
)

// table knows every address's state. Whatever it is asked takes the same time
// however many addresses there are. It does no input and output and has no lock.
type table struct {
	cfg      Config
	statics  map[netip.Addr]MAC
	byAddr   map[netip.Addr]*binding
	byClient map[client]*binding // the address that a client has or had last
	perMAC   map[MAC]int         // held addresses
	queues   [states]queue       // by state; but see briefly
	briefly  queue               // leased for cfg.Brief

	// Addresses never used so far begin here.
	pool int
	next netip.Addr
}

func newTable(cfg Config) *table {
	t := &table{
		cfg: cfg, statics: map[netip.Addr]MAC{},
		byAddr: map[netip.Addr]*binding{}, byClient: map[client]*binding{}, perMAC: map[MAC]int{},
	}
	for mac, addr := range cfg.Static {
		t.statics[addr] = mac
	}
	return t
}

// offer finds the address for a DISCOVER, in the order of RFC 2131, 4.3.1: the
// client's present one, its former one, the one it wishes, any. The binding is
// the table's: not to be kept beyond the server's lock.
func (t *table) offer(c client, hostname string, wish netip.Addr, now time.Time) (*binding, error) {
	b, err := t.choose(c, wish)
	if err != nil {
		return nil, err
	}
	t.assign(b, c)
	b.hostname = hostname
	if b.state != leased { // whose end an offer does not change
		t.move(b, offered, now.Add(offerTime))
	}
	return b, nil
}

func (t *table) choose(c client, wish netip.Addr) (*binding, error) {
	addr, static := t.cfg.Static[c.mac]
	own := t.byClient[c]
	if own != nil && t.may(c, own.addr) && own.state.held() {
		return own, nil
	}
	switch {
	case static && !t.may(c, addr):
		return nil, errExhausted
	case static:
		return t.at(addr), nil
	case t.perMAC[c.mac] >= t.cfg.AddressesPerMAC:
		return nil, errTooMany
	case own != nil && t.may(c, own.addr):
		return own, nil
	case t.may(c, wish):
		return t.at(wish), nil
	}
	if b := t.vacant(); b != nil {
		return b, nil
	}
	return nil, errExhausted
}

// vacant takes a free address: one that nobody would miss, one never used, the
// one whose client has been gone longest, and only then one that was offered and
// not taken, or declined.
func (t *table) vacant() *binding {
	if b := t.queues[blank].first(); b != nil {
		return b
	}
	if addr, ok := t.unused(); ok {
		return t.at(addr)
	}
	if b := t.queues[known].first(); b != nil {
		return b
	}
	for b, q := t.queues[offered].first(), &t.queues[offered]; b != nil && b != &q.ring; b = b.next {
		if !t.static(b) { // passes those by at most
			return b
		}
	}
	if b := t.queues[declined].first(); b != nil && !t.static(b) {
		return b
	}
	return nil
}

// unused steps to the pools' next address that has no binding. Each address is
// passed once.
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

// confirm leases an address that a client says was offered to it, or was its own.
// A free address is granted even if it is not remembered: after a loss of the
// leases file clients keep what they have.
func (t *table) confirm(c client, hostname string, addr netip.Addr, now time.Time) (*binding, error) {
	if !t.may(c, addr) && !t.open(c, addr) {
		return nil, errNotYours
	}
	own := t.byClient[c]
	_, static := t.cfg.Static[c.mac]
	// A client has one address: who asks for a second is told to begin anew, and
	// will be offered its own. Who got a static one leaves its former to time.
	if own != nil && own.addr != addr && own.state.held() && !static {
		return nil, errNotYours
	}
	b := t.byAddr[addr]
	if !static && (b == nil || !b.state.held() || b.client.mac != c.mac) && t.perMAC[c.mac] >= t.cfg.AddressesPerMAC {
		return nil, errTooMany
	}
	b = t.at(addr)
	t.assign(b, c)
	b.hostname = hostname
	if b.state != leased {
		b.acked = time.Time{}
	}
	term := t.term(c, addr)
	t.put(b, leased, now.Add(term), term < t.cfg.Lease)
	return b, nil
}

// unconfirm takes back a confirm that nobody was told of.
func (t *table) unconfirm(c client, addr netip.Addr, now time.Time) {
	if b := t.byClient[c]; b != nil && b.addr == addr && b.state == leased && b.acked.IsZero() {
		t.move(b, offered, now.Add(offerTime))
	}
}

// withdraw frees what was offered to a client: it took another server's.
func (t *table) withdraw(c client) {
	if b := t.byClient[c]; b != nil && b.state == offered {
		t.free(b, b.end)
	}
}

// release ends a client's lease of addr.
func (t *table) release(c client, addr netip.Addr, now time.Time) (*binding, error) {
	b := t.byClient[c]
	if b == nil || b.addr != addr || b.state != leased {
		return nil, errNotYours
	}
	t.free(b, now)
	return b, nil
}

// decline sets addr aside: its client found it in use. It still counts as the
// client's, or one MAC could have the whole pool set aside.
func (t *table) decline(c client, addr netip.Addr, now time.Time) (b *binding, wasLeased bool, err error) {
	b = t.byClient[c]
	if b == nil || b.addr != addr || (b.state != leased && b.state != offered) {
		return nil, false, errNotYours
	}
	wasLeased = b.state == leased
	delete(t.byClient, c)
	t.move(b, declined, now.Add(declineTime))
	return b, wasLeased, nil
}

// expire frees what has ended by now, limit at most, and returns copies of the
// leases among it.
func (t *table) expire(now time.Time, limit int) (ended []binding) {
	for _, q := range []*queue{&t.queues[offered], &t.queues[declined], &t.queues[leased], &t.briefly} {
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

// term is how long a lease of an address to a client is to be.
func (t *table) term(c client, addr netip.Addr) time.Duration {
	_, static := t.cfg.Static[c.mac]
	if static || t.cfg.Brief == t.cfg.Lease || t.cfg.Settled(c.mac, addr) {
		return t.cfg.Lease
	}
	return t.cfg.Brief
}

// term is how long a binding was leased for.
func (b *binding) term(cfg Config) time.Duration {
	if b.brief {
		return cfg.Brief
	}
	return cfg.Lease
}

// leases counts the addresses that are leased.
func (t *table) leases() int { return t.queues[leased].count + t.briefly.count }

// free makes an address free: still known as its client's when that has had it.
func (t *table) free(b *binding, now time.Time) {
	switch {
	case t.static(b):
		t.move(b, reserved, now)
	case b.state == leased:
		t.move(b, known, now)
	default:
		t.move(b, blank, now)
		t.forget(b)
	}
}

// forget makes a binding nobody's.
func (t *table) forget(b *binding) {
	if t.byClient[b.client] == b {
		delete(t.byClient, b.client)
	}
	b.client, b.hostname = client{}, ""
}

// assign makes a binding a client's, and the client's only one.
func (t *table) assign(b *binding, c client) {
	if b.client != c {
		t.count(b, -1)
		t.forget(b)
		b.client = c
		t.count(b, +1)
	}
	if former := t.byClient[c]; former != nil && former != b && former.state == known {
		t.move(former, blank, former.end)
		former.client, former.hostname = client{}, ""
	}
	t.byClient[c] = b
}

// move changes a binding's state; a lease is of full length.
func (t *table) move(b *binding, to state, end time.Time) { t.put(b, to, end, false) }

func (t *table) put(b *binding, to state, end time.Time, brief bool) {
	t.count(b, -1)
	t.queueOf(b).remove(b)
	b.state, b.end, b.brief = to, end, brief
	t.queueOf(b).add(b)
	t.count(b, +1)
}

func (t *table) queueOf(b *binding) *queue {
	if b.state == leased && b.brief {
		return &t.briefly
	}
	return &t.queues[b.state]
}

// count keeps perMAC right around a change of a binding's client or state.
func (t *table) count(b *binding, by int) {
	if !b.state.held() {
		return
	}
	if t.perMAC[b.client.mac] += by; t.perMAC[b.client.mac] == 0 {
		delete(t.perMAC, b.client.mac)
	}
}

// at returns an address's binding; a new one is free.
func (t *table) at(addr netip.Addr) *binding {
	b := t.byAddr[addr]
	if b == nil {
		b = &binding{addr: addr}
		if t.static(b) {
			b.state = reserved
		}
		t.byAddr[addr] = b
		t.queues[b.state].add(b)
	}
	return b
}

// may reports whether a client may have an address now.
func (t *table) may(c client, addr netip.Addr) bool {
	b := t.byAddr[addr]
	if fixed, static := t.cfg.Static[c.mac]; static {
		return addr == fixed && (b == nil || b.state != declined)
	}
	switch {
	case !t.dynamic(addr):
		return false
	case b == nil:
		return true
	case b.client == c:
		return b.state != declined
	}
	return b.state == blank || b.state == known
}

// open reports whether an address was offered to somebody who has not taken it, so
// that anybody may.
func (t *table) open(c client, addr netip.Addr) bool {
	_, static := t.cfg.Static[c.mac]
	b := t.byAddr[addr]
	return !static && t.dynamic(addr) && b != nil && b.state == offered
}

// dynamic reports whether an address is one to lease to anybody.
func (t *table) dynamic(addr netip.Addr) bool {
	if _, static := t.statics[addr]; static || addr == t.cfg.Server {
		return false
	}
	for _, r := range t.cfg.Pools {
		if addr.Compare(r.First) >= 0 && addr.Compare(r.Last) <= 0 {
			return true
		}
	}
	return false
}

func (t *table) static(b *binding) bool {
	_, static := t.statics[b.addr]
	return static
}

// restore puts an address back as it was kept on disk. Records must come in the
// order of their ends. It reports false for one that the configuration does not
// allow any more.
func (t *table) restore(r record, now time.Time) bool {
	b := t.byAddr[r.addr]
	if fixed, static := t.cfg.Static[r.client.mac]; b != nil || (static && fixed != r.addr) || (!static && !t.dynamic(r.addr)) {
		return false
	}
	// The clock may have been wrong when this was written, or be wrong now: a
	// lease never runs longer than one given today. From here on a step of the
	// clock changes nothing, as end has the monotonic clock's reading.
	end := now.Add(min(r.end.Sub(now), t.cfg.Lease))
	b = t.at(r.addr)
	b.client, b.hostname = r.client, r.hostname
	switch r.state {
	case leased:
		t.byClient[r.client] = b
		b.acked = end
		t.move(b, leased, end)
	case declined:
		t.move(b, declined, now.Add(min(r.end.Sub(now), declineTime)))
	default:
		t.byClient[r.client] = b
		if b.state == blank {
			t.move(b, known, end)
		}
	}
	return true
}
