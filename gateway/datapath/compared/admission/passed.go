package admission

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// AddPassed adds bytes and packets to an address's counters: those that the data path let pass without a judge.
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
