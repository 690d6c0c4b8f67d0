package nfqueue

import (
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// paths are the ways packets are judged. unheld: as on kernels whose tables any program
// may flush.
func paths(unheld bool) (all []datapathtest.Path) {
	for name, fast := range map[string]bool{"studied": false, "fast": true} {
		if unheld {
			name = "unheld " + name
		}
		promises := datapathtest.Promises{SharesWAN: true, Netfilter: true, TellsOwn: true, DHCPSocket: true,
			Neighbours: true, Newcomers: true, Greets: true, Reassembles: !fast, Restores: true, SeesBridged: true,
			Burst: admission.Burst}
		if fast {
			promises.Lingers, promises.Joins, promises.LeavesSums = gateLife, true, true
		}
		all = append(all, datapathtest.Path{
			Name: name,
			Open: func(setup datapath.Setup) (datapath.Running, error) {
				setup.Fast = fast
				d, err := open(config{setup, unheld})
				return d.running(), err
			},
			Remove:   func(setup datapath.Setup) error { return Clear(setup.LAN()) },
			Promises: promises,
		})
	}
	return all
}

// TestSuite is what every data path must show.
func TestSuite(t *testing.T) {
	for _, p := range paths(false) {
		t.Run(p.Name, func(t *testing.T) { datapathtest.Run(t, p) })
	}
}
