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

// named returns the client as its lease records it, where matching has found former: an identifier that the client ever
// sent is kept.
func (c client) named(former client) client {
	if c.id == "" {
		return former
	}
	return c
}

// matching returns the client in the table from which a message of c comes. addr is the address that the message names,
// if any. Some machines send their identifier only sometimes: the boot loader and the installer send none, the system
// does. So where the message or the lease has no identifier, the MAC decides. Two identifiers with one MAC are two
// clients. Where a message without an identifier could come from several, it is the one with addr, else the one of the
// last event.
func (t *table) matching(c client, addr netip.Addr) client {
	if c.id == "" {
		return t.unnamed(c, addr)
	}
	bound, bare := t.byClient[c], t.byClient[client{mac: c.mac}]
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

// addHeld and drop keep the addresses of each MAC, around a change of a binding's client or state.
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
