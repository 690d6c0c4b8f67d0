package session

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Position is a place in the list of clients, which is ordered by identity. 0 is its begin.
type Position = datapath.ID

// Brief is what a page is chosen by: what the table knows of a client without reading counters.
type Brief struct {
	Key
	FurtherAddrs   []netip.Addr // must not be changed
	State          State
	User, Hostname string
}

// Page is a part of the list of clients.
type Page struct {
	Sessions []Session
	Next     Position // where the next page begins; 0: there is none
	Visited  int      // clients that were looked at
}

// visitedAtOnce is how many clients are looked at while the table is locked.
const visitedAtOnce = 256

// PageOf returns up to most clients that match, from a position on, as far as looks clients have been looked at; then
// Next is where to go on, however few were found. It locks the table for visitedAtOnce clients at a time, copies only
// those that match and reads only their counters. match must not call the
// table, and must not keep what it gets; nil: all match.
func (t *Table) PageOf(from Position, most, looks int, match func(*Brief) bool) (p Page) {
	if match == nil {
		match = func(*Brief) bool { return true }
	}
	var ids, chosen []datapath.ID
	var brief Brief // of one client after the other
	for {
		done := 0
		chosen = chosen[:0]
		t.mu.Lock()
		ids = t.order.from(ids[:0], from, visitedAtOnce)
		for ; done < len(ids) && p.Visited < looks && len(p.Sessions)+len(chosen) < most; done++ {
			p.Visited++
			if c := t.clients[ids[done]]; c != nil && c.state != "" {
				brief = Brief{Key: c.key, FurtherAddrs: c.extraOrZero().furtherAddrs, State: c.state, User: c.user,
					Hostname: c.hostname}
				if match(&brief) {
					chosen = append(chosen, ids[done])
				}
			}
		}
		t.mu.Unlock()
		for _, id := range chosen {
			if s, found := t.get(func() *client { return t.clients[id] }); found {
				p.Sessions = append(p.Sessions, s)
			}
		}
		switch {
		case done < len(ids):
			p.Next = ids[done]
			return p
		case len(ids) < visitedAtOnce:
			return p
		}
		from = ids[len(ids)-1] + 1
	}
}
