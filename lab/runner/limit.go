package runner

import (
	"errors"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/side"
)

// limitOf tells a device that does not take so many clients from one that does not
// work: in this run it came through a block with fewer. The clean router lets
// everybody through, and so do its A/A blocks.
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
