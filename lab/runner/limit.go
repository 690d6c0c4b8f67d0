package runner

import (
	"errors"
	"fmt"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

// notAdmitted says that clients gave up on the way in.
type notAdmitted struct {
	step  string // "lease", "log in"
	own   bool   // it is the device's doing: its leases, its portal
	in    int    // clients that came through
	asked int
	first error // of the first that did not
}

func (e *notAdmitted) Error() string {
	return fmt.Sprintf("%d of %d clients could %s: %v", e.in, e.asked, e.step, e.first)
}

func (e *notAdmitted) Unwrap() error { return e.first }

// gaveUp is the *notAdmitted of outcomes, nil when all came through.
func gaveUp(step string, own bool, outcomes []client.Outcome) error {
	first := client.GaveUp(outcomes)
	if first == nil {
		return nil
	}
	e := &notAdmitted{step: step, own: own, asked: len(outcomes), first: first}
	for _, o := range outcomes {
		if o.Through() {
			e.in++
		}
	}
	return e
}

// limitOf tells a device that does not take so many clients from one that does not
// work: in this run it came through a block with fewer. The clean router lets
// everybody through, and so do its A/A blocks.
func (r *run) limitOf(b experiment.Block, err error) (text string, isLimit bool) {
	var e *notAdmitted
	if b.AA || !errors.As(err, &e) || !e.own || r.took[b.DUT] == 0 || r.took[b.DUT] >= b.Clients {
		return "", false
	}
	return e.Error(), true
}

// beyond reports whether a block has as many clients as its device broke at.
func (r *run) beyond(b experiment.Block) bool {
	at, broke := r.broke[b.DUT]
	return broke && !b.AA && b.Clients >= at
}
