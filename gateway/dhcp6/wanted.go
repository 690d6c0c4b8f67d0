package dhcp6

import (
	"net/netip"
	"slices"
)

// wish returns what a client is to have of a kind.
func (t *table) wish(c Client, kind Kind) Wish {
	if kind == Registered || t.cfg.Wanted == nil {
		return Wish{}
	}
	return t.cfg.Wanted(c, kind)
}

// allows reports whether a client with a wish may keep a lease of a pool. What a former wish gave it, it may not.
func (w Wish) allows(pool *Pool, it *item) bool {
	switch {
	case len(w.Prefixes) > 0:
		return slices.Contains(w.Prefixes, it.prefix)
	case w.Within.IsValid():
		return w.Within.Contains(it.prefix.Addr())
	}
	return !pool.Named && !it.wished
}

// pools returns the pools, or parts of them, of which a client with a wish gets one prefix each.
func (w Wish) pools(all []Pool) (from []Pool) {
	for _, pool := range all {
		switch {
		case len(w.Prefixes) > 0:
		case !w.Within.IsValid():
			if !pool.Named {
				from = append(from, pool)
			}
		case pool.Prefix.Bits() <= w.Within.Bits() && pool.Prefix.Contains(w.Within.Addr()):
			pool.Prefix = w.Within
			from = append(from, pool)
		}
	}
	return from
}

// claimWished takes from their pools the prefixes that an identity is to have and does not have, and calls give with
// each, which returns how many it proposes without leasing them. Those that are of no pool, or another's, are why it
// gets nothing, where it has none.
func (t *table) claimWished(
	got *granted, id identity, present Prefixes, wished []netip.Prefix, give func(netip.Prefix, *Pool) int,
) {
	pools, proposed := present.pools(id.kind), 0
	for _, prefix := range wished {
		if it := t.taken[prefix]; it != nil && it.owner != nil && it.owner.identity == id {
			continue
		}
		pool := poolOf(pools, prefix)
		switch err := t.room(id, proposed); {
		case err != nil:
			got.err = err
		case pool == nil || !t.claim(id, pool, prefix):
			got.err = errNotFree
		default:
			proposed += give(prefix, pool)
		}
	}
}

// claim reports whether a prefix of a pool is free for an identity, and takes a delegated one from its space.
func (t *table) claim(id identity, pool *Pool, prefix netip.Prefix) bool {
	if id.kind == Delegated {
		space := t.spaces[pool.Prefix]
		return space != nil && space.claim(prefix)
	}
	return prefix.IsSingleIP() && t.taken[prefix] == nil && !t.cfg.Taken(id.client(), prefix.Addr())
}
