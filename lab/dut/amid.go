package dut

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// Amid is a device on a router that does more than the device has it do, such as
// masquerade: a table's start puts that there, before the device.
type Amid struct {
	Counted
	rest *Custom
}

var _ Counted = (*Amid)(nil)

// NewAmid puts a device amid what the table says beside it: its start, stop and files.
func NewAmid(name string, d Counted, spec experiment.CustomDUT) *Amid {
	return &Amid{Counted: d, rest: NewCustom(name, spec)}
}

// Check looks for what either needs.
func (a *Amid) Check(ctx context.Context) error {
	return errors.Join(a.Counted.Check(ctx), a.rest.Check(ctx))
}

// Start implements DUT.
func (a *Amid) Start(ctx context.Context, env Env) error {
	if err := a.rest.Start(ctx, env); err != nil {
		return err
	}
	return a.Counted.Start(ctx, env)
}

// Stop implements DUT. The device goes first.
func (a *Amid) Stop(ctx context.Context, env Env) error {
	return errors.Join(a.Counted.Stop(ctx, env), a.rest.Stop(ctx, env))
}

// Traits are the device's.
func (a *Amid) Traits() Traits {
	t := a.Counted.Traits()
	t.Needs = slices.Concat(t.Needs, a.rest.needs())
	if a.rest.spec.Description != "" {
		t.About = fmt.Sprintf("%s (%s, and its table's start beside it)", a.rest.spec.Description, a.rest.spec.Like)
	}
	return t
}
