package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// feed is what a standby was told of the other gateway's records and has not copied. The life's mu guards it.
type feed struct {
	copied  map[string]copied // records that the set of the site has
	wait    []string          // those of copied that are to be copied
	gone    map[string]bool   // records that were deleted there
	waits   chan struct{}
	allTold bool // everything that there is has been told

	swept, sweeps uint64    // the terms in which clients that the set has not were removed, and are to be at sweepAt
	sweepAt       time.Time //
	trouble       budget.OncePerMinute
}

// copied is a record of the set.
type copied struct {
	owner   string
	content []byte // nil: it is in the table
}

func newFeed() feed {
	return feed{copied: map[string]copied{}, gone: map[string]bool{}, waits: make(chan struct{}, 1)}
}

// sweepAfter is how long after a set is complete the changes that made it so have been told.
const sweepAfter = time.Second

// follower hears of the records of the site.
type follower struct{ l *pairLife }

var _ cluster.Follower = follower{}

// Put implements cluster.Follower.
func (f follower) Put(gateway, key string, r cluster.Record) {
	f.note(gateway, func(l *pairLife) {
		if l.copied[key].content == nil {
			l.wait = append(l.wait, key)
		}
		l.copied[key] = copied{r.Owner, r.Content}
		delete(l.gone, key)
	})
}

// Gone implements cluster.Follower.
func (f follower) Gone(gateway, key string) {
	f.note(gateway, func(l *pairLife) {
		delete(l.copied, key)
		l.gone[key] = true
	})
}

// Synced implements cluster.Follower.
func (f follower) Synced(up bool) {
	f.note(f.l.cfg.Pair.Site, func(l *pairLife) { l.allTold = up })
}

// note calls change for a record of the site while the gateway is a standby.
func (f follower) note(gateway string, change func(*pairLife)) {
	l := f.l
	if gateway != l.cfg.Pair.Site || l.serves.Load() {
		return
	}
	l.mu.Lock()
	change(l)
	l.mu.Unlock()
	select {
	case l.waits <- struct{}{}:
	default:
	}
}

// follow copies what it is told of until this gateway serves or ctx ends.
func (l *pairLife) follow(ctx context.Context) {
	look := time.NewTicker(leadEvery)
	defer look.Stop()
	for !l.serves.Load() {
		select {
		case <-ctx.Done():
			return
		case <-l.waits:
			l.copyAll()
		case <-look.C:
			l.lookAndDrop(ctx)
			l.copyAll() // those that failed
			l.importSoon()
		}
	}
}

// copyAll copies records into the table.
func (l *pairLife) copyAll() {
	l.mu.Lock()
	keys := l.wait
	l.wait = nil
	l.mu.Unlock()
	for _, key := range keys {
		l.mu.Lock()
		r := l.copied[key]
		l.mu.Unlock()
		if r.content == nil {
			continue
		}
		again, err := l.copyOne(key, r)
		if err != nil {
			l.trouble.Do(func() { l.log.Warn("a client of the other gateway cannot be copied", "client", key, "err", err) })
		}
		l.mu.Lock()
		if now, still := l.copied[key]; again && still {
			l.wait = append(l.wait, key)
		} else if still && string(now.content) == string(r.content) {
			l.copied[key] = copied{owner: r.owner}
		} else if still {
			l.wait = append(l.wait, key)
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	l.synced = l.synced || l.allTold && len(l.wait) == 0
	l.mu.Unlock()
}

// copyOne copies a record into the table. again: that may succeed later.
func (l *pairLife) copyOne(key string, r copied) (again bool, err error) {
	id, err := identity(key)
	if err != nil {
		return false, err
	}
	if r.content[0] > session.FormatVersion {
		return false, fmt.Errorf("its record has format %d, known up to %d: update this gateway", r.content[0],
			session.FormatVersion)
	}
	shift, known := l.g.store.Shift(sessionKind(""), r.owner)
	if !known {
		return true, nil // for two seconds
	}
	l.copying.Lock()
	defer l.copying.Unlock()
	if l.serves.Load() {
		return false, nil
	}
	err = l.g.table.Copy(id, r.content[1:], shift)
	return err != nil && !errors.Is(err, datapath.ErrForeign) && !errors.Is(err, session.ErrDamaged), err
}

// identity reads what datapath.ID.String returned.
func identity(key string) (datapath.ID, error) {
	if number, is := strings.CutPrefix(key, "#"); is {
		n, err := strconv.ParseUint(number, 10, 32)
		return datapath.Numbered(uint32(n)), err
	}
	addr, err := netip.ParseAddr(key)
	if err == nil && !addr.Is4() {
		err = fmt.Errorf("%s is not IPv4", addr)
	}
	return datapath.IDOf(addr), err
}

// lookAndDrop asks who serves, and then removes clients that the set does not have: those that were deleted, and once
// in each term those of this gateway's file. It does so only while the set is complete: one that somebody emptied is
// not.
func (l *pairLife) lookAndDrop(ctx context.Context) {
	l.mu.Lock()
	gone := l.gone
	l.gone = map[string]bool{}
	l.mu.Unlock()
	lead, err := l.site.Look(ctx)
	if err == nil {
		l.note(lead)
	}
	if err != nil || !lead.Complete || lead.Gateway == l.g.store.Gateway {
		l.mu.Lock()
		defer l.mu.Unlock()
		for key := range gone {
			l.gone[key] = true
		}
		return
	}
	for key := range gone {
		l.dropUnless(key)
	}
	l.sweep(lead.Term)
}

// sweep removes the clients that the set does not have, once all that it has was told in a term.
func (l *pairLife) sweep(term uint64) {
	l.mu.Lock()
	switch {
	case !l.allTold || l.swept == term:
		l.mu.Unlock()
		return
	case l.sweeps != term:
		l.sweeps, l.sweepAt = term, time.Now().Add(sweepAfter)
	}
	wait := time.Now().Before(l.sweepAt)
	if !wait {
		l.swept = term
	}
	l.mu.Unlock()
	if wait {
		return
	}
	for _, id := range l.g.table.Identities() {
		l.dropUnless(id.String())
	}
}

// dropUnless removes a client unless the set has it.
func (l *pairLife) dropUnless(key string) {
	l.mu.Lock()
	_, has := l.copied[key]
	l.mu.Unlock()
	id, err := identity(key)
	l.copying.Lock()
	defer l.copying.Unlock()
	if has || err != nil || l.serves.Load() {
		return
	}
	if err := l.g.table.Drop(id); err != nil {
		l.trouble.Do(func() {
			l.log.Warn("a client that the other gateway no longer has stays", "client", key, "err", err)
		})
	}
}
