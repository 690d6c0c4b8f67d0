package dut

import (
	"context"
	"errors"
	"slices"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// flowtableGateway is gatewayd (data path "ebpf") on a router whose kernel masquerades and forwards established
// connections through a software flowtable of nftables. It is compared with gatewayd's own flow cache, which does the
// same work in eBPF.
//
// gatewayd's programs at tc admit and count packets in both directions. Packets from clients pass them before the
// flowtable, packets to clients after it. gatewayd does not cache flows that are in a flowtable.
type flowtableGateway struct {
	*Gateway
	router Forwarder // the kernel's part: masquerade and flowtable
}

var (
	_ Counted  = flowtableGateway{}
	_ Provable = flowtableGateway{}
)

func newFlowtableGateway(clients int) flowtableGateway {
	return flowtableGateway{NewGateway(experiment.Variant{}, clients), Forwarder{Flowtable: true, Masquerade: true}}
}

// Traits are gatewayd's, but for what the flowtable decides: whether packets are joined on their way, and which IP
// versions are forwarded. What it needs is added.
func (b flowtableGateway) Traits() Traits {
	t, rules := b.Gateway.Traits(), b.router.Traits()
	t.Needs = slices.Concat(t.Needs, rules.Needs)
	t.Aggregates = rules.Aggregates
	t.Families, t.NoIPv6, t.LeasesIPv4 = rules.Families, rules.NoIPv6, rules.LeasesIPv4
	t.About += ", on a " + rules.About
	return t
}

// Start sets the nftables rules, then starts gatewayd.
func (b flowtableGateway) Start(ctx context.Context, env Env) error {
	if err := b.router.Start(ctx, env); err != nil {
		return err
	}
	return b.Gateway.Start(ctx, env)
}

// FailedProof checks that the connections are masqueraded and in the flowtable.
func (b flowtableGateway) FailedProof(ctx context.Context, env Env) (string, error) {
	return b.router.FailedProof(ctx, env)
}

// Stop stops gatewayd, then removes the nftables rules.
func (b flowtableGateway) Stop(ctx context.Context, env Env) error {
	return errors.Join(b.Gateway.Stop(ctx, env), b.router.Stop(ctx, env))
}
