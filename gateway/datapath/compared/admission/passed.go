package admission

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// AddPassed adds the bytes and packets that passed without being judged to an address's counters.
func (t *Table) AddPassed(addr netip.Addr, passed datapath.Counters) error {
	e, err := t.entryOf(datapath.IDOf(addr))
	if err != nil {
		return err
	}
	e.upBytes.Add(passed.UpBytes)
	e.upPackets.Add(passed.UpPackets)
	e.downBytes.Add(passed.DownBytes)
	e.downPackets.Add(passed.DownPackets)
	return nil
}
