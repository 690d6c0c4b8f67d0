package dut

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// combined is a device on a router that also does something else, such as masquerade:
// the start command of the device's table sets that up before the device starts.
type combined struct {
	Counted
	rest *Custom
}

var _ Counted = (*combined)(nil)

// newCombined puts a device on a router with what its table starts beside it.
func newCombined(name string, d Counted, spec experiment.CustomDUT) *combined {
	return &combined{Counted: d, rest: NewCustom(name, spec)}
}

// Start implements DUT.
func (c *combined) Start(ctx context.Context, env Env) error {
	if err := c.rest.Start(ctx, env); err != nil {
		return err
	}
	return c.Counted.Start(ctx, env)
}

// Stop implements DUT. The device stops first.
func (c *combined) Stop(ctx context.Context, env Env) error {
	return errors.Join(c.Counted.Stop(ctx, env), c.rest.Stop(ctx, env))
}

// Traits are the device's, with the programs of both.
func (c *combined) Traits() Traits {
	t := c.Counted.Traits()
	t.Needs = slices.Concat(t.Needs, c.rest.needs())
	if c.rest.spec.Description != "" {
		t.About = fmt.Sprintf("%s (%s, and its table's start beside it)", c.rest.spec.Description, c.rest.spec.Like)
	}
	return t
}
