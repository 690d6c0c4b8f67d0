// Package connlimit bounds how many connections each client has at once. The kernel counts them, in an nftables table
// of this package's own.
//
//	first packet ──▶ whose address? ──▶ as many as the client may have? ──▶ refused: RST, ICMP
//	further ones are accepted
//
// The kernel asks the table about packets that its stack forwards, behind the rules of others. A connection counts
// while connection tracking has it; one of TCP until both sides have closed it. Connections of all addresses of a
// client count together, those that others open to it included. The table counts while no daemon runs.
//
// The kernel's count of a client begins with 0 where its limit changes, or the table is made anew. So the daemon counts
// the connections that there are, in connection tracking, and gives the kernel the rest. Meanwhile new connections of
// the client wait: their first packets are dropped, and sent again. The daemon counts again while the client is refused
// connections and some of the older ones have ended.
package connlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

// Limiter is the table of one network. Its methods may be called from several goroutines.
type Limiter struct {
	table nftables.Table
	log   *slog.Logger
	conn  *nftables.Conn
	held  bool // by conn: see nftables.Batch

	overlaps budget.OncePerMinute // to log them

	mu        sync.Mutex
	clients   map[datapath.ID]*limited
	unlimited map[datapath.ID]bool // clients that were Set without a limit
	owners    map[netip.Prefix]datapath.ID
	started   bool
	partial   bool      // the table lacks clients, because making it broke off
	refused   uint64    // of tables before this one
	judged    uint64    // refused connections, when the daemon last counted
	restUntil time.Time // makeRoom does nothing until then
	restored  uint64
	trouble   string
}

// limited is a client with a limit.
type limited struct {
	most  uint32
	addrs []netip.Prefix
	// older are the connections that the kernel's count lacks.
	older map[flow]bool
	waits bool // its new connections are held until recount
}

// flow identifies a connection.
type flow struct {
	orig conntrack.Tuple
	zone uint16
}

// Open makes the table, unless a former daemon has left it: that one goes on counting until Start. It fails with
// datapath.ErrNotSupported where the kernel lacks a part of nftables.
func Open(lan string, log *slog.Logger) (*Limiter, error) {
	conn, err := nftables.Dial()
	if err != nil {
		return nil, err
	}
	l := &Limiter{table: tableOf(Table(lan)), log: log, conn: conn, clients: map[datapath.ID]*limited{},
		unlimited: map[datapath.ID]bool{}, owners: map[netip.Prefix]datapath.ID{}}
	if LeftInKernel(lan) {
		return l, nil
	}
	if err := l.make(); err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
			err = fmt.Errorf("%w: %w (nftables with ct count, reject and conntrack are needed)", datapath.ErrNotSupported, err)
		}
		return nil, errors.Join(fmt.Errorf("limiting connections: %w", err), conn.Close())
	}
	return l, nil
}

// Start has the table enforce what was Set since Open.
func (l *Limiter) Start() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = true
	return l.make()
}

