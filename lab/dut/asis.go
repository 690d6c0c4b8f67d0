package dut

import "context"

// AsIs is the user's own router, which has no agent of the lab. It forwards between the ports of clients and server.
// The lab installs nothing on it and reads nothing from it.
type AsIs struct{}

var _ DUT = AsIs{}

// Start has nothing to do.
func (AsIs) Start(context.Context, Env) error { return nil }

// Stop has nothing to undo.
func (AsIs) Stop(context.Context, Env) error { return nil }

// Traits say that clients need no admission.
func (AsIs) Traits() Traits {
	return Traits{About: "the router as it is, without an agent", Families: bothFamilies}
}
