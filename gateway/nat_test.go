package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/nat"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestDetachTranslation: a running daemon, which holds its table of address translation, lets go of it after a forced
// detach; a successor without [nat] removes what a former one left; and detach leaves nothing.
func TestDetachTranslation(t *testing.T) {
	network(t)
	table := nat.Table("lan0")
	translating := func() daemon {
		cfg := configured(t, t.TempDir(), onEBPF)
		cfg.NAT = config.NAT{Masquerade: true, Hairpin: true}
		return serve(t, cfg)
	}
	must(t, Detach(configured(t, t.TempDir(), onEBPF), true)) // what another test's gateway left
	before := sh(t, "nft list ruleset")
	d := translating()
	if !nat.LeftInKernel(table) {
		t.Fatal("nothing translates")
	}
	must(t, Detach(d.cfg, true))
	if nat.LeftInKernel(table) {
		t.Error("after a forced detach something translates")
	}
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	netnstest.Await(t, "the status of a daemon that was detached", func() error {
		if st, err := c.Status(t.Context()); err != nil || st.NAT != "detached" {
			return fmt.Errorf("NAT %q, %v", st.NAT, err)
		}
		return nil
	})
	sh(t, "nft add table inet other; nft delete table inet other") // has it look
	must(t, d.stop())
	if LeftInKernel(d.cfg) {
		t.Error("something is left")
	}

	d = translating()
	must(t, d.stop())
	if !nat.LeftInKernel(table) || !LeftInKernel(d.cfg) {
		t.Error("nothing is left for connections to go on")
	}
	plain := start(t, t.TempDir())
	if nat.LeftInKernel(table) {
		t.Error("without [nat] something translates")
	}
	must(t, plain.stop())
	d = translating()
	must(t, d.stop())
	must(t, Detach(d.cfg, false))
	if after := sh(t, "nft list ruleset"); after != before || strings.Contains(after, table) {
		t.Errorf("before:\n%s\nafter detach:\n%s", before, after)
	}
}
