// Package roaming measures what users notice when they go from one gateway to another. Clients log in at the first one
// and send a packet every 10 ms, to which the server answers. Then they appear in the LAN of the second one with the
// same hardware addresses, lease an address there, and send on; at the first one they send nothing any more, but show
// until when packets pass. A client that sent at both would be one that goes back and forth. Each move has a lab of its
// own.
package roaming

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/failover"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Run returns the functions that measure the blocks of one run.
func (Measure) Run() runner.Measure { return runner.Measure{Fits: fits, Block: carryOut} }

// openBlock is an attempt whose lab is open.
type openBlock struct {
	*runner.Session
	experiment.Block
	*bench.Bench
	device dut.Doubled
}

// carryOut measures one move, in a new lab for every attempt.
func carryOut(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	cell := eb.Cells[0]
	return nil, s.MeasureWindow(eb, cell, 0, KindMove, func(a runner.Attempt) (r result.Record, why []string, err error) {
		s.Status("%s: building the lab", s.Name(eb))
		labs := s.Labs(eb)
		labs.Prepare = func(d dut.DUT) {
			if kept, ok := d.(dut.Accounted); ok {
				kept.KeepAccounts()
			}
		}
		err = labs.Started(ctx, func(lab *bench.Bench) (err error) {
			b := &openBlock{Session: s, Block: eb, Bench: lab, device: lab.DUT.(dut.Doubled)} // fits
			t := &Trial{Cell: cell, SetupSeconds: lab.Setup.Seconds(), Clients: eb.Clients()}
			why, err = b.measure(ctx, t)
			t.Seconds = a.Took().Seconds()
			r = t
			return err
		})
		return r, why, err
	})
}

// measure admits the clients at the first gateway, has them move, and fills in the record. It returns the reasons to
// reject it.
func (b *openBlock) measure(ctx context.Context, t *Trial) (bench.Rejects, error) {
	if err := b.admit(ctx); err != nil {
		return nil, err
	}
	var proof bench.Rejects
	if err := proof.ProveSoon(ctx, b.Bench); err != nil {
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

// server is where clients send.
func (b *openBlock) server() agent.Server { return agent.Server{Addr4: b.Lab.ServerIP} }

// admit makes all clients at both gateways, and admits them at the first one.
func (b *openBlock) admit(ctx context.Context) error {
	n := b.Block.Clients()
	b.Everywhere()
	if err := b.CreateClients(ctx); err != nil {
		return err
	}
	if err := b.Server.ServePulses(ctx, b.server()); err != nil {
		return err
	}
	b.Status("%s: clients log in", b.Name(b.Block))
	outcomes, err := b.Hosts[0].Appear(ctx, b.server(), client.Pace{Parallel: loginParallel}, 0)
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

// watching is what was seen around a move.
type watching struct {
	early, former, now, server agent.Pulses // at the first gateway before the move; at the end
	outcomes                   []client.Outcome
	from, to                   meter.Sample
}

// watch watches pulses at the first gateway, has the clients move, and watches on.
func (b *openBlock) watch(ctx context.Context, t *Trial) (w watching, err error) {
	b.Status("%s: watching", b.Name(b.Block))
	if w.from, err = b.Server.Sample(ctx); err != nil {
		return w, err
	}
	if err := bench.Sleep(ctx, before); err != nil {
		return w, err
	}
	if w.early, err = b.Hosts[0].ReadPulses(ctx); err != nil {
		return w, err
	}
	if err := errors.Join(b.Hosts[0].MarkPulses(ctx), b.Server.MarkPulses(ctx)); err != nil {
		return w, err
	}
	if err := b.Hosts[0].SilencePulses(ctx); err != nil {
		return w, err
	}
	move := time.Now()
	if w.outcomes, err = b.Hosts[1].Appear(ctx, b.server(), client.Pace{}, movedBy); err != nil {
		return w, err
	}
	if err := bench.Sleep(ctx, watchTime(b.Experiment)); err != nil {
		return w, err
	}
	t.WatchSeconds = time.Since(move).Seconds()
	if err := b.readPulses(ctx, &w); err != nil {
		return w, err
	}
	if w.to, err = b.Server.Sample(ctx); err != nil {
		return w, err
	}
	t.addLeases(w.outcomes)
	t.addMoves(w.former.Clients.Clients, w.now.Clients.Clients)
	t.LateMs = ms(max(w.now.Clients.LateNs, w.server.Server.LateNs))
	t.Machine = bench.Machine(w.to.Stat.Sub(w.from.Stat))
	return w, nil
}

// readPulses ends the pulses, and reads all ends.
func (b *openBlock) readPulses(ctx context.Context, w *watching) (err error) {
	if w.former, err = b.Hosts[0].ReadPulses(ctx); err != nil {
		return err
	}
	if w.now, err = b.Hosts[1].ReadPulses(ctx); err != nil {
		return err
	}
	if w.server, err = b.Server.ReadPulses(ctx); err != nil {
		return err
	}
	return errors.Join(b.Hosts[0].EndPulses(ctx), b.Hosts[1].EndPulses(ctx))
}

// account has all clients log out where they are, and compares what the RADIUS server was told.
func (b *openBlock) account(ctx context.Context, t *Trial, w watching) (err error) {
	if records, err := b.device.Accounts(ctx); err != nil || records == nil {
		return err
	}
	b.Status("%s: clients log out", b.Name(b.Block))
	// Where they are first: a client that asks the former gateway would go back to it.
	failover.LogOut(ctx, b.Hosts[1], b.device.SecondAdmission())
	failover.LogOut(ctx, b.Hosts[0], b.Traits.Admission)
	t.Accounts, err = failover.AwaitAccounts(ctx, b.device, func(records []dut.Accounting) failover.Accounts {
		return failover.AccountsOf(records, t.Clients+len(t.AdmitMs), passed(w.server, w.former, w.now),
			func(string) bool { return true })
	})
	return err
}

// maxLate is how late a pulse may leave.
const maxLate = 500 * time.Millisecond

// judge returns the reasons to reject a move. What the device does is a result. The move does not count when the lab
// did not work before it, or was held up.
func (b *openBlock) judge(ctx context.Context, t *Trial, w watching, proof bench.Rejects) (bench.Rejects, error) {
	ended, err := b.Ended(ctx)
	if err != nil {
		return nil, err
	}
	t.Died = ended.Device
	silent := 0
	for _, c := range w.early.Clients.Clients {
		if !c.Down.Back {
			silent++
		}
	}
	machine := bench.Window{Seconds: t.WatchSeconds, Machine: t.Machine, CPUs: b.CPUs}
	leased := ""
	if err := client.FirstFailure(w.outcomes); err != nil {
		leased = err.Error()
	}
	rules := []bench.Rule{bench.RejectFor(proof...), machine.Steal,
		bench.RejectIf(silent > 0, "%s had no packets before the move", words.Counted(silent, "client")),
		bench.RejectIf(leased != "", "no address at the second gateway: %s", leased),
		bench.RejectIf(t.LateMs > ms(int64(maxLate)), "a packet left %.0f ms late, limit %d ms: the lab was held up",
			t.LateMs, maxLate.Milliseconds())}
	for _, text := range ended.Lab {
		rules = append(rules, bench.RejectIf(true, "lab: %s", text))
	}
	return bench.Judge(rules...)
}
