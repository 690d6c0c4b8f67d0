// The tests that every data path must pass (package datapathtest), run with each mode of this one (paths).

package nfqueue

import (
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// paths returns the two modes, each as a data path for the tests of package datapathtest. unheld: as on kernels where
// any program may flush the tables.
func paths(unheld bool) (all []datapathtest.Path) {
	for name, fast := range map[string]bool{"studied": false, "fast": true} {
		if unheld {
			name = "unheld " + name
		}
		promises := datapathtest.Promises{SharesWAN: true, Netfilter: true, JudgesMasqueraded: true, DHCPSocket: true,
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

// TestSuite runs the tests that every data path must pass.
func TestSuite(t *testing.T) {
	for _, p := range paths(false) {
		t.Run(p.Name, func(t *testing.T) { datapathtest.Run(t, p) })
	}
}
