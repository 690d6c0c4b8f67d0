package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// count is how many entries this network namespace has. A kernel that tracks no connections has none.
const count = "/proc/sys/net/netfilter/nf_conntrack_count"

// The kernel looks for one address by going through all of its table, twice: in 20 ms where that has 262,144 buckets,
// and longer with many entries. Reading all entries takes half of that, and some 3 µs for each.
const eachAddress = 4096 // entries, above which the kernel looks for an address, or for each of a few

// Ender ends connections. Its methods may be called from several goroutines: who comes while the kernel's table is read
// waits for the next reading, together with all others.
type Ender struct {
	// Gateway is the gateway's address in the LAN. Connections with it go on: the portal answers a client that logs out.
	Gateway netip.Addr
	// Forget is told of connections that are gone, if somebody else knows their ways; nil: nobody does.
	Forget func([]Connection) error

	mu      sync.Mutex
	current *batch         // whose connections are being ended; nil: nobody's
	next    *batch         // that follows
	soon    []netip.Prefix // of EndSoon
}

// delay is how long EndSoon gathers addresses.
const delay = time.Second

// batch is addresses and networks whose connections end together.
type batch struct {
	of   []netip.Prefix
	done chan struct{}
	err  error
}

// End ends all connections from and to these addresses and networks, also those that are translated: when it returns, the
// kernel takes the next packet of each for the first one of another. Nobody sends by them any more when it is called.
func (e *Ender) End(of ...netip.Prefix) error {
	e.mu.Lock()
	b := e.begin(of)
	e.mu.Unlock()
	<-b.done
	return b.err
}

// EndSoon is End within some seconds, together with others': for what need not be gone at once. failed is told of an error.
func (e *Ender) EndSoon(failed func(error), of ...netip.Prefix) {
	if len(of) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.soon == nil {
		time.AfterFunc(delay, func() {
			if err := e.End(); err != nil {
				failed(err)
			}
		})
	}
	e.soon = append(e.soon, of...)
}

// Ended returns once all connections of an address have ended that End or EndSoon was told of.
func (e *Ender) Ended(a netip.Addr) error {
	holds := func(of []netip.Prefix) bool {
		return slices.ContainsFunc(of, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	var b *batch
	e.mu.Lock()
	switch {
	case holds(e.soon):
		b = e.begin(nil)
	case e.next != nil && holds(e.next.of):
		b = e.next
	case e.current != nil && holds(e.current.of):
		b = e.current
	}
	e.mu.Unlock()
	if b == nil {
		return nil
	}
	<-b.done
	return b.err
}

// begin adds to the batch that is next, with what EndSoon has gathered. mu is held.
func (e *Ender) begin(of []netip.Prefix) *batch {
	if e.next == nil {
		e.next = &batch{done: make(chan struct{})}
	}
	e.next.of = slices.Concat(e.next.of, e.soon, of)
	e.soon = nil
	b := e.next
	if e.current == nil {
		e.current, e.next = b, nil
		go e.work(b)
	}
	return b
}

// work ends the connections of a batch, and of those that follow.
func (e *Ender) work(b *batch) {
	for b != nil {
		b.err = e.end(b.of)
		close(b.done)
		e.mu.Lock()
		b = e.next
		e.current, e.next = b, nil
		e.mu.Unlock()
	}
}

func (e *Ender) end(of []netip.Prefix) error {
	slices.SortFunc(of, netip.Prefix.Compare)
	of = slices.Compact(of)
	n := entries()
	switch {
	case n == 0 || len(of) == 0:
		return nil
	case n < eachAddress*len(of) || slices.ContainsFunc(of, func(p netip.Prefix) bool { return !p.IsSingleIP() }):
		return e.endAs(inAny(of), nil)
	}
	var errs []error
	for _, p := range of {
		errs = append(errs, e.endAs(p.Contains, from(p.Addr(), TupleOrig), from(p.Addr(), TupleReply)))
	}
	return errors.Join(errs...)
}

// inAny reports whether an address is in one of the networks.
func inAny(of []netip.Prefix) func(netip.Addr) bool {
	hosts, networks := map[netip.Addr]bool{}, []netip.Prefix{}
	for _, p := range of {
		if p.IsSingleIP() {
			hosts[p.Addr()] = true
		} else {
			networks = append(networks, p)
		}
	}
	return func(a netip.Addr) bool {
		return hosts[a] || slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
	}
}

// EndOf is End for all addresses for which gone returns true.
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
		return 1 << 30 // they are looked for one by one
	}
	return n
}

// ends reports whether a connection is from or to an address that is gone, and not with the gateway itself.
func (e *Ender) ends(c Connection, gone func(netip.Addr) bool) bool {
	near, far := c.Orig.From.Addr(), c.Reply.From.Addr()
	return near != e.Gateway && far != e.Gateway && (gone(near) || gone(far))
}

// from is the attributes of a question for entries of which one direction comes from an address. Kernels before 5.8 answer
// with all entries.
func from(a netip.Addr, side uint16) []byte {
	flags := map[uint16]uint16{TupleOrig: filterOrig, TupleReply: filterReply}[side]
	e := netlink.NewAttributeEncoder()
	e.Nested(side, func(t *netlink.AttributeEncoder) error {
		t.Nested(TupleIP, func(ip *netlink.AttributeEncoder) error {
			ip.Bytes(IPSource, a.AsSlice())
			return nil
		})
		return nil
	})
	e.Nested(filter, func(f *netlink.AttributeEncoder) error {
		f.ByteOrder = binary.NativeEndian
		for _, which := range []uint16{filterOrig, filterReply} {
			var what uint32
			if which == flags {
				what = filterSource
			}
			f.Uint32(which, what)
		}
		return nil
	})
	attrs, err := e.Encode()
	if err != nil {
		panic(err) // the attributes are short
	}
	return attrs
}

// list calls f with each entry.
func list(question []byte, f func(Connection)) error {
	r := nl.NewNetlinkRequest(Get, unix.NLM_F_DUMP)
	r.AddRawData(slices.Concat(Header, question))
	err := r.ExecuteIter(unix.NETLINK_NETFILTER, New, func(m []byte) bool {
		if c, err := Read(m); err == nil {
			f(c)
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("reading connection tracking: %w", err)
	}
	return nil
}

// remove has the kernel forget connections. One that has ended meanwhile, and may have been begun anew by others, is left alone.
func (e *Ender) remove(all []Connection) error {
	var errs []error
	for _, c := range all {
		attrs, err := netlink.MarshalAttributes(c.name)
		if err == nil {
			r := nl.NewNetlinkRequest(del, unix.NLM_F_ACK)
			r.AddRawData(slices.Concat(Header, attrs))
			_, err = r.Execute(unix.NETLINK_NETFILTER, 0)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("ending the connection from %s to %s: %w", c.Orig.From, c.Orig.To, err))
		}
	}
	if e.Forget != nil && len(all) > 0 {
		errs = append(errs, e.Forget(all))
	}
	return errors.Join(errs...)
}
