package dut

import (
	"context"
	"errors"
	"slices"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// behindFlowtable is gatewayd, data path "ebpf", on a router whose kernel masquerades and keeps connections in a
// software flowtable: the peer of gatewayd's own cache of flows. gatewayd judges and counts at tc, ahead of the
// flowtable for what comes from clients and behind it for what goes to them, and caches no flow that is in one.
type behindFlowtable struct {
	*Gateway
	router Forwarder
}

var (
	_ Counted = behindFlowtable{}
	_ Proven  = behindFlowtable{}
)

func newBehindFlowtable(clients int) behindFlowtable {
	return behindFlowtable{NewGateway(experiment.Variant{}, clients), Forwarder{Flowtable: true, Masquerade: true}}
}

// Traits are gatewayd's, with the needs of the rules.
func (b behindFlowtable) Traits() Traits {
	t, rules := b.Gateway.Traits(), b.router.Traits()
	t.Needs = slices.Concat(t.Needs, rules.Needs)
	t.Gathers = rules.Gathers
	t.About += ", on a " + rules.About
	return t
}

// Start sets the rules before gatewayd starts.
func (b behindFlowtable) Start(ctx context.Context, env Env) error {
	if err := b.router.Start(ctx, env); err != nil {
		return err
	}
	return b.Gateway.Start(ctx, env)
}

// Unlike asks where the connections are.
func (b behindFlowtable) Unlike(ctx context.Context, env Env) (string, error) {
	return b.router.Unlike(ctx, env)
}

// Stop stops gatewayd first.
func (b behindFlowtable) Stop(ctx context.Context, env Env) error {
	return errors.Join(b.Gateway.Stop(ctx, env), b.router.Stop(ctx, env))
}
