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

	mu       sync.Mutex
	clients  map[datapath.ID]*limited
	owners   map[netip.Prefix]datapath.ID
	started  bool
	refused  uint64 // of tables before this one
	judged   uint64 // refused connections, when the daemon last counted
	restored uint64
	trouble  string
}

// limited is a client with a limit.
type limited struct {
	most  uint32
	addrs []netip.Prefix
	// older are the connections that the kernel's count lacks.
	older map[flow]bool
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
		owners: map[netip.Prefix]datapath.ID{}}
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
	all := slices.Collect(maps.Keys(l.clients))
	err = l.commitEach(all, func(b *nftables.Batch, id datapath.ID) {
		c := l.clients[id]
		addChain(b, l.table, id, c.most)
		hold(b, l.table, id)
		for _, p := range c.addrs {
			set, x := place(p, id)
			b.AddElements(l.table, set, x)
		}
	})
	return errors.Join(err, l.recount(all))
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

// recount gives the kernel what is left of the limits of clients that are held, and lets them go on: with all of their
// limits where connection tracking cannot be read. mu is held.
func (l *Limiter) recount(ids []datapath.ID) error {
	if len(ids) == 0 {
		return nil
	}
	wanted := map[datapath.ID]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	there, unread := l.connections(func(id datapath.ID) bool { return wanted[id] })
	return errors.Join(unread, l.commitEach(ids, func(b *nftables.Batch, id datapath.ID) {
		c := l.clients[id]
		c.older = there[id]
		addChain(b, l.table, id, c.most-min(c.most, uint32(len(c.older))))
	}))
}

// connections returns the connections that clients have. mu is held.
func (l *Limiter) connections(of func(datapath.ID) bool) (map[datapath.ID]map[flow]bool, error) {
	all := map[datapath.ID]map[flow]bool{}
	var nets []netip.Prefix
	for p := range l.owners {
		if !p.IsSingleIP() {
			nets = append(nets, p)
		}
	}
	err := conntrack.List(func(c conntrack.Connection) {
		if c.Closed {
			return
		}
		for _, end := range []netip.Addr{c.Orig.From.Addr(), c.Reply.From.Addr()} {
			id, known := l.owners[netip.PrefixFrom(end, end.BitLen())]
			if i := slices.IndexFunc(nets, func(p netip.Prefix) bool { return p.Contains(end) }); !known && i >= 0 {
				id, known = l.owners[nets[i]], true
			}
			if !known || !of(id) {
				continue
			}
			if all[id] == nil {
				all[id] = map[flow]bool{}
			}
			all[id][flow{c.Orig, c.Zone}] = true
		}
	})
	return all, err
}

// Set gives a client a limit; 0 takes it away. Its addresses' former owners have them no longer. On error nothing has
// changed.
func (l *Limiter) Set(id datapath.ID, addrs []netip.Prefix, most uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most == 0 {
		return l.remove(id)
	}
	former := l.clients[id]
	now := &limited{most: most, addrs: addrs}
	if former != nil {
		now.older = former.older
	}
	b, changed := &nftables.Batch{}, false
	switch {
	case former == nil:
		addChain(b, l.table, id, most)
	case former.most != most:
		changed = true
		hold(b, l.table, id)
	}
	l.move(b, id, former, addrs)
	if l.started && !b.Empty() {
		if err := l.conn.Commit(b); err != nil {
			return fmt.Errorf("limiting connections: %w", err)
		}
	}
	l.note(id, former, now)
	if changed && l.started {
		if err := l.recount([]datapath.ID{id}); err != nil {
			return fmt.Errorf("limiting connections: %w", err)
		}
	}
	return nil
}

// move adds to a batch what gives a client its addresses, and takes those away that it has no longer. mu is held.
func (l *Limiter) move(b *nftables.Batch, id datapath.ID, former *limited, addrs []netip.Prefix) {
	for _, p := range addrs {
		owner, owned := l.owners[p]
		if owned && owner == id {
			continue
		}
		set, x := place(p, id)
		if owned {
			b.DeleteElements(l.table, set, nftables.Element{Key: x.Key, End: x.End})
		}
		b.AddElements(l.table, set, x)
	}
	if former != nil {
		for _, p := range former.addrs {
			if !slices.Contains(addrs, p) && l.owners[p] == id {
				set, x := place(p, id)
				b.DeleteElements(l.table, set, nftables.Element{Key: x.Key, End: x.End})
			}
		}
	}
}

// note remembers what the kernel has of a client. mu is held.
func (l *Limiter) note(id datapath.ID, former, now *limited) {
	if former != nil {
		for _, p := range former.addrs {
			if l.owners[p] == id {
				delete(l.owners, p)
			}
		}
	}
	for _, p := range now.addrs {
		if other := l.clients[l.owners[p]]; other != nil && other != former {
			other.addrs = slices.DeleteFunc(slices.Clone(other.addrs), func(q netip.Prefix) bool { return q == p })
		}
		l.owners[p] = id
	}
	l.clients[id] = now
}

// Remove takes a client's limit away. One without a limit is no error.
func (l *Limiter) Remove(id datapath.ID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remove(id)
}

func (l *Limiter) remove(id datapath.ID) error {
	c := l.clients[id]
	if c == nil {
		return nil
	}
	b := &nftables.Batch{}
	for _, p := range c.addrs {
		set, x := place(p, id)
		b.DeleteElements(l.table, set, nftables.Element{Key: x.Key, End: x.End})
	}
	b.ClearChain(l.table, chainOf(id))
	b.DeleteChain(l.table, chainOf(id))
	if l.started {
		if err := l.conn.Commit(b); err != nil {
			return fmt.Errorf("ending a limit of connections: %w", err)
		}
	}
	for _, p := range c.addrs {
		delete(l.owners, p)
	}
	delete(l.clients, id)
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
		err = l.makeRoom()
	}
	switch reason := fmt.Sprint(err); {
	case err == nil:
		l.trouble = ""
	case l.trouble != reason:
		l.trouble = reason
		l.log.Error("the limits of connections are not as they should be: trying every second", "err", err)
	}
}

// keep puts the table back where others removed it, as they can before Linux 6.9. mu is held.
func (l *Limiter) keep() error {
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

// makeRoom counts again for clients of whose older connections some have ended. It looks only when connections have
// been refused: a client that has not reached its limit needs no room. mu is held.
func (l *Limiter) makeRoom() error {
	waits := func(id datapath.ID) bool { return len(l.clients[id].older) > 0 }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(l.clients)), waits) {
		return nil
	}
	n, err := l.conn.Counter(l.table, refused)
	if err != nil || n.Packets == l.judged {
		return err
	}
	there, err := l.connections(waits)
	if err != nil {
		return err
	}
	l.judged = n.Packets
	var fewer []datapath.ID
	for id, c := range l.clients {
		ended := func(f flow) bool { return !there[id][f] }
		if slices.ContainsFunc(slices.Collect(maps.Keys(c.older)), ended) {
			fewer = append(fewer, id)
		}
	}
	err = l.commitEach(fewer, func(b *nftables.Batch, id datapath.ID) { hold(b, l.table, id) })
	return errors.Join(err, l.recount(fewer))
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

// Trouble returns why the rules are not as they should be; "" where they are.
func (l *Limiter) Trouble() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

// Close leaves the table in the kernel, where it goes on counting.
func (l *Limiter) Close() error { return l.conn.Close() }
