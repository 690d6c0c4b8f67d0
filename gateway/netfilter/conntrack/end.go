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

	"golang.org/x/sys/unix"
)

// count is how many entries this network namespace has. A kernel that tracks no connections has none.
const count = "/proc/sys/net/netfilter/nf_conntrack_count"

// When the kernel is asked for the connections of one address, it goes through its whole table, mostly of 262,144
// buckets, however few it finds (BenchmarkEnd). It must be asked twice for each address, because the address may be the
// source in either direction of a connection. Listing all entries is one pass over the table, and some µs more for each
// entry.
const (
	fewAddresses = 6      // about more than these the kernel is not asked one by one
	eachAddress  = 25_000 // with more entries for each address, asking one by one costs less than listing all
)

// pause is between dumps of the kernel's table that nobody waits for: a dump takes a CPU while it lasts.
const pause = time.Second

// Ender ends connections. Its methods may be called from several goroutines: addresses are gathered during a
// dump of the kernel's table, and between two dumps, so that the next dump serves all of them.
type Ender struct {
	// Gateway and Gateway6 are the gateway's addresses in the LAN; zero: it has none of that family. Connections with
	// them go on: the portal answers a client that logs out.
	Gateway, Gateway6 netip.Addr
	// Forget is called with connections that have ended, for a cache of their ways; nil: there is none.
	Forget func([]Connection) error
	// Failed is called with errors: connections of some addresses may go on. nil: nobody is.
	Failed func(error)

	mu        sync.Mutex
	current   *batch // its connections are being ended; nil: none are
	nextBatch *batch // it gathers addresses and follows current; nil: there are none
}

// batch is the addresses and networks whose connections end by the same dump of the kernel's table.
type batch struct {
	addrs addresses
	due   bool // its dump does not wait for the pause
	done  chan struct{}
	err   error
}

// Schedule ends all connections from and to these addresses and networks, also those that are translated, within
// seconds. The data path must pass none of their packets any more.
func (e *Ender) Schedule(addrs ...netip.Prefix) {
	if len(addrs) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gather(addrs)
}

// Flush returns nil if no connections of addresses in these networks are left that were given to Schedule. Otherwise it
// ends them at once, and returns a channel that is closed once they have ended: the kernel takes the next packet of
// each for the first one of another connection.
func (e *Ender) Flush(addrs ...netip.Prefix) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.nextBatch != nil && slices.ContainsFunc(addrs, e.nextBatch.addrs.overlap):
		b := e.nextBatch
		e.begin(b)
		return b.done
	case e.current != nil && slices.ContainsFunc(addrs, e.current.addrs.overlap):
		return e.current.done
	}
	return nil
}

// End ends these connections at once, with all that Schedule has gathered, and returns once they have ended.
func (e *Ender) End(addrs ...netip.Prefix) error {
	e.mu.Lock()
	b := e.gather(addrs)
	e.begin(b)
	e.mu.Unlock()
	<-b.done
	return b.err
}

// gather adds to the batch that is next. mu is held.
func (e *Ender) gather(addrs []netip.Prefix) *batch {
	if e.nextBatch == nil {
		e.nextBatch = &batch{done: make(chan struct{})}
		if e.current == nil {
			e.beginLater(e.nextBatch)
		}
	}
	for _, p := range addrs {
		e.nextBatch.addrs.add(p)
	}
	return e.nextBatch
}

// beginLater begins with a batch after the pause.
func (e *Ender) beginLater(b *batch) {
	time.AfterFunc(pause, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.nextBatch == b {
			e.begin(b)
		}
	})
}

// begin begins with the batch that is next, or marks it as due while another dump goes on. mu is held.
func (e *Ender) begin(b *batch) {
	b.due = true
	if e.current == nil {
		e.current, e.nextBatch = b, nil
		go e.endBatch(b)
	}
}

// endBatch ends the connections of a batch, and of those that must follow at once.
func (e *Ender) endBatch(b *batch) {
	for b != nil {
		if b.err = e.endMatching(&b.addrs); b.err != nil && e.Failed != nil {
			e.Failed(b.err)
		}
		ended := b.done
		b = e.takeDue()
		close(ended) // who waits for it finds that nothing is ending
	}
}

// takeDue makes the next batch the current one if it is due, and returns it; nil: it is not, or there is none.
func (e *Ender) takeDue() *batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current = nil
	switch b := e.nextBatch; {
	case b == nil:
	case b.due:
		e.current, e.nextBatch = b, nil
	default:
		e.beginLater(b)
	}
	return e.current
}

func (e *Ender) endMatching(addrs *addresses) error {
	n := entries()
	switch {
	case n == 0 || addrs.empty():
		return nil
	case !addrs.oneByOne(n):
		return e.endWhere(addrs.contain, header(unix.AF_UNSPEC))
	}
	var errs []error
	for a := range addrs.hosts {
		one := func(b netip.Addr) bool { return b == a }
		errs = append(errs, e.endWhere(one, queryFrom(a, tupleOrig), queryFrom(a, tupleReply)))
	}
	return errors.Join(errs...)
}

// EndWhere ends the connections of all addresses for which gone returns true before it returns.
func (e *Ender) EndWhere(gone func(netip.Addr) bool) error {
	if entries() == 0 {
		return nil
	}
	return e.endWhere(gone, header(unix.AF_UNSPEC))
}

// endWhere ends connections of addresses that are gone, among those that the kernel lists as answers to questions.
func (e *Ender) endWhere(gone func(netip.Addr) bool, questions ...[]byte) (err error) {
	var found []Connection
	for _, q := range questions {
		err = errors.Join(err, list(q, func(c Connection) {
			if e.mustEnd(c, gone) {
				c.message = bytes.Clone(c.message) // the dump's buffer is used again
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

// mustEnd reports whether a connection is from or to an address that is gone, and not with the gateway itself.
func (e *Ender) mustEnd(c Connection, gone func(netip.Addr) bool) bool {
	near, far := c.Orig.From.Addr(), c.Reply.From.Addr()
	return !e.isGateway(near) && !e.isGateway(far) && (gone(near) || gone(far))
}

func (e *Ender) isGateway(a netip.Addr) bool { return a == e.Gateway || a == e.Gateway6 }

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
