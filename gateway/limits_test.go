package gateway

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
)

// TestLargestLAN: the configuration refuses exactly the LANs that its data path refuses.
func TestLargestLAN(t *testing.T) {
	const nowhere = "none0"
	ownAddr := netip.MustParseAddr("10.0.0.1")
	for _, kind := range kinds.All {
		if kind.PPPoEOnly { // which takes more of the file than this one has
			continue
		}
		open := func(all ...datapath.Network) error {
			_, err := kind.Open(datapath.Setup{Networks: all, WAN: nowhere, Device: nowhere})
			return err
		}
		two := []datapath.Network{{Interface: nowhere, Address: netip.PrefixFrom(ownAddr, 24)}, {Name: "guests"}}
		if err := open(two...); err == nil || !strings.Contains(err.Error(), "one network, not 2: none0, guests") {
			t.Errorf("%s: two networks: %v", kind.Name, err)
		}
		for bits := 10; bits <= 18; bits++ {
			lan := netip.PrefixFrom(ownAddr, bits)
			_, file := config.Parse("x.toml", fmt.Appendf(nil, `
lan = { interface = "lan0", address = "%s" }
wan.interface = "wan0"
dns.upstreams = ["192.0.2.2"]
auth.methods = ["click-through"]
datapath.kind = "%s"
`, lan, kind.Name))
			opened := open(datapath.Network{Interface: nowhere, Address: lan})
			if opened == nil {
				t.Fatalf("%s: opened between interfaces that are not there", kind.Name)
			}
			if refused := strings.Contains(opened.Error(), "or longer"); refused != (file != nil) {
				t.Errorf("%s, %s: the file says %v, the data path %v", kind.Name, lan, file, opened)
			}
		}
	}
}
