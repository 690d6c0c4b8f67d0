package dhcp

import (
	"net/netip"
	"slices"
)

// client identifies a DHCP client, by its client identifier or its MAC address.
type client struct {
	mac MAC
	id  string // client identifier (option 61); empty: none
}

// named returns what the lease records as its client after a message of c, which matching has found to be of former: a
// message without an identifier does not erase the one that is known.
func (c client) named(former client) client {
	if c.id == "" {
		return former
	}
	return c
}

// matching returns the client in the table from which a message of c comes. addr is the address that the message names,
// if any. Some machines send their identifier only sometimes: the boot loader and the installer send none, the system
// does. So where the message or the lease has no identifier, the MAC decides. Two identifiers with one MAC are two
// clients. A message without an identifier is of the client of that MAC that has addr, else of the one without an
// identifier if it has an address, else of the one whose binding changed last.
func (t *table) matching(c client, addr netip.Addr) client {
	if c.id == "" {
		return t.unnamed(c, addr)
	}
	bound, bare := t.byClient[c], t.byClient[client{mac: c.mac}]
	// The same machine without its identifier before, unless c has an address of its own.
	if bare != nil && (bound == nil || !bound.state.isHeld() && bare.state.isHeld()) {
		return bare.client
	}
	return c
}

// unnamed is matching for a message without an identifier.
func (t *table) unnamed(c client, addr netip.Addr) client {
	list := t.held[c.mac]
	for _, b := range list {
		if b.addr == addr {
			return b.client
		}
	}
	if bound := t.byClient[c]; bound != nil && bound.state.isHeld() || len(list) == 0 {
		return c
	}
	return list[len(list)-1].client
}

// addHeld and removeHeld keep t.held, the bindings of each MAC that have an address, leased or offered. removeHeld is
// called before a change of a binding's client or state, addHeld after it.
func (t *table) addHeld(b *binding) {
	if b.state.isHeld() {
		t.held[b.client.mac] = append(t.held[b.client.mac], b)
	}
}

func (t *table) removeHeld(b *binding) {
	if !b.state.isHeld() {
		return
	}
	mac := b.client.mac
	t.held[mac] = slices.DeleteFunc(t.held[mac], func(o *binding) bool { return o == b })
	if len(t.held[mac]) == 0 {
		delete(t.held, mac)
	}
}
