package admission

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Owner returns the MAC address of the client that has an address; zeros: no client.
func (t *Table) Owner(addr netip.Addr) datapath.MAC {
	e, _, err := t.at(datapath.IDOf(addr))
	if err != nil {
		return datapath.MAC{}
	}
	word, _ := e.state()
	return macIn(word)
}
