package config

import (
	"fmt"
	"net/netip"
)

// Numbered reports whether a client gets a range of ports of its own with nat.ports_per_client; true without that key.
func (c *Config) Numbered(addr netip.Addr) bool {
	_, ok := c.clientNumber(addr)
	return ok || c.NAT.PortsPerClient == 0
}

// clientNumber returns a client's place among Clients, from 0 on.
func (c *Config) clientNumber(addr netip.Addr) (i int, ok bool) {
	for _, r := range c.Clients() {
		if r.Contains(addr) {
			return i + Range{r.First, addr}.Size() - 1, true
		}
		i += r.Size()
	}
	return 0, false
}

// numbered returns the client with a number; invalid: there is none.
func (c *Config) numbered(i int) netip.Addr {
	for _, r := range c.Clients() {
		if i < r.Size() {
			return r.At(i)
		}
		i -= r.Size()
	}
	return netip.Addr{}
}

// named returns another client that the ports of a forward would name with nat.ports_per_client; invalid: nobody. Ports
// of the forward's own client are forwarded at that client's address alone; others at all outside addresses.
func (k *checker) named(f Forward) (other netip.Addr) {
	each := k.NAT.PortsPerClient
	if each == 0 || f.Ports.Last < FirstNATPort || !k.LAN.Address.IsValid() {
		return other
	}
	room := natPorts / each // clients of an outside address
	first, last := (max(int(f.Ports.First), FirstNATPort)-FirstNATPort)/each, (int(f.Ports.Last)-FirstNATPort)/each
	own, ok := k.clientNumber(f.To)
	if ok && f.Ports.First >= FirstNATPort && first == own%room && last == first {
		return other
	}
	for block := first; block <= min(last, room-1); block++ {
		for i := block; i < room*k.sources(); i += room {
			if other = k.numbered(i); !other.IsValid() {
				break
			}
			if other != f.To {
				return other
			}
		}
	}
	return netip.Addr{}
}

// ownPorts is advice: which ports a client has with nat.ports_per_client.
func (k *checker) ownPorts(client netip.Addr) string {
	own, ok := k.clientNumber(client)
	if !ok {
		return ""
	}
	each := k.NAT.PortsPerClient
	first := FirstNATPort + own%(natPorts/each)*each
	return fmt.Sprintf(", or those of %s, %d to %d", client, first, first+each-1)
}
