package dns

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// scarceShare divides a client's share while half of its class's queries are in use, so
// that a few clients cannot keep the others out.
const scarceShare = 8

// class bounds the queries in progress of admitted or of unauthenticated clients.
type class struct {
	perClient, total int
	used             int // guarded by the limiter's mu
}

// limiter bounds the queries in progress, for each client, for the unauthenticated
// clients together and in total. The total also bounds its memory.
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

// enter reports whether another query is within the limits; if so, leave must follow with
// the same arguments.
func (l *limiter) enter(client netip.Addr, admitted bool) bool {
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

func (l *limiter) leave(client netip.Addr, admitted bool) {
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

// Budget is what an unauthenticated client may ask of the upstreams: token buckets of
// queries and of bytes, queries and replies together. It bounds a tunnel in DNS.
type Budget struct {
	Queries, Bytes        float64 // a second
	QueryBurst, ByteBurst int     // at once, after a silence
}

// defaultBudget lets a device with many programs look up their names at once, 300 queries
// of 200 bytes, and a tunnel carry 16 kbit/s.
var defaultBudget = Budget{Queries: 10, Bytes: 2048, QueryBurst: 300, ByteBurst: 64 << 10}

// refill is the time after which an unused budget is full.
func (b Budget) refill() time.Duration {
	seconds := max(float64(b.QueryBurst)/b.Queries, float64(b.ByteBurst)/b.Bytes)
	return time.Duration((1 + seconds) * float64(time.Second))
}

// maxBudgets bounds the memory for budgets. Devices beyond it share one.
const maxBudgets = 65_536

// device identifies whose budget a query uses: a hardware address, so that one device
// gains nothing by several addresses, or the address where no lease tells whose it is.
type device struct {
	mac  [6]byte
	addr netip.Addr
}

// budgets are the budgets in use.
type budgets struct {
	each Budget

	mu      sync.Mutex // guards what follows
	devices map[device]*bucket
	swept   time.Time
	dropped uint64
}

// bucket is what one device has left of its budget.
type bucket struct {
	queries, bytes *rate.Limiter
	used           time.Time // last, guarded by the budgets' mu
}

func newBudgets(each Budget) *budgets {
	return &budgets{each: each, devices: map[device]*bucket{}}
}

// take reports whether a device may send another query of n bytes; the returned budget is
// charged with the reply.
func (b *budgets) take(d device, n int, now time.Time) (*bucket, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.of(d, now)
	own.used = now
	if own.bytes.TokensAt(now) < float64(n) || !own.queries.AllowN(now, 1) {
		b.dropped++
		return nil, false
	}
	own.charge(n, now)
	return own, true
}

// of returns a device's budget. mu is held.
func (b *budgets) of(d device, now time.Time) *bucket {
	if own := b.devices[d]; own != nil {
		return own
	}
	if len(b.devices) >= maxBudgets && now.Sub(b.swept) > time.Second {
		b.swept = now
		full := now.Add(-b.each.refill())
		maps.DeleteFunc(b.devices, func(_ device, own *bucket) bool { return own.used.Before(full) })
	}
	if len(b.devices) >= maxBudgets {
		d = device{} // shared
		if own := b.devices[d]; own != nil {
			return own
		}
	}
	own := &bucket{
		queries: rate.NewLimiter(rate.Limit(b.each.Queries), b.each.QueryBurst),
		bytes:   rate.NewLimiter(rate.Limit(b.each.Bytes), b.each.ByteBurst),
	}
	b.devices[d] = own
	return own
}

// charge takes n bytes, also more than there are: the next queries wait for as much.
func (b *bucket) charge(n int, now time.Time) {
	b.bytes.ReserveN(now, min(n, b.bytes.Burst()))
}

func (b *budgets) refused() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
