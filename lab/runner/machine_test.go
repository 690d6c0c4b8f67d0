package runner

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

func TestFits(t *testing.T) {
	own := netip.MustParsePrefix("10.1.0.0/24")
	for name, c := range map[string]struct {
		kind   string
		traits dut.Traits
		want   string // part of the reason; empty: it fits
	}{
		"static clients, no leases":     {client.KindVeth, dut.Traits{}, ""},
		"static clients, leases":        {client.KindVeth, dut.Traits{DHCP: true}, "use kind macvlan"},
		"own network without leases":    {client.KindMacvlan, dut.Traits{LAN: own}, "dhcp = true"},
		"own network with leases":       {client.KindMacvlan, dut.Traits{LAN: own, DHCP: true}, ""},
		"study's network, lab's leases": {client.KindMacvlan, dut.Traits{}, ""},
	} {
		err := fits(&experiment.Experiment{Client: experiment.Client{Kind: c.kind}}, c.traits)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, dut.ErrNotSupported) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