// make makes the table anew with all clients, and takes their connections over. mu is held, or nobody else knows l.
func (l *Limiter) make() error {
	if n, err := l.conn.Counter(l.table, refused); err == nil {
		l.refused += n.Packets
	}
	l.judged = 0
	var err error
	for _, l.held = range []bool{true, false} { // needs Linux 6.9
		b := &nftables.Batch{Held: l.held}
		ruleset(b, l.table)
		if err = l.conn.Commit(b); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	l.partial = true
	all := slices.Collect(maps.Keys(l.clients))
	err = l.commitEach(all, func(b *nftables.Batch, id datapath.ID) {
		c := l.clients[id]
		c.waits = true
		addChain(b, l.table, id, c.most)
		hold(b, l.table, id)
		for _, p := range c.addrs {
			set, x := place(p, id)
			b.AddElements(l.table, set, x)
		}
	})
	if err != nil {
		return err
	}
	l.partial = false
	return l.recount(all)
}

// commitEach commits what change adds for each client. One transaction for all could be too long for the kernel.
func (l *Limiter) commitEach(ids []datapath.ID, change func(*nftables.Batch, datapath.ID)) (err error) {
	const together = 64
	for some := range slices.Chunk(ids, together) {
		b := &nftables.Batch{}
		for _, id := range some {
			change(b, id)
		}
		err = errors.Join(err, l.conn.Commit(b))
	}
	return err
}

// Set gives a client a limit; 0 takes it away. Its addresses' former owners have them no longer. On error nothing has
// changed. Where the connections that are there cannot be counted, new ones wait until Run could.
func (l *Limiter) Set(id datapath.ID, addrs []netip.Prefix, most uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most == 0 {
		return l.unlimit(id, addrs)
	}
	addrs = l.countable(id, addrs)
	former := l.clients[id]
	now := &limited{most: most, addrs: addrs}
	if former != nil {
		now.older, now.waits = former.older, former.waits
	}
	b, recounts := &nftables.Batch{}, l.unlimited[id] || former != nil && former.most != most
	if former == nil {
		addChain(b, l.table, id, most)
	}
	if recounts {
		now.waits = true
		hold(b, l.table, id)
	}
	l.move(b, id, former, addrs)
	if l.started && !b.Empty() {
		if err := l.conn.Commit(b); err != nil {
			return fmt.Errorf("limiting connections: %w", err)
		}
	}
	l.note(id, former, now)
	delete(l.unlimited, id)
	if recounts && l.started {
		if err := l.recount([]datapath.ID{id}); err != nil { // Run tries again
			l.tell(err)
		}
	}
	return nil
}

// countable leaves out of a client's addresses and networks what is there twice, and networks that overlap a larger one
// of the client or one of another client, which the kernel's maps cannot have: the other network counts for both.
func (l *Limiter) countable(id datapath.ID, all []netip.Prefix) (kept []netip.Prefix) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) })
	for _, p := range all {
		overlaps := func(q netip.Prefix) bool { return p == q || !p.IsSingleIP() && !q.IsSingleIP() && p.Overlaps(q) }
		if slices.ContainsFunc(kept, overlaps) {
			continue
		}
		if other, found := l.overlapping(id, p); found {
			l.overlaps.Do(func() {
				l.log.Warn("connections of a client's network are not limited apart: it overlaps another client's", "network", p,
					"other", other)
			})
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

// overlapping returns another client's network that overlaps a network and is not the same. mu is held.
func (l *Limiter) overlapping(id datapath.ID, p netip.Prefix) (other netip.Prefix, found bool) {
	if p.IsSingleIP() {
		return other, false
	}
	for q, owner := range l.owners {
		if owner != id && q != p && !q.IsSingleIP() && p.Overlaps(q) {
			return q, true
		}
	}
	return other, false
}

// move adds to a batch what gives a client its addresses, and takes those away that it has no longer. mu is held.
func (l *Limiter) move(b *nftables.Batch, id datapath.ID, former *limited, addrs []netip.Prefix) {
	if former != nil { // first: what comes may overlap what goes
		for _, p := range former.addrs {
			if !slices.Contains(addrs, p) {
				l.take(b, p)
			}
		}
	}
	for _, p := range addrs {
		if l.owners[p] == id {
			continue
		}
		l.take(b, p)
		set, x := place(p, id)
		b.AddElements(l.table, set, x)
	}
}

// take adds to a batch what takes an address from its owner, if it has one. mu is held.
func (l *Limiter) take(b *nftables.Batch, p netip.Prefix) {
	if owner, owned := l.owners[p]; owned {
		set, x := place(p, owner)
		b.DeleteElements(l.table, set, nftables.Element{Key: x.Key, End: x.End})
	}
}

// note remembers what the kernel has of a client; now is nil where it has no limit. mu is held.
func (l *Limiter) note(id datapath.ID, former, now *limited) {
	if former != nil {
		for _, p := range former.addrs {
			l.disown(p)
		}
	}
	delete(l.clients, id)
	if now == nil {
		return
	}
	for _, p := range now.addrs {
		l.disown(p)
		l.owners[p] = id
	}
	l.clients[id] = now
}

// disown remembers that an address is nobody's. mu is held.
func (l *Limiter) disown(p netip.Prefix) {
	if owner := l.clients[l.owners[p]]; owner != nil {
		owner.addrs = slices.DeleteFunc(slices.Clone(owner.addrs), func(q netip.Prefix) bool { return q == p })
	}
	delete(l.owners, p)
}

// unlimit takes a client's limit away, and others the addresses that it has. mu is held.
func (l *Limiter) unlimit(id datapath.ID, addrs []netip.Prefix) error {
	if err := l.remove(id, addrs); err != nil {
		return err
	}
	l.unlimited[id] = true
	return nil
}

// Remove takes a client's limit away. One without a limit is no error.
func (l *Limiter) Remove(id datapath.ID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.remove(id, nil); err != nil {
		return err
	}
	delete(l.unlimited, id)
	return nil
}

// remove takes a client's limit away, and addresses from whoever has them. mu is held.
func (l *Limiter) remove(id datapath.ID, addrs []netip.Prefix) error {
	c, b := l.clients[id], &nftables.Batch{}
	taken := map[netip.Prefix]bool{}
	for _, p := range addrs {
		taken[p] = true
	}
	if c != nil {
		for _, p := range c.addrs {
			taken[p] = true
		}
	}
	for p := range taken {
		l.take(b, p)
	}
	if c != nil {
		b.ClearChain(l.table, chainOf(id))
		b.DeleteChain(l.table, chainOf(id))
	}
	if l.started && !b.Empty() {
		if err := l.conn.Commit(b); err != nil {
			return fmt.Errorf("ending a limit of connections: %w", err)
		}
	}
	l.note(id, c, nil)
	for p := range taken {
		l.disown(p)
	}
	return nil
}

// lookEvery is the time between two looks at the table, and at clients that have older connections.
const lookEvery = time.Second

// Run keeps the table in place until ctx ends, and makes room for clients whose older connections have ended. gone
// tells whether the data path was detached: then it removes the table.
func (l *Limiter) Run(ctx context.Context, gone func() bool) error {
	tick := ticker.Every(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		l.look(gone)
	}
}

func (l *Limiter) look(gone func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gone() {
		if l.started {
			l.started = false
			b := &nftables.Batch{Held: l.held}
			b.DeleteTable(l.table)
			if err := l.conn.Commit(b); err != nil {
				l.log.Error("removing the limits of connections", "err", err)
			}
		}
		return
	}
	if !l.started {
		return
	}
	err := l.keep()
	if err == nil {
		err = l.countWaiting()
	}
	if err == nil {
		err = l.makeRoom()
	}
	l.tell(err)
}

// tell logs trouble once. mu is held.
func (l *Limiter) tell(err error) {
	switch reason := fmt.Sprint(err); {
	case err == nil:
		l.trouble = ""
	case l.trouble != reason:
		l.trouble = reason
		l.log.Error("the limits of connections are not as they should be: trying every second", "err", err)
	}
}

// keep puts the table back where others removed it, as they can before Linux 6.9, and where a part of it is missing. mu
// is held.
func (l *Limiter) keep() error {
	if l.partial {
		return l.make()
	}
	if l.held {
		return nil
	}
	found, err := nftables.TableExists(l.table)
	if err != nil || found {
		return err
	}
	if err := l.make(); err != nil {
		return err
	}
	l.restored++
	l.log.Warn("the rules that limit clients' connections were removed by others, and are back",
		"table", l.table.Name)
	return nil
}

// Refused returns how many packets that would have begun a connection were refused, since Open.
func (l *Limiter) Refused() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.conn.Counter(l.table, refused)
	if err != nil {
		return l.refused
	}
	return l.refused + n.Packets
}

// Restored returns how often the table was put back.
func (l *Limiter) Restored() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restored
}

// Close leaves the table in the kernel, where it goes on counting.
func (l *Limiter) Close() error { return l.conn.Close() }
