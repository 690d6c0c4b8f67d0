package session

import "github.com/gateweigh/gateweigh/gateway/datapath"

// macs has the clients by their MAC addresses, as lists, which are short: so that a login which replaces others costs
// the same however many clients there are.
type macs map[datapath.MAC]*client

// put moves a client to the list of a MAC address; of the zero one there is none. The table's mu must be held.
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

// count returns how many clients have a MAC address, at most most. The table's mu must be held.
func (m macs) count(mac datapath.MAC, most int) (n int) {
	for c := m[mac]; c != nil && n < most; c = c.nextOfMAC {
		n++
	}
	return n
}
