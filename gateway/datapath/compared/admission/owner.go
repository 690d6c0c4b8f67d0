package admission

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Owner returns the MAC address of the client that has an address; zeros: no client.
func (t *Table) Owner(addr netip.Addr) datapath.MAC {
	e, err := t.entryOf(datapath.IDOf(addr))
	if err != nil {
		return datapath.MAC{}
	}
	word, _ := e.state()
	return macIn(word)
}

// owner returns the position in the LAN of the client to which an address belongs: the address is the client's own or,
// with routed, in a network behind the client. Only addresses outside the LAN are looked up in networks.
func (t *Table) owner(addr uint32) (place uint32, routed, ok bool) {
	if place = addr - t.base; place < uint32(len(t.entries)) {
		return place, false, true
	}
	if t.cfg.Behind == nil {
		return 0, false, false
	}
	client, ok := t.cfg.Behind.Holder(address(addr))
	if !ok {
		return 0, false, false
	}
	return addrNumber(client) - t.base, true, true
}
