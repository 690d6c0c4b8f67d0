package gateway

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
)

// pairTranslations has the gateways of a pair translate to addresses that stay with a machine, and to the one that
// moves.
func pairTranslations(t *testing.T, cfg config.Config) {
	cfg.Pair = config.Pair{Site: "campus", By: config.ByKeepalived, WANAddress: netip.MustParsePrefix("192.0.2.7/24")}
	cfg.NAT = config.NAT{Masquerade: true}
	expectFindings(t, cfg, Warning, "each gateway of the pair has its own first address at wan0")
	for addr, ends := range map[string]bool{"192.0.2.1": true, "192.0.2.7": false} {
		a := netip.MustParseAddr(addr)
		cfg.NAT = config.NAT{Source: []config.Range{{First: a, Last: a}}}
		all := Check(&cfg)
		if got := strings.Contains(fmt.Sprint(all), "clients' connections end when the other gateway"); got != ends {
			t.Errorf("translation to %s: %v", addr, all)
		}
		if err := Refused(all); err != nil {
			t.Errorf("translation to %s: %v", addr, err)
		}
	}
}
