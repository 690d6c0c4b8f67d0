// Package failover measures what users notice when a gateway fails, or is replaced by another one. Clients that are
// admitted send a packet every 10 ms and get one every 10 ms, and each has a TCP connection. Meanwhile newcomers lease
// and log in, one after the other. Then the fault comes: see dut.Fault. Where the device has a RADIUS server, what that
// was told of sessions is compared with what the clients did. Each fault has a lab of its own.
package failover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// Run returns the functions that measure the blocks of one run.
func (Measure) Run() runner.Measure {
	var noted sync.Once
	return runner.Measure{Fits: fits, Block: func(ctx context.Context, s *runner.Session, b experiment.Block) (
		*result.Block, error) {
		noted.Do(func() { noteRefused(s) })
		return carryOut(ctx, s, b)
	}}
}

// noteRefused notes which faults devices cannot have, and why.
func noteRefused(s *runner.Session) {
	const beginning = "Left out: "
	s.Unnote(beginning)
	for _, name := range s.Experiment.DUTs {
		for _, f := range faults.Value(s.Experiment) {
			if why := refusal(s.Experiment, name, dut.Fault(f)); why != "" {
				s.Note(fmt.Sprintf("%s%s, fault %s: %s.", beginning, name, f, why))
			}
		}
	}
}

// openBlock is an attempt whose lab is open.
type openBlock struct {
	*runner.Session
	experiment.Block
	*bench.Bench
	fault  dut.Fault
	device dut.Failing
}

// carryOut measures one fault. It builds a new lab for every attempt, because a fault leaves nothing as it was.
func carryOut(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	cell := eb.Cells[0]
	return nil, s.MeasureWindow(eb, cell, 0, KindFault, func(a runner.Attempt) (r result.Record, why []string, err error) {
		s.Status("%s: fault %s: building the lab", s.Name(eb), cell.Text(Fault))
		labs := s.Labs(eb)
		labs.Sides[0].Clients = eb.Clients() + newcomers(s.Experiment)
		labs.Prepare = func(d dut.DUT) {
			if kept, ok := d.(dut.Accounted); ok {
				kept.KeepAccounts()
			}
		}
		err = labs.Started(ctx, func(lab *bench.Bench) (err error) {
			b := &openBlock{Session: s, Block: eb, Bench: lab, fault: dut.Fault(cell.Text(Fault))}
			b.device = lab.DUT.(dut.Failing) // fits
			t := &Trial{Cell: cell, SetupSeconds: lab.Setup.Seconds()}
			why, err = b.measure(ctx, t)
			t.Seconds = a.Took().Seconds()
			r = t
			return err
		})
		return r, why, err
	})
}

// measure admits the clients, has the fault come, and fills in the record. It returns the reasons to reject it.
func (b *openBlock) measure(ctx context.Context, t *Trial) (bench.Rejects, error) {
	if err := b.admit(ctx); err != nil {
		return nil, err
	}
	server := agent.Server{Addr4: b.Lab.ServerIP}
	if err := b.Server.ServePulses(ctx, server); err != nil {
		return nil, err
	}
	if err := b.Hosts[0].SendPulses(ctx, server); err != nil {
		return nil, err
	}
	proof, err := b.proof(ctx)
	if err != nil {
		return nil, err
	}
	w, err := b.watch(ctx, t)
	if err != nil {
		return nil, err
	}
	if err := b.account(ctx, t, w); err != nil {
		return nil, err
	}
	return b.judge(ctx, t, w, proof)
}

// loginParallel is how many clients log in at a device whose admission sets no number.
const loginParallel = 16

// admit makes all clients, and admits those of the first host.
func (b *openBlock) admit(ctx context.Context) error {
	n := b.Block.Clients()
	b.Share(n, newcomers(b.Experiment))
	if err := b.CreateClients(ctx); err != nil {
		return err
	}
	b.Status("%s: fault %s: clients log in", b.Name(b.Block), b.fault)
	outcomes, err := b.Hosts[0].Lease(ctx, client.Pace{Parallel: loginParallel})
	if err = errors.Join(err, client.FirstFailure(outcomes)); err != nil {
		return fmt.Errorf("leasing: %w", err)
	}
	pace := client.Pace{Parallel: b.Traits.Admission.Parallel, Patience: time.Minute + time.Duration(n)*time.Second}
	if pace.Parallel == 0 {
		pace.Parallel = loginParallel
	}
	outcomes, err = b.Hosts[0].Login(ctx, b.Traits.Admission, pace)
	if err = errors.Join(err, client.FirstFailure(outcomes)); err != nil {
		return fmt.Errorf("logging in: %w", err)
	}
	return b.Server.OpenMeter(ctx, agent.Meter{IfNames: b.Server.Ifs, Support: true})
}

