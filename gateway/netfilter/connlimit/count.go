// What the kernel's counts lack: connections that were there before them.

package connlimit

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

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
	err := l.commitEach(ids, func(b *nftables.Batch, id datapath.ID) {
		c := l.clients[id]
		c.older = there[id]
		addChain(b, l.table, id, c.most-min(c.most, uint32(len(c.older))))
	})
	if err == nil {
		for _, id := range ids {
			l.clients[id].waits = false
		}
	}
	return errors.Join(unread, err)
}

// countWaiting counts for clients that are still held, because counting failed. mu is held.
func (l *Limiter) countWaiting() error {
	var held []datapath.ID
	for id, c := range l.clients {
		if c.waits {
			held = append(held, id)
		}
	}
	return l.recount(held)
}

// restFactor is how many times as long as reading connection tracking took makeRoom rests after it: a client that keeps
// older connections open cannot keep the daemon busy by being refused.
const restFactor = 9

// connections returns the forwarded connections that clients have. Those with the gateway itself, such as its DNS and
// portal, are not forwarded, and no rule counts them. mu is held.
func (l *Limiter) connections(of func(datapath.ID) bool) (map[datapath.ID]map[flow]bool, error) {
	all := map[datapath.ID]map[flow]bool{}
	var nets []netip.Prefix
	for p := range l.owners {
		if !p.IsSingleIP() {
			nets = append(nets, p)
		}
	}
	own, err := ownAddresses()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	defer func() { l.restUntil = time.Now().Add(restFactor * time.Since(began)) }()
	err = conntrack.List(func(c conntrack.Connection) {
		if c.Closed || own[c.Orig.From.Addr()] || own[c.Reply.From.Addr()] {
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

// ownAddresses returns the addresses of this machine.
func ownAddresses() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing this machine's addresses: %w", err)
	}
	own := map[netip.Addr]bool{}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			addr, _ := netip.AddrFromSlice(n.IP)
			own[addr.Unmap()] = true
		}
	}
	return own, nil
}

// makeRoom counts again for clients of whose older connections some have ended. It looks only when connections have
// been refused: a client that has not reached its limit needs no room. mu is held.
func (l *Limiter) makeRoom() error {
	older := func(id datapath.ID) bool { return len(l.clients[id].older) > 0 }
	if time.Now().Before(l.restUntil) || !slices.ContainsFunc(slices.Collect(maps.Keys(l.clients)), older) {
		return nil
	}
	n, err := l.conn.Counter(l.table, refused)
	if err != nil || n.Packets == l.judged {
		return err
	}
	there, err := l.connections(older)
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
	err = l.commitEach(fewer, func(b *nftables.Batch, id datapath.ID) {
		l.clients[id].waits = true
		hold(b, l.table, id)
	})
	return errors.Join(err, l.recount(fewer))
}
