package session

import "github.com/gateweigh/gateweigh/gateway/datapath"

// macs is an index of the clients by MAC address: the first client of a short linked list. With it a login that
// replaces other sessions costs the same however many clients there are.
type macs map[datapath.MAC]*client

// put moves a client to the list of a MAC address. A client with the zero address is in no list. The table's mu must be
// held.
func (m macs) put(c *client, mac datapath.MAC) {
	var none datapath.MAC
	if c.talliedMAC == mac {
		return
	}
	if first := m[c.talliedMAC]; first == c && c.nextOfMAC == nil {
		delete(m, c.talliedMAC)
	} else if first == c {
		m[c.talliedMAC] = c.nextOfMAC
	} else if c.talliedMAC != none {
		for first.nextOfMAC != c {
			first = first.nextOfMAC
		}
		first.nextOfMAC = c.nextOfMAC
	}
	c.nextOfMAC, c.talliedMAC = nil, mac
	if mac != none {
		c.nextOfMAC, m[mac] = m[mac], c
	}
}

// only6 returns a client of a MAC address that has no IPv4 address, or nil. The table's mu must be held.
func (m macs) only6(mac datapath.MAC) *client {
	for c := m[mac]; c != nil; c = c.nextOfMAC {
		if c.only6() {
			return c
		}
	}
	return nil
}

// hasHost reports whether a MAC address has a client without PPPoE. The table's mu must be held.
func (m macs) hasHost(mac datapath.MAC) bool {
	for c := m[mac]; c != nil; c = c.nextOfMAC {
		if c.extraOrZero().pppoe.Session == 0 {
			return true
		}
	}
	return false
}

// count returns how many clients have a MAC address, at most most. The table's mu must be held.
func (m macs) count(mac datapath.MAC, most int) (n int) {
	for c := m[mac]; c != nil && n < most; c = c.nextOfMAC {
		n++
	}
	return n
}
