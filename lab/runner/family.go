package runner

import (
	"context"
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// familiesWithout returns the experiment's families that a device cannot forward.
func familiesWithout(e *experiment.Experiment, t dut.Traits) (list []client.Family) {
	able := t.Families
	if able == nil {
		able = []client.Family{client.IPv4}
	}
	for _, f := range e.AllFamilies() {
		if !f.In(able) {
			list = append(list, f)
		}
	}
	return list
}

// checkIPv6 refuses an experiment with IPv6 on a machine whose kernel has none. The error names the key.
func checkIPv6(ctx context.Context, m dut.Machine, e *experiment.Experiment) error {
	if !e.HasIPv6() {
		return nil
	}
	need := dut.Need{Program: "ip", Package: "iproute2", Feature: machine.IPv6, Why: "family"}
	found, err := m.Find(ctx, machine.Query{Needs: []dut.Need{need}, Features: true})
	switch {
	case err != nil:
		return fmt.Errorf("looking for IPv6: %w", err)
	case found[0].FeatureError != "":
		return e.Blame("family", fmt.Sprintf("the kernel lacks IPv6 (%s): it needs %s", found[0].FeatureError,
			machine.IPv6.Advice()))
	}
	return nil
}

// noFamily says why a device cannot forward a family.
func noFamily(t dut.Traits) string {
	if t.Families != nil && !slices.Contains(t.Families, client.IPv4) {
		return "it forwards IPv6 alone"
	}
	if t.NoIPv6 != "" {
		return "it forwards IPv4 alone: " + t.NoIPv6
	}
	return "it forwards IPv4 alone"
}

// widestFamily returns a family whose labs have all that those of the experiment's families have.
func widestFamily(e *experiment.Experiment) client.Family {
	if e.HasIPv6() {
		return client.DualStack
	}
	return client.IPv4
}

// withoutFamilies returns a plan without the cells of a device that have one of the families.
func withoutFamilies(plan []experiment.Block, device string, families []client.Family) (kept []experiment.Block) {
	for _, b := range plan {
		b.Cells = slices.DeleteFunc(slices.Clone(b.Cells), func(c result.Cell) bool {
			return c.Text(result.DUT) == device && slices.Contains(families, experiment.FamilyOf(c))
		})
		if len(b.Cells) == 0 {
			continue
		}
		if b.DUT() == device { // the block may have cells of several devices
			b.Cell = b.Cell.With(result.DUT, b.Cells[0].Text(result.DUT))
		}
		kept = append(kept, b)
	}
	return kept
}

// familyGap returns the families that a device cannot forward, and why, where it can forward others.
func familyGap(e *experiment.Experiment, name string) (unable []client.Family, reason string) {
	device, err := dut.New(name, 1, e)
	if err != nil { // deviceHere has reported it
		return nil, ""
	}
	unable = familiesWithout(e, device.Traits())
	if len(unable) == 0 || len(unable) == len(e.AllFamilies()) {
		return nil, ""
	}
	return unable, fmt.Sprintf("not with family = %s: %s", words.Listed(texts(unable)), noFamily(device.Traits()))
}

// leaveOutFamilies removes from the plan the cells of devices that cannot forward their family, and returns the
// reasons.
func (s *Session) leaveOutFamilies() (skipped []result.Skip) {
	for _, name := range s.devices() {
		unable, reason := familyGap(s.Experiment, name)
		if len(unable) == 0 {
			continue
		}
		s.plan = withoutFamilies(s.plan, name, unable)
		skipped = append(skipped, result.Skip{DUT: name, Reason: reason})
		s.Notice("left out: %s %s", name, reason)
	}
	return skipped
}

// texts returns families as a file has them.
func texts(families []client.Family) (list []string) {
	for _, f := range families {
		list = append(list, string(f))
	}
	return list
}
