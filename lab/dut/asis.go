package dut

import "context"

// AsIs is a router without an agent: whatever forwards between the ports of clients and server. Nothing is installed
// on it, and nothing of it is known.
type AsIs struct{}

var _ DUT = AsIs{}

// Start has nothing to do.
func (AsIs) Start(context.Context, Env) error { return nil }

// Stop has nothing to undo.
func (AsIs) Stop(context.Context, Env) error { return nil }

// Traits are those of a router that clients need not log in at.
func (AsIs) Traits() Traits { return Traits{About: "the router as it is, without an agent"} }
