package dhcp

import (
	"net/netip"
	"slices"
	"strings"
)

// client identifies a DHCP client, by its client identifier or its MAC address.
type client struct {
	mac MAC
	id  string // client identifier (option 61); empty: none
}

// repeated begins the identifiers of clients behind repeaters; their own MAC addresses follow.
const repeated = "behind a repeater "

// behindRepeater returns a client behind a repeater: one of the repeater's MAC address, as the data path knows it,
// which its own MAC address identifies.
func behindRepeater(repeater, own MAC) client {
	return client{mac: repeater, id: repeated + string(own[:])}
}

// hardware returns a client's own MAC address.
func (t *table) hardware(c client) MAC {
	if own, is := strings.CutPrefix(c.id, repeated); is && t.cfg.Repeaters[c.mac] && len(own) == len(MAC{}) {
		return MAC([]byte(own))
	}
	return c.mac
}

// most is how many addresses a MAC address may have.
func (t *table) most(mac MAC) int {
	if t.cfg.Repeaters[mac] {
		return t.cfg.BehindRepeater
	}
	return t.cfg.AddressesPerMAC
}

// named returns the client that a lease records after a message of c. former is the client that matching has found. A
// message without an identifier does not erase the recorded one.
func (c client) named(former client) client {
	if c.id == "" {
		return former
	}
	return c
}

// matching returns the client in the table that sent a message of c. addr is the address that the message names, if
// any. Some machines send their identifier only sometimes: the boot loader and the installer send none, the operating
// system does. So if the message or the lease has no identifier, the MAC decides. Two different identifiers with one
// MAC are two clients. A message without an identifier belongs to the client of its MAC that has addr; otherwise to the
// client without an identifier, if that has an address; otherwise to the client whose binding changed last.
func (t *table) matching(c client, addr netip.Addr) client {
	switch {
	case t.cfg.Repeaters[c.mac]:
		return c
	case c.id == "":
		return t.unnamed(c, addr)
	}
	bound, bare := t.byClient[c], t.byClient[client{mac: c.mac}]
	// The same machine came without its identifier before, unless c has an address of its own.
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

// addHeld and removeHeld keep t.held: for each MAC the bindings with an address, leased or offered. removeHeld is
// called before a binding's client or state changes, addHeld after it.
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
