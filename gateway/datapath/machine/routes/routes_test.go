package routes

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// TestCheckIsCheap: if no route was removed, Check allocates as much memory for 5,000 networks behind a client as for
// one.
func TestCheckIsCheap(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil || lo.Flags&net.FlagUp == 0 {
		t.Skipf("there is no loopback interface that is up: %v", err)
	}
	behind := &datapath.ClientNetworks[netip.Addr]{}
	table := &Table{index: lo.Index, owners: behind}
	cost := func() float64 {
		return testing.AllocsPerRun(3, func() {
			if err := table.Check(); err != nil {
				t.Error(err)
			}
		})
	}
	enter := func(first, last int) {
		for i := first; i < last; i++ {
			network := netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(i >> 8), byte(i), 0}), 24)
			if _, err := behind.Add(netip.AddrFrom4([4]byte{10, 1, 0, 5}), []netip.Prefix{network}); err != nil {
				t.Fatal(err)
			}
		}
	}
	enter(1, 2)
	costOfFew := cost()
	enter(2, 5000)
	if costOfMany := cost(); costOfMany > costOfFew+8 {
		t.Errorf("Check allocates %v times with one network, and %v times with 5,000", costOfFew, costOfMany)
	}
}
