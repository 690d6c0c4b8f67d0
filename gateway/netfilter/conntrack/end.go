package conntrack

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// count is how many entries this network namespace has. A kernel that tracks no connections has none.
const count = "/proc/sys/net/netfilter/nf_conntrack_count"

// A question about addresses has the kernel go through all of its table, of 262,144 buckets mostly, whatever it finds
// (BenchmarkEnd). It takes two for each address, as a connection has one in either direction; one that lists all
// entries takes some µs more for each of these.
const (
	fewAddresses = 6      // at most, that the kernel is asked about one by one
	eachAddress  = 25_000 // entries for each of them, from which on that costs less than reading all
)

// pause is between the readings of the kernel's table that nobody waits for: they take a CPU while they last.
const pause = time.Second

// Ender ends connections. Its methods may be called from several goroutines: addresses are gathered while the kernel's
// table is read, and between two readings, so that one reading serves all of them.
type Ender struct {
	// Gateway is the gateway's address in the LAN. Connections with it go on: the portal answers a client that logs out.
	Gateway netip.Addr
	// Forget is told of connections that are gone, if somebody else knows their ways; nil: nobody does.
	Forget func([]Connection) error
	// Failed is told of errors: connections of some addresses may go on. nil: nobody is.
	Failed func(error)

	mu      sync.Mutex
	current *batch // whose connections are being ended; nil: nobody's
	next    *batch // that follows, and gathers addresses; nil: there are none
}

// batch is addresses and networks whose connections end together.
type batch struct {
	of   addresses
	due  bool // its reading does not wait for others
	done chan struct{}
	err  error
}

// EndSoon ends all connections from and to these addresses and networks, also those that are translated, in some
// seconds. Nobody sends by them any more when it is called.
func (e *Ender) EndSoon(of ...netip.Prefix) {
	if len(of) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gather(of)
}

// Ending returns nil if all connections have ended of which EndSoon was told, of addresses in these networks. Otherwise
// it has them end at once, and returns what is closed when they have: the kernel takes the next packet of each for the
// first one of another.
func (e *Ender) Ending(of ...netip.Prefix) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.next != nil && slices.ContainsFunc(of, e.next.of.overlap):
		b := e.next
		e.begin(b)
		return b.done
	case e.current != nil && slices.ContainsFunc(of, e.current.of.overlap):
		return e.current.done
	}
	return nil
}

// End is EndSoon at once, for all that were gathered, and returns once these connections have ended.
func (e *Ender) End(of ...netip.Prefix) error {
	e.mu.Lock()
	b := e.gather(of)
	e.begin(b)
	e.mu.Unlock()
	<-b.done
	return b.err
}

// gather adds to the batch that is next. mu is held.
func (e *Ender) gather(of []netip.Prefix) *batch {
	if e.next == nil {
		e.next = &batch{done: make(chan struct{})}
		if e.current == nil {
			e.later(e.next)
		}
	}
	for _, p := range of {
		e.next.of.add(p)
	}
	return e.next
}

// later begins with a batch after the pause.
func (e *Ender) later(b *batch) {
	time.AfterFunc(pause, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.next == b {
			e.begin(b)
		}
	})
}

// begin begins with the batch that is next, or has it follow the one that is being read. mu is held.
func (e *Ender) begin(b *batch) {
	b.due = true
	if e.current == nil {
		e.current, e.next = b, nil
		go e.work(b)
	}
}

// work ends the connections of a batch, and of those that must follow at once.
func (e *Ender) work(b *batch) {
	for b != nil {
		if b.err = e.end(&b.of); b.err != nil && e.Failed != nil {
			e.Failed(b.err)
		}
		ended := b.done
		b = e.follows()
		close(ended) // whoever waits finds that nothing is ending
	}
}

// follows returns the batch that is read at once after another; nil: there is none.
func (e *Ender) follows() *batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current = nil
	switch b := e.next; {
	case b == nil:
	case b.due:
		e.current, e.next = b, nil
	default:
		e.later(b)
	}
	return e.current
}

func (e *Ender) end(of *addresses) error {
	n := entries()
	switch {
	case n == 0 || of.empty():
		return nil
	case !of.oneByOne(n):
		return e.endAs(of.contain, nil)
	}
	var errs []error
	for a := range of.hosts {
		one := func(b netip.Addr) bool { return b == a }
		errs = append(errs, e.endAs(one, from(a, tupleOrig), from(a, tupleReply)))
	}
	return errors.Join(errs...)
}

// EndOf ends the connections of all addresses for which gone returns true before it returns.
func (e *Ender) EndOf(gone func(netip.Addr) bool) error {
	if entries() == 0 {
		return nil
	}
	return e.endAs(gone, nil)
}

// endAs ends connections of addresses that are gone, among those that the kernel lists as answers to questions.
func (e *Ender) endAs(gone func(netip.Addr) bool, questions ...[]byte) (err error) {
	var found []Connection
	for _, q := range questions {
		err = errors.Join(err, list(q, func(c Connection) {
			if e.ends(c, gone) {
				c.message = bytes.Clone(c.message) // which has others' beside it
				found = append(found, c)
			}
		}))
	}
	return errors.Join(err, e.remove(found))
}

// entries returns how many the kernel has; 0 where it tracks nothing: asking it would load its modules.
func entries() int {
	text, err := os.ReadFile(count)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 1 << 30 // a few are looked for one by one
	}
	return n
}

// ends reports whether a connection is from or to an address that is gone, and not with the gateway itself.
func (e *Ender) ends(c Connection, gone func(netip.Addr) bool) bool {
	near, far := c.Orig.From.Addr(), c.Reply.From.Addr()
	return near != e.Gateway && far != e.Gateway && (gone(near) || gone(far))
}

// remove has the kernel forget connections.
func (e *Ender) remove(all []Connection) error {
	var errs []error
	for i := range all {
		errs = append(errs, all[i].remove())
	}
	if e.Forget != nil && len(all) > 0 {
		errs = append(errs, e.Forget(all))
	}
	return errors.Join(errs...)
}
