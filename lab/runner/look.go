package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/scratch"
)

// Look builds the lab of an experiment's device as a block does, starts the device, admits the clients, and calls fn.
// fault is the first error before that. Nothing is measured. Look closes the lab when fn has returned. It needs root,
// and no run may be measuring.
func Look(ctx context.Context, e *experiment.Experiment, device string, fn func(lab *bench.Bench, fault error) error) (
	err error) {
	plan := e.Plan()
	i := slices.IndexFunc(plan, func(b experiment.Block) bool { return !b.AA && b.DUT() == device })
	if i < 0 {
		return fmt.Errorf("%s measures no device %q", e.Name, device)
	}
	unlock, err := lockForShell(e)
	if err != nil {
		return err
	}
	defer unlock()
	logs, done, err := scratch.New(scratch.Shell)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	local, err := backend.Local(ctx, backend.Options{Run: "shell", LogDir: logs})
	if err != nil {
		return err
	}
	machine, err := local.Machine(ctx)
	if err != nil {
		return err
	}
	defer machine.Stop()
	demand := DemandOf(e)
	_, lower := raiseFiles(demand)
	defer lower()
	if _, err := checkMachine(ctx, machine, e, demand); err != nil {
		return err
	}
	d, err := dut.New(device, plan[i].Clients(), e)
	if err == nil {
		err = dut.Check(ctx, machine, device, d)
	}
	if err != nil {
		return err
	}
	s := &Session{Experiment: e, Machine: machine, Description: local.Describe(), backend: local}
	labs := s.Labs(plan[i])
	labs.Slowed = nil
	lab, fault, err := labs.OpenToInspect(ctx)
	if err != nil {
		return err
	}
	if err := fn(lab, fault); err != nil || fault != nil { // without admitted clients there is nobody to log out
		return errors.Join(err, lab.StopDevice(context.WithoutCancel(ctx)), lab.Close())
	}
	var leaving error
	err = bench.End(ctx, nil, func(err error) { leaving = err }, lab)
	return errors.Join(err, leaving)
}

// lockForShell is LockMachine for a shell, which only enters hosts of this machine.
func lockForShell(e *experiment.Experiment) (unlock func(), err error) {
	if e.Backend.Remote() {
		return nil, e.Blame("backend.kind",
			"a shell enters hosts of this machine, and these are on others: leave [backend] out")
	}
	return LockMachine("of a shell")
}
