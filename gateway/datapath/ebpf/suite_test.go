package ebpf

import (
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// paths are the ways these programs are attached and forward.
func paths() (all []datapathtest.Path) {
	for _, c := range []struct {
		name    string
		forward Forward
		clsact  bool
	}{
		{"auto", ForwardAuto, false}, {"redirect", ForwardRedirect, false}, {"stack", ForwardStack, false}, {"clsact", ForwardAuto, true},
	} {
		config := func(in datapathtest.Config) Config {
			return Config{
				LAN: in.LAN, WAN: in.WAN, Prefix: in.Prefix, Gateway: in.Gateway, PortalPorts: in.PortalPorts, Forward: c.forward,
				PinDir: in.PinDir, Newcomer: in.Newcomer, Log: in.Log, clsact: c.clsact,
			}
		}
		all = append(all, datapathtest.Path{
			Name:   c.name,
			Open:   func(in datapathtest.Config) (datapathtest.Datapath, error) { return Open(config(in)) },
			Detach: func(in datapathtest.Config) error { return Detach(config(in)) },
			Promises: datapathtest.Promises{
				Unattended: true, Netfilter: c.forward != ForwardRedirect, DHCPSocket: true, Newcomers: true, Burst: burst,
			},
		})
	}
	return all
}

// TestSuite is what every data path must show.
func TestSuite(t *testing.T) {
	for _, p := range paths() {
		t.Run(p.Name, func(t *testing.T) { datapathtest.Run(t, p) })
	}
}
