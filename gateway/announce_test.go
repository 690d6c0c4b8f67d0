package gateway

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/admission"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestNoEventIsForgotten: an event that comes just as the time to wait for one is over is sent.
func TestNoEventIsForgotten(t *testing.T) {
	cfg, err := config.Parse("gatewayd.toml", []byte("lan.interface = \"lan0\"\nlan.address = \"10.1.0.1/24\"\nwan.interface = \"wan0\"\ndns.upstreams = [\"192.0.2.2\"]\nauth.methods = [\"click-through\"]\n"))
	must(t, err)
	dp, err := admission.New(admission.Config{Prefix: cfg.LAN.Network(), Gateway: cfg.LAN.Address.Addr()})
	must(t, err)
	table, err := session.Open(filepath.Join(t.TempDir(), "s.db"), dp, slog.New(slog.DiscardHandler))
	must(t, err)
	defer table.Close()
	g := &gateway{cfg: cfg, table: table}
	k := session.Key{MAC: datapath.MAC{2, 0, 0, 0, 0, 1}, Addr: cfg.LAN.Address.Addr().Next()}
	must(t, table.Lease(k, "phone", time.Now().Add(time.Hour)))
	_, err = table.Admit(k.Addr, session.Login{User: "ann", For: k})
	must(t, err)
	for table.Pending() == 0 {
		time.Sleep(time.Millisecond)
	}
	over, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	if alive, err := g.probe(over, false); err != nil || !alive || table.Pending() > 0 {
		t.Errorf("%v, %v, %d events wait", alive, err, table.Pending())
	}
}
