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

// named is the client as its lease records it, where same has found former: an identifier that was ever sent is kept.
func (c client) named(former client) client {
	if c.id == "" {
		return former
	}
	return c
}

// matching returns the client in the table that a message of c means, which may name addr. Some send their identifier
// only sometimes: boot loaders and installers without, the system with it. Where either side has none the MAC
// decides; two identifiers of one MAC are two clients. Of several that one without an identifier can be, it
// is that of addr, otherwise that of the last event.
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

// unnamed is same for a message without identifier.
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
