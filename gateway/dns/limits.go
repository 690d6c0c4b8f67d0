package dns

import (
	"net/netip"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// scarceShare divides a client's share while half of its class's queries are in use, so that a few clients cannot keep
// the others out.
const scarceShare = 8

// class bounds the queries in progress of admitted or of unauthenticated clients.
type class struct {
	perClient, total int
	used             int // guarded by the limiter's mu
}

// limiter bounds the queries in progress, for each client, for the unauthenticated clients together and in total. The
// total also bounds its memory.
type limiter struct {
	mu        sync.Mutex // guards what follows
	admitted  class      // its total is that of both
	strangers class
	clients   map[netip.Addr]int
	refused   uint64
}

func newLimiter(admitted, strangers class) *limiter {
	return &limiter{admitted: admitted, strangers: strangers, clients: map[netip.Addr]int{}}
}

func (l *limiter) class(admitted bool) *class {
	if admitted {
		return &l.admitted
	}
	return &l.strangers
}

// admit reports whether another query of a client is within the limits; admitted tells whether a session admits the
// client. If so, the caller must call release with the same arguments once the query has its answer.
func (l *limiter) admit(client netip.Addr, admitted bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.class(admitted)
	share := c.perClient
	if c.used >= c.total/2 {
		share = max(1, share/scarceShare)
	}
	if c.used >= c.total || l.admitted.used+l.strangers.used >= l.admitted.total || l.clients[client] >= share {
		l.refused++
		return false
	}
	c.used++
	l.clients[client]++
	return true
}

func (l *limiter) release(client netip.Addr, admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.class(admitted).used--
	if l.clients[client]--; l.clients[client] == 0 {
		delete(l.clients, client)
	}
}

// state returns the number of refused queries and of those in progress.
func (l *limiter) state() (refused uint64, now int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused, l.admitted.used + l.strangers.used
}

// Budget is what an unauthenticated client may ask of the upstreams: queries and bytes, queries and replies together.
// It bounds a tunnel in DNS.
type Budget struct{ Queries, Bytes budget.Rate }

// defaultBudget lets a device with many programs look up their names at once, 300 queries of 200 bytes, and a tunnel
// carry 16 kbit/s.
var defaultBudget = Budget{
	Queries: budget.Rate{AtOnce: 300, EachSecond: 10},
	Bytes:   budget.Rate{AtOnce: 64 << 10, EachSecond: 2048},
}

// maxBudgets bounds the memory for budgets. A further device takes the place of the one that has been silent longest.
const maxBudgets = 65_536

// device identifies whose budget a query uses: a hardware address, so that one device gains nothing by several
// addresses, or the address where no lease tells whose it is.
type device struct {
	mac  [6]byte
	addr netip.Addr
}

// budgets are the budgets in use.
type budgets struct {
	perDevice Budget

	mu      sync.Mutex // guards what follows
	devices budget.Recent[device, bucket]
	dropped uint64
}

// bucket is what one device has left of its budget.
type bucket struct{ queries, bytes budget.Clock }

// spend reports whether a device may send another query of n bytes; the returned budget is charged with the reply. now
// is budget.Now.
func (b *budgets) spend(d device, n int, now int64) (*bucket, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clientBucket := b.devices.Get(d)
	if clientBucket == nil {
		clientBucket = b.devices.Add(d, maxBudgets)
	}
	if !clientBucket.bytes.Has(b.perDevice.Bytes, n, now) || !clientBucket.queries.Spend(b.perDevice.Queries, now) {
		b.dropped++
		return nil, false
	}
	b.charge(clientBucket, n, now)
	return clientBucket, true
}

// charge takes n bytes from a budget. It may take more than are left; the next queries then wait for them.
func (b *budgets) charge(clientBucket *bucket, n int, now int64) {
	clientBucket.bytes.Charge(b.perDevice.Bytes, n, now)
}

func (b *budgets) refused() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
