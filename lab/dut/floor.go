package dut

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/floor"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// Floor is the least that a router at tc can do: each packet is redirected with the addresses of one look-up, and nothing
// is decided. Translate gives clients other addresses towards the server, by a fixed rule: NAT's least.
type Floor struct{ Translate bool }

var _ DUT = Floor{}

// Traits: nothing is admitted, and the lab leases the addresses.
func (f Floor) Traits() Traits {
	about := "the least at tc: redirects with the addresses of one look-up"
	if f.Translate {
		about += ", and a fixed translation"
	}
	return Traits{About: about, Needs: []Need{{Program: "ip", Package: "iproute2", Feature: machine.BPFAtTC, Why: "programs that redirect"}}}
}

func (Floor) daemon(env Env) daemon { return daemon{host: env.Host("router"), name: "floor"} }

// Start starts the agent's program as a floor.
func (f Floor) Start(ctx context.Context, env Env) error {
	d := f.daemon(env)
	cfg := floor.Config{LAN: env.Port("lan"), WAN: env.Port("wan"), Prefix: env.LAN, Translate: f.Translate}
	if err := d.spawn(ctx, agent.Self, agent.FloorCommand, cfg.Arg()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	said, err := d.until(ctx, func() error {
		if p, err := d.state(ctx); err != nil || !strings.Contains(p.Output, "ready") {
			return errors.New("it is not ready")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, said)
	}
	return nil
}

// Stop ends it; its programs end with it.
func (f Floor) Stop(ctx context.Context, env Env) error { return f.daemon(env).kill(ctx) }
