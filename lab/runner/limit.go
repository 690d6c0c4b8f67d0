package runner

import (
	"errors"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/side"
)

// limitOf reports whether a block failed because its device does not take so many clients: the
// device refused some, and in this run it completed a block with fewer. Any other failure is a
// fault. The clean router admits every client, so A/A blocks have no such limit.
func (r *run) limitOf(b experiment.Block, err error) (text string, isLimit bool) {
	var e *side.NotAdmitted
	if b.AA || !errors.As(err, &e) || !e.Own || r.took[b.DUT()] == 0 || r.took[b.DUT()] >= b.Clients() {
		return "", false
	}
	return e.Error(), true
}

// beyond reports whether a block has as many clients as its device broke at.
func (r *run) beyond(b experiment.Block) bool {
	at, broke := r.broke[b.DUT()]
	return broke && !b.AA && b.Clients() >= at
}