// proof has the device prove that it works as configured, while pulses pass.
func (b *openBlock) proof(ctx context.Context) (r bench.Rejects, err error) {
	err = r.ProveSoon(ctx, b.Bench)
	return r, err
}

// watching is what was seen around a fault.
type watching struct {
	early, clients, server agent.Pulses // before the fault; at the end
	outcomes               []client.Outcome
	from, to               meter.Sample
}

// loginLimit is how long somebody waits to be admitted.
const loginLimit = 5 * time.Second

// watch watches pulses and newcomers, has the fault come, and watches on.
func (b *openBlock) watch(ctx context.Context, t *Trial) (w watching, err error) {
	b.Status("%s: fault %s: watching", b.Name(b.Block), b.fault)
	if w.from, err = b.Server.Sample(ctx); err != nil {
		return w, err
	}
	var work sync.WaitGroup
	var arriving, caused error
	began := time.Now()
	work.Go(func() {
		pace := client.Pace{PerSecond: float64(arrivals.Value(b.Experiment))}
		w.outcomes, arriving = b.Hosts[1].Arrive(ctx, b.Traits.Admission, pace, loginLimit)
	})
	if err := bench.Sleep(ctx, before); err != nil {
		return w, err
	}
	if w.early, err = b.Hosts[0].ReadPulses(ctx); err != nil {
		return w, err
	}
	if err := errors.Join(b.Hosts[0].MarkPulses(ctx), b.Server.MarkPulses(ctx)); err != nil {
		return w, err
	}
	fault := time.Now()
	work.Go(func() {
		caused = b.cause(ctx)
		t.CauseSeconds = time.Since(fault).Seconds()
	})
	if err := bench.Sleep(ctx, watchTime(b.Experiment)); err != nil {
		return w, err
	}
	t.WatchSeconds = time.Since(fault).Seconds()
	if err := b.readPulses(ctx, &w); err != nil {
		return w, err
	}
	work.Wait()
	if caused != nil {
		t.CauseError = caused.Error()
	}
	if err := errors.Join(arriving, ctx.Err()); err != nil {
		return w, err
	}
	w.to, err = b.Server.Sample(ctx)
	b.fill(t, w, float64(fault.Sub(began))/1e6)
	return w, err
}

// readPulses reads both ends, and ends the pulses, so that nothing is sent that is not counted.
func (b *openBlock) readPulses(ctx context.Context, w *watching) (err error) {
	if w.server, err = b.Server.ReadPulses(ctx); err != nil {
		return err
	}
	if w.clients, err = b.Hosts[0].ReadPulses(ctx); err != nil {
		return err
	}
	return b.Hosts[0].EndPulses(ctx)
}

// cause causes the fault.
func (b *openBlock) cause(ctx context.Context) error {
	p, powered := b.device.(dut.Powered)
	if b.fault != dut.FaultPower || !powered {
		return b.device.Cause(ctx, b.Env, b.fault)
	}
	host, err := p.PowerOf(ctx, b.Env)
	if err != nil {
		return err
	}
	b.Abandoned = true
	return b.Lab.Host(host).Stop()
}

// fill adds to the record what was seen. fault is when the fault came, ms from the beginning of the arrivals.
func (b *openBlock) fill(t *Trial, w watching, fault float64) {
	t.TCPWhy = bench.Reasons(t.addFlows(w.clients.Clients.Clients, w.server.Server))
	var failures []string
	t.Logins, failures = loginsOf(w.outcomes, fault)
	t.Logins.Failures = bench.Reasons(failures)
	t.LateMs = ms(max(w.clients.Clients.LateNs, w.server.Server.LateNs))
	t.Machine = bench.Machine(w.to.Stat.Sub(w.from.Stat))
}
