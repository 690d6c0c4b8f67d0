package dhcp6

import (
	"net/netip"
	"slices"
	"time"
)

// given is an address or a prefix in an answer. Lifetimes of 0 take it away.
type given struct {
	prefix           netip.Prefix
	preferred, valid time.Duration
}

// granted is what an identity gets.
type granted struct {
	items []*item // what it has now
	given []given
	ended []Lease // of prefixes that were withdrawn
	err   error   // why it gets nothing that is preferred; nil: it does
}

// term returns the lifetimes of a lease from a pool, in whole seconds.
func (t *table) term(c Client, pool *Pool) (preferred, valid time.Duration) {
	term := t.cfg.Lease
	if t.cfg.ShortLease < term && !t.cfg.Settled(c) {
		term = t.cfg.ShortLease
	}
	valid = max(min(term, pool.Valid), time.Second).Truncate(time.Second)
	return min(valid, pool.Preferred).Truncate(time.Second), valid
}

// grant leases to an identity one address or prefix of each preferred pool, renews those that it has, and ends those
// whose pools have been withdrawn.
func (t *table) grant(id identity, present Prefixes, hints []netip.Prefix, now time.Time) (got granted) {
	pools := present.pools(id.kind)
	t.follow(present)
	wish := t.wish(id.client(), id.kind)
	has := map[netip.Prefix]bool{} // pools, and the wish for a part of one, of which the identity has something
	if b := t.byClient[id]; b != nil {
		for _, it := range append([]*item(nil), b.items...) {
			pool := poolOf(pools, it.prefix)
			if pool == nil || id.kind == Delegated && !it.placed || !wish.allows(pool, it) {
				t.remove(it)
				hints = without(hints, it.prefix)
				got.ended = append(got.ended, it.lease())
				got.given = append(got.given, given{prefix: it.prefix})
				continue
			}
			t.lend(&got, it, pool, now)
			it.wished = !wish.isZero()
			has[pool.Prefix], has[wish.Within] = true, true
		}
	}
	t.claimWished(&got, id, present, wish.Prefixes, func(prefix netip.Prefix, pool *Pool) int {
		it := t.add(id, prefix, now)
		it.wished = true
		t.lend(&got, it, pool, now)
		return 0
	})
	pools = wish.pools(pools)
	for i := range pools {
		pool := &pools[i]
		if has[pool.Prefix] || pool.Preferred < time.Second || pool.Valid < time.Second {
			continue
		}
		prefix, err := t.free(id, pool.Prefix, hints, 0)
		if err != nil {
			got.err = err
			continue
		}
		it := t.add(id, prefix, now)
		it.wished = !wish.isZero()
		t.lend(&got, it, pool, now)
	}
	got.finish()
	return got
}

// without returns hints but one: a client that names what is taken from it does not get it again.
func without(hints []netip.Prefix, taken netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(hints), func(p netip.Prefix) bool { return p == taken })
}

// lend adds an item to what an identity gets, until the pool's or the lease's end.
func (t *table) lend(got *granted, it *item, pool *Pool, now time.Time) {
	preferred, valid := t.term(it.owner.client(), pool)
	t.extend(it, now.Add(valid))
	it.leave = nil // a client that asks for it has not left it
	got.items = append(got.items, it)
	got.given = append(got.given, given{it.prefix, preferred, valid})
}

// finish sets the reason why an identity has nothing that is preferred, and removes it where it has. What was taken
// from it and then given to it again is told once.
func (got *granted) finish() {
	has := map[netip.Prefix]bool{}
	for _, one := range got.given {
		has[one.prefix] = has[one.prefix] || one.valid > 0
	}
	got.given = slices.DeleteFunc(got.given, func(one given) bool { return one.valid == 0 && has[one.prefix] })
	for _, one := range got.given {
		if one.preferred > 0 {
			got.err = nil
			return
		}
	}
	if got.err == nil && len(got.items) == 0 {
		got.err = errExhausted
	}
}

// free returns a free prefix of a pool that an identity may have, when more others are about to be given to it.
func (t *table) free(id identity, pool netip.Prefix, hints []netip.Prefix, more int) (netip.Prefix, error) {
	if err := t.room(id, more); err != nil {
		return netip.Prefix{}, err
	}
	return t.choose(id, pool, hints)
}

// propose returns what grant would give, and leases nothing. Of what an identity has it tells nothing that ended.
func (t *table) propose(id identity, present Prefixes, hints []netip.Prefix) (got granted) {
	pools := present.pools(id.kind)
	t.follow(present)
	wish := t.wish(id.client(), id.kind)
	has := map[netip.Prefix]bool{}
	offer := func(prefix netip.Prefix, pool *Pool) {
		lifetime, valid := t.term(id.client(), pool)
		got.given = append(got.given, given{prefix, lifetime, valid})
	}
	if b := t.byClient[id]; b != nil {
		for _, it := range b.items {
			if pool := poolOf(pools, it.prefix); pool != nil && (id.kind != Delegated || it.placed) &&
				wish.allows(pool, it) {
				offer(it.prefix, pool)
				has[pool.Prefix], has[wish.Within] = true, true
			}
		}
	}
	t.claimWished(&got, id, present, wish.Prefixes, func(prefix netip.Prefix, pool *Pool) int {
		if id.kind == Delegated {
			t.spaces[pool.Prefix].release(prefix)
		}
		offer(prefix, pool)
		return 1
	})
	pools = wish.pools(pools)
	more := 0
	for i := range pools {
		pool := &pools[i]
		if has[pool.Prefix] || pool.Preferred < time.Second || pool.Valid < time.Second {
			continue
		}
		prefix, err := t.free(id, pool.Prefix, hints, more)
		if err != nil {
			got.err = err
			continue
		}
		if id.kind == Delegated {
			t.spaces[pool.Prefix].release(prefix)
		}
		more++
		offer(prefix, pool)
	}
	got.finish()
	if len(got.given) == 0 && got.err == nil {
		got.err = errExhausted
	}
	return got
}
