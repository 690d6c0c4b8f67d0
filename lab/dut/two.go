package dut

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

// Two is two gateways of a kind, each with a LAN of its own. It takes the topology "roaming".
type Two struct {
	portalDUT           // at the first LAN
	second    portalDUT // at the second one
	store     bool      // they share a Redis
}

// portalDUT is a portal of which there can be two. They share the first one's RADIUS server.
type portalDUT interface {
	Counted
	Accounted
	base() *portal
}

func (p *portal) base() *portal { return p }

// Doubled is two gateways, each with a LAN of its own.
type Doubled interface {
	Accounted
	// SecondAdmission is how clients log in at the second gateway. It is valid once Start has returned.
	SecondAdmission() client.Admission
}

var _ Doubled = (*Two)(nil)

func newTwo(gateway func() portalDUT) *Two {
	t := &Two{portalDUT: gateway(), second: gateway()}
	t.second.base().radius = t.base()
	return t
}

// newRoaming makes two gatewayd between which devices roam.
func newRoaming(clients int) *Two {
	t := newTwo(func() portalDUT { return NewGateway(experiment.Variant{}, clients) })
	t.store = true
	return t
}

// Traits are those of one gateway.
func (t *Two) Traits() Traits {
	one := t.portalDUT.Traits()
	one.Families, one.LeasesIPv4, one.NoIPv6 = nil, false, "the lab's two gateways have IPv4 alone"
	one.About = "two of: " + one.About
	if t.store {
		one.Needs = append(slices.Clone(one.Needs), storeNeed)
		one.About += "; devices roam between them by a Redis"
	}
	return one
}

// SecondAdmission implements Doubled.
func (t *Two) SecondAdmission() client.Admission { return t.second.Traits().Admission }

// roamsBy is what gateways know a device by.
const roamsBy = "mac"

// Start starts the store, if there is one, and both gateways.
func (t *Two) Start(ctx context.Context, env Env) error {
	if !env.LAN2.IsValid() {
		return errors.New(`two gateways with a LAN each need topology = "roaming"`)
	}
	t.base().NAS = netip.PrefixFrom(env.RouterWAN, wanBits).Masked().String()
	if t.store {
		if err := startStore(ctx, env, storeOf(env)); err != nil {
			return err
		}
	}
	for i, d := range []portalDUT{t.portalDUT, t.second} {
		if g, ok := d.(*Gateway); ok && t.store {
			g.shared = &sharedLines{Store: netip.AddrPortFrom(env.Store, storePort).String(),
				Name: fmt.Sprintf("gw%d", i+1), Roaming: roamsBy}
		}
	}
	if err := t.portalDUT.Start(ctx, env); err != nil {
		return fmt.Errorf("starting the first gateway: %w", err)
	}
	if err := t.second.Start(ctx, env.Second()); err != nil {
		return fmt.Errorf("starting the second gateway: %w", err)
	}
	return nil
}

// Stop stops both gateways, the second one first, and the store.
func (t *Two) Stop(ctx context.Context, env Env) error {
	if !env.LAN2.IsValid() {
		return nil
	}
	err := errors.Join(t.second.Stop(ctx, env.Second()), t.portalDUT.Stop(ctx, env))
	if t.store {
		err = errors.Join(err, storeOf(env).kill(ctx))
	}
	return err
}

// Second is the environment of a second gateway with a LAN of its own: it has all that the first one has, elsewhere.
func (e Env) Second() Env {
	second := e.Host("router2")
	e.Hosts, e.Ports = maps.Clone(e.Hosts), maps.Clone(e.Ports)
	e.Hosts["router"], e.On = second, "router2"
	e.Ports["lan"], e.Ports["wan"] = e.Port("lan2"), e.Port("wan2")
	e.Capture = e.Port("wan2")
	e.LAN, e.Gateway, e.RouterWAN = e.LAN2, e.Gateway2, e.RouterWAN2
	if on, ok := second.(installer); ok {
		e.Install = on.Install
	}
	return e
}
