// Sessions of one user at several gateways together: what limits.sessions_per_user counts.

package gateway

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/elsewhere"
	"github.com/gateweigh/gateweigh/gateway/session"
)

const (
	// lookEvery is how long users are collected whose sessions are then counted together.
	lookEvery = 100 * time.Millisecond
	// looksMost is how often a user is looked at again whose sessions cannot be compared yet: a gateway that has just
	// started says within two seconds how its clock is.
	looksMost = 50
)

// perUser counts the sessions of users over all gateways. A login counts those that other gateways have told of. If two
// gateways admit a user at the same moment, each of them sees the other's session a little later, and ends its own if
// that is the one too many.
type perUser struct {
	r       *roams
	changed chan struct{} // signals that somebody waits

	mu    sync.Mutex
	waits map[string]int // users to look at, with how often they have been looked at
}

// newPerUser has the sessions of other gateways counted, at logins and afterwards. It must be run.
func newPerUser(r *roams) *perUser {
	p := &perUser{r: r, changed: make(chan struct{}, 1), waits: map[string]int{}}
	r.Taken = func(user string) { p.await(user, 0) }
	r.g.table.CountOthers(p.others)
	return p
}

// others returns how many sessions count that a user has at other gateways, at a login from a MAC address: nothing
// while the store is away, because what it told may be over.
func (p *perUser) others(user string, mac datapath.MAC) (n int) {
	list, up := p.r.OfUser(user)
	if !up || !countsOver(user) {
		return 0
	}
	for _, s := range list {
		if s.MAC != mac {
			n++
		}
	}
	return n
}

// countsOver reports whether sessions of a user at several gateways count together: a voucher has a limit of its own.
func countsOver(user string) bool {
	return user != "" && !strings.HasPrefix(user, session.VoucherUsers)
}

// await has a user looked at, who has been before so many times.
func (p *perUser) await(user string, before int) {
	if !countsOver(user) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits[user] = max(p.waits[user], before)
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Synced implements cluster.Follower. What people did while the store was away is looked at afterwards.
func (r *roams) Synced(up bool) {
	r.Index.Synced(up)
	if up {
		for _, user := range r.Users() {
			r.users.await(user, 0)
		}
	}
}

// run ends sessions that are too many, until ctx ends.
func (p *perUser) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}
		p.look()
	}
}

// look looks at those who wait.
func (p *perUser) look() {
	p.mu.Lock()
	waits := p.waits
	p.waits = map[string]int{}
	p.mu.Unlock()
	users := make([]string, 0, len(waits))
	for user := range waits {
		users = append(users, user)
	}
	here, changing := p.r.g.table.OfUsers(users)
	for user, own := range here {
		others, up := p.r.OfUser(user)
		if !up { // Synced has everybody looked at later
			continue
		}
		all, known := p.claims(own, others)
		if known {
			p.endSurplus(user, all)
		}
		if n := waits[user] + 1; (!known || changing[user]) && n < looksMost {
			p.await(user, n)
		}
	}
}

// claims returns all sessions of a user. known: it is known when each began.
func (p *perUser) claims(own []session.UserSession, others []elsewhere.Session) (
	all []elsewhere.Claim, known bool) {
	store, kind := p.r.g.store, p.r.kind
	for i := range own {
		s := &own[i]
		at, known := store.Moment(kind, store.Gateway, s.Began)
		if !known {
			return nil, false
		}
		all = append(all, elsewhere.Claim{MAC: s.MAC, Began: at, Gateway: store.Gateway, ID: s.ID, Own: s})
	}
	for _, s := range others {
		at, known := store.Moment(kind, s.Gateway, s.Began)
		if !known {
			return nil, false
		}
		all = append(all, elsewhere.Claim{MAC: s.MAC, Began: at, Gateway: s.Gateway, ID: s.ID})
	}
	return all, true
}

// endSurplus ends the sessions that are too many of a user who has all.
func (p *perUser) endSurplus(user string, all []elsewhere.Claim) {
	g := p.r.g
	for _, s := range elsewhere.Surplus(all) {
		g.log.Info("the user has more sessions at all gateways than allowed: this one ends", "client", s.Key.String(),
			"user", user, "session", s.ID, "sessions", len(all), "allowed", s.Most)
		err := g.table.Kick(s.Addr, s.ID, s.Cause)
		if err != nil && !errors.Is(err, session.ErrNoSession) && !errors.Is(err, session.ErrLater) {
			g.log.Warn("ending a session", "client", s.Key.String(), "session", s.ID, "err", err)
		}
	}
}
