package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Lead is which gateway of a site serves, as the store has it. The zero value is none.
type Lead struct {
	Gateway  string
	Term     uint64        // each gateway that begins to serve has a higher one
	Complete bool          // in this term the set of the site has all records of the gateway
	Left     time.Duration // of its lease; 0 or less: there is none, or it has ended
}

// Site is several gateways' common place in the store, of which one serves at a time. Its records are in the set
// KIND:SITE, which the one that serves writes.
//
//	lead:SITE  hash: gateway, term; complete: the term in which all records were written; until: when its lease ends,
//	           by the store's clock in ms
type Site struct {
	store *Store
	name  string
	whole string // the kind of which the set has all records once the site's lead says so

	mu   sync.Mutex // guards what follows
	term uint64     // this gateway's; 0: it does not serve, or the store does not know yet
	seen uint64     // the latest of all: the store may lose it
}

// What a gateway does with the lead of its site.
const (
	look  = "look"
	take  = "take"
	keep  = "keep"
	leave = "leave"
)

// lead is how a gateway looks at the lead of its site, KEYS[1], takes, keeps or leaves it. Arguments are what it does,
// its name, its term, and how many ms it leases the lead for; 0: it asks nobody before it takes the lead. A higher term
// than the gateway's is another one's. With a lower one the store has lost what it had: then the gateway takes the lead
// again. It returns the gateway, the term, in which term the set was complete, and how many ms are left.
var lead = redis.NewScript(`
local what, me, own, lease = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local has = redis.call('HMGET', KEYS[1], 'gateway', 'term', 'complete', 'until')
local holder, term, complete, ends = has[1] or '', tonumber(has[2] or 0), has[3] or '0', tonumber(has[4] or 0)
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local takes = what == 'take' and (lease == 0 or holder == '' or holder == me or ends <= now)
if takes or what == 'keep' and term < own then
	holder, term, complete = me, math.max(term, own) + 1, '0'
	redis.call('HSET', KEYS[1], 'gateway', me, 'term', string.format('%.0f', term), 'complete', '0')
	takes = true
end
if takes or (what == 'leave' or what == 'keep' and lease > 0) and term == own and holder == me then
	ends = what == 'leave' and 0 or now + lease
	redis.call('HSET', KEYS[1], 'until', string.format('%.0f', ends))
end
return {holder, string.format('%.0f', term), complete, string.format('%.0f', ends - now)}
`)

// completed notes that the set of a site has all records, if the term, ARGV[1], is still the present one.
var completed = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'term') == ARGV[1] then redis.call('HSET', KEYS[1], 'complete', ARGV[1]) end
`)

// fence is the term of a site without which changes are refused. The zero value is none.
type fence struct {
	site *Site
	term uint64
}

// errFenced means that another gateway of the site has begun to serve since.
var errFenced = errors.New("another gateway of the site serves")

// Site returns a site of which this gateway is one. Lead.Complete is about records of a kind.
func (s *Store) Site(name, kind string) *Site { return &Site{store: s, name: name, whole: kind} }

// Sites lists the sites that have records of a kind. members are those of the store.
func (s *Store) Sites(ctx context.Context, kind string, members []Member) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	sets, err := s.asking.SMembers(ctx, s.key("sets")).Result()
	if err != nil {
		return nil, fmt.Errorf("asking the store: %s", plain(err))
	}
	for _, set := range sets {
		of, name := ofSet(set)
		if of == kind && Name.MatchString(name) && name != everybody &&
			!slices.ContainsFunc(members, func(m Member) bool { return m.Name == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Term returns this gateway's term; 0: it does not serve, or the store does not know yet.
func (t *Site) Term() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.term
}

// Look asks which gateway serves.
func (t *Site) Look(ctx context.Context) (Lead, error) { return t.do(ctx, look, 0, 0) }

// Take begins a term of this gateway, for as long as its lease: then only if no other gateway has one. With lease 0 it
// always does. The caller compares the Lead's gateway with its own. The term is later than all that this gateway has
// seen, also where the store has lost them: otherwise one that served before would take the lead again (Keep).
func (t *Site) Take(ctx context.Context, lease time.Duration) (Lead, error) {
	t.mu.Lock()
	latest := max(t.term, t.seen)
	t.mu.Unlock()
	l, err := t.do(ctx, take, latest, lease)
	if err == nil && l.Gateway == t.store.Gateway {
		t.set(l.Term)
		t.store.signal()
	}
	return l, err
}

// Keep renews this gateway's term, and begins another if the store has lost it. Where the Lead's gateway is another
// one, this gateway must no longer serve.
func (t *Site) Keep(ctx context.Context, lease time.Duration) (Lead, error) {
	l, err := t.do(ctx, keep, t.Term(), lease)
	switch {
	case err != nil:
	case l.Gateway != t.store.Gateway:
		t.set(0)
	case l.Term != t.Term():
		t.set(l.Term)
		t.store.compareAll()
	}
	return l, err
}

// LeaveAtClose has Store.Close leave the lead, once all changes are in the store.
func (t *Site) LeaveAtClose() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.store.leaving = t
}

// Leave ends this gateway's term: the next Take of another one succeeds.
func (t *Site) Leave(ctx context.Context) error {
	_, err := t.do(ctx, leave, t.Term(), 0)
	t.set(0)
	return err
}

func (t *Site) set(term uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.term = term
}

func (t *Site) key() string { return t.store.key("lead", t.name) }

// do takes askFor at most.
func (t *Site) do(ctx context.Context, what string, term uint64, lease time.Duration) (l Lead, err error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	answer, err := lead.Run(ctx, t.store.asking, []string{t.key()}, what, t.store.Gateway, text(term),
		lease.Milliseconds()).StringSlice()
	if err != nil {
		return l, fmt.Errorf("the store: %s", plain(err))
	}
	if len(answer) != 4 {
		return l, fmt.Errorf("the store answers %q for the lead of %s", answer, t.name)
	}
	var left int64
	var complete uint64
	for i, to := range []*uint64{&l.Term, &complete} {
		if *to, err = strconv.ParseUint(answer[1+i], 10, 64); err != nil {
			return l, fmt.Errorf("the store has %.40q in the lead of %s", answer[1+i], t.name)
		}
	}
	if left, err = strconv.ParseInt(answer[3], 10, 64); err != nil {
		return l, fmt.Errorf("the store has %.40q in the lead of %s", answer[3], t.name)
	}
	l.Gateway, l.Left = answer[0], time.Duration(left)*time.Millisecond
	l.Complete = l.Term > 0 && complete == l.Term
	t.mu.Lock()
	t.seen = max(t.seen, l.Term)
	t.mu.Unlock()
	return l, nil
}

// complete notes in the store that the set has all records of this gateway that are of a kind; nil: there is no site.
func (t *Site) complete(ctx context.Context, term uint64, kind string) error {
	if t == nil || kind != t.whole {
		return nil
	}
	err := completed.Run(ctx, t.store.client, []string{t.key()}, text(term)).Err()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return err
}

func text(n uint64) string { return strconv.FormatUint(n, 10) }
