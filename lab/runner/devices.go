package runner

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/result"
)

// checkDevices removes devices that cannot run here from the plan.
func (s *Session) checkDevices(ctx context.Context) (out Outcome, err error) {
	skip := map[string]bool{}
	for _, name := range s.devices() {
		checked, err := s.deviceHere(ctx, name)
		if err != nil {
			return out, err
		}
		if checked.Here {
			continue
		}
		skip[name] = true
		reason := checked.Reason
		if checked.Kernel != "" {
			reason += "; runs with --kernel " + checked.Kernel + ": " + dut.Command(checked.Kernel, s.cfg.Begin, name)
		}
		out.Skipped = append(out.Skipped, result.Skip{DUT: name, Reason: reason})
		s.Notice("skipped: %s: %s", name, reason)
	}
	s.plan = without(s.plan, skip)
	out.Skipped = append(out.Skipped, s.leaveOutFamilies()...)
	s.reopen()
	estimate := s.budget
	if s.cfg.Blocks == nil {
		estimate = s.Experiment.WithDevices(func(dut string) bool { return !skip[dut] }).EstimatedDuration()
	}
	s.clock = &clock{time.Now(), estimate, s.share(), s.share()}
	if len(skip) > 0 && !slices.ContainsFunc(s.plan, func(b experiment.Block) bool { return !b.AA && !b.Control }) {
		return out, ErrNothingRan
	}
	return out, nil
}

// devices returns the experiment's devices that have blocks in the plan.
func (s *Session) devices() []string {
	if s.cfg.Blocks == nil {
		return s.Experiment.DUTs
	}
	planned := map[string]bool{}
	for _, b := range s.plan {
		for _, c := range b.Cells {
			planned[c.Text(result.DUT)] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(s.Experiment.DUTs), func(dut string) bool { return !planned[dut] })
}

// unfit says why a device does not fit the experiment.
func (s *Session) unfit(device string, t dut.Traits) (err error) {
	if s.cfg.Measure.Fits != nil {
		err = s.cfg.Measure.Fits(s.Experiment, device, t)
	}
	return cmp.Or(err, fits(s.Experiment, device, t))
}

// linkNeeds lists the kernel features for a link between two gateways.
func linkNeeds(l experiment.Link) (needs []dut.Need) {
	if slices.ContainsFunc(l.Mbps, func(mbps float64) bool { return mbps > 0 }) {
		needs = append(needs, dut.Need{Program: "tc", Package: "iproute2", Feature: machine.TokenBucket, Why: "link.mbps"})
	}
	if l.Impaired() {
		needs = append(needs,
			dut.Need{Program: "tc", Package: "iproute2", Feature: machine.Netem, Why: "link.delay and link.loss_pct"})
	}
	return needs
}

// without returns a plan without the cells of some devices. It also leaves out blocks that have no cells left, and
// clean routers that no remaining device needs.
func without(plan []experiment.Block, skip map[string]bool) (kept []experiment.Block) {
	for _, b := range plan {
		if len(b.For) > 0 && !slices.ContainsFunc(b.For, func(name string) bool { return !skip[name] }) {
			continue
		}
		b.Cells = slices.DeleteFunc(slices.Clone(b.Cells), func(c result.Cell) bool { return skip[c.Text(result.DUT)] })
		if len(b.Cells) == 0 {
			continue
		}
		if skip[b.DUT()] { // the block has cells of several devices
			b.Cell = b.Cell.With(result.DUT, b.Cells[0].Text(result.DUT))
		}
		kept = append(kept, b)
	}
	return kept
}
