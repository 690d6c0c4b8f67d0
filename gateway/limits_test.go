package gateway

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/ebpf"
	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue"
	"github.com/gateweigh/gateweigh/gateway/datapath/tun"
)

// TestLargestLAN: the configuration refuses exactly the LANs that its data path refuses.
func TestLargestLAN(t *testing.T) {
	const nowhere = "none0"
	own := netip.MustParseAddr("10.0.0.1")
	for kind, open := range map[string]func([]datapath.Network) error{
		config.EBPF: func(lan []datapath.Network) error {
			_, err := ebpf.Open(ebpf.Config{Networks: lan, WAN: nowhere})
			return err
		},
		config.TUN: func(lan []datapath.Network) error {
			_, err := tun.Open(tun.Config{Networks: lan, WAN: nowhere, Device: nowhere})
			return err
		},
		config.NFQueue: func(lan []datapath.Network) error {
			_, err := nfqueue.Open(nfqueue.Config{Networks: lan, WAN: nowhere})
			return err
		},
	} {
		two := []datapath.Network{{Interface: nowhere, Address: netip.PrefixFrom(own, 24)}, {Name: "guests"}}
		if err := open(two); err == nil || !strings.Contains(err.Error(), "one network, not 2: none0, guests") {
			t.Errorf("%s: two networks: %v", kind, err)
		}
		for bits := 10; bits <= 18; bits++ {
			lan := netip.PrefixFrom(own, bits)
			_, file := config.Parse("x.toml", fmt.Appendf(nil, `
lan = { interface = "lan0", address = "%s" }
wan.interface = "wan0"
dns.upstreams = ["192.0.2.2"]
auth.methods = ["click-through"]
datapath.kind = "%s"
`, lan, kind))
			opened := open([]datapath.Network{{Interface: nowhere, Address: lan}})
			if opened == nil {
				t.Fatalf("%s: opened between interfaces that are not there", kind)
			}
			if refused := strings.Contains(opened.Error(), "or longer"); refused != (file != nil) {
				t.Errorf("%s, %s: the file says %v, the data path %v", kind, lan, file, opened)
			}
		}
	}
}
