package logins

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/words"
)

const (
	// phaseTail is the time after a phase's end in which its CPU still counts: devices delay
	// accounting, and the cost of a login must be neither lost nor counted in the next phase.
	phaseTail = 500 * time.Millisecond
	// patience is what clients of a storm have, beside the time they take to
	// come. A login gives up by itself after eight attempts, which are bounded too.
	patience = 3 * time.Minute
)

// Run returns what measures the blocks of one run.
func (Measure) Run() runner.Measure {
	return runner.Measure{Block: carryOut, Fits: func(e *experiment.Experiment, _ string, t dut.Traits) error {
		return checkClients(slices.Max(e.Clients), t)
	}}
}

// checkClients refuses devices at which n clients cannot log in: those without a login, and those whose network is too
// small.
func checkClients(n int, t dut.Traits) error {
	if t.Admission.Kind == client.AdmitNone && !t.PPPoE {
		return fmt.Errorf("its clients do not log in themselves: there is no storm to measure: %w", dut.ErrNotSupported)
	}
	lan := t.LAN
	if !lan.IsValid() {
		lan = topology.DefaultLAN
	}
	// Not the network, the router, the broadcast and what a lab's hosts have.
	const others = 6
	if most := 1<<(32-lan.Bits()) - others; most < n {
		return fmt.Errorf("its network %s has room for %s, not for %d: %w", lan, words.Agreed(most, "client", "clients"), n,
			dut.ErrNotSupported)
	}
	return nil
}

// openBlock is a block whose lab stands or is being built.
type openBlock struct {
	*runner.Session
	experiment.Block
	*bench.Bench
}

// carryOut measures one storm. Every attempt has a lab of its own, because a device keeps state of
// clients that it has admitted. The runner writes a block record only where the storm failed.
func carryOut(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	measure := func(runner.Attempt) (storm result.Record, r []string, err error) {
		b := &openBlock{Session: s, Block: eb}
		b.showStep("building the lab")
		err = s.Labs(eb).Started(ctx, func(lab *bench.Bench) (err error) {
			b.Bench = lab
			defer b.watchPrograms(ctx)()
			storm, r, err = b.storm(ctx)
			return err
		})
		return storm, r, err
	}
	return nil, s.MeasureWindow(eb, eb.Cells[0], 0, KindStorm, measure)
}

// showStep shows what the block does, and the rate at which its clients come.
func (b *openBlock) showStep(what string) {
	b.Status("%s: %s, %s", b.Name(b.Block), what, rateText(rateOf(b.Block)))
}

// watchEvery is the interval at which the device's programs are checked during a storm.
const watchEvery = time.Second

// watchPrograms reports that a program of the device has ended, because its clients take minutes to
// give up: until stop.
func (b *openBlock) watchPrograms(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for bench.Sleep(ctx, watchEvery) == nil {
			ended, err := b.Ended(ctx)
			if err != nil {
				return // the lab is gone: the storm's own requests fail as well
			}
			if len(ended.Device) > 0 {
				b.Notice("%s: the device has ended, its clients will have to give up: %s", b.Name(b.Block),
					strings.Join(ended.Device, "; "))
				return
			}
		}
	})
	return func() { cancel(); watch.Wait() }
}

// storm creates the clients, has them lease and log in, and judges.
func (b *openBlock) storm(ctx context.Context) (*Storm, bench.Rejects, error) {
	s := &Storm{SetupSeconds: b.Setup.Seconds(), DeviceLeases: b.Traits.DHCP && !b.Traits.PPPoE,
		TailSeconds: phaseTail.Seconds()}
	s.SetCell(b.Cells[0])
	if err := b.create(ctx, s); err != nil {
		return s, nil, err
	}
	before, err := b.Machine.Load(ctx)
	if err == nil {
		err = b.phases(ctx, s)
	}
	if err != nil {
		return s, nil, err
	}
	e, err := b.evidence(ctx, before.NeighbourOverflows)
	if err == nil {
		err = b.prove(ctx, &e, s)
	}
	if err != nil {
		return s, nil, err
	}
	s.Died = e.ended.Device
	rejects, err := s.judge(e)
	return s, rejects, err
}

// phases has the clients lease, and then log in.
func (b *openBlock) phases(ctx context.Context, s *Storm) error {
	pace := func(i int) client.Pace { return paceOf(b.Block, i, len(b.Hosts)) }
	lease := func(i int, h bench.ClientHost) ([]client.Outcome, error) { return h.Lease(ctx, pace(i)) }
	login := func(i int, h bench.ClientHost) ([]client.Outcome, error) {
		return h.Login(ctx, b.Traits.Admission, pace(i))
	}
	if b.Traits.PPPoE { // clients that log in over PPPoE have their addresses by that
		login = lease
		s.LeasedPSSMiB = s.IdlePSSMiB
	} else if err := b.lease(ctx, s, lease); err != nil {
		return fmt.Errorf("leasing: %w", err)
	}
	if err := b.ProveBlocked(ctx, "before logging in"); err != nil {
		return err
	}
	b.showStep(words.Agreed(s.Clients, "client logs in", "clients log in"))
	var err error
	if s.Login, err = b.phase(ctx, login); err == nil {
		s.LoggedPSSMiB, err = b.Router.PSSMiB(ctx)
	}
	if err != nil {
		return fmt.Errorf("logging in: %w", err)
	}
	return nil
}

// prove proves that clients that logged in are let in, and asks the device what it is while it carries a little load.
// After a storm that nobody came through, or that ended the device, neither can be known.
func (b *openBlock) prove(ctx context.Context, e *evidence, s *Storm) error {
	ended := len(e.ended.Device) > 0
	err := b.ProveAdmitted(ctx, func(client int) bool { return ended || slices.Contains(s.Login.GaveUp, client-1) })
	if err != nil || ended || s.Login.Through == 0 {
		return err
	}
	var idle bench.Rejects
	if err := idle.Prove(ctx, b.Bench); err != nil || len(idle) == 0 {
		return err
	}
	if err := b.StartProbes(ctx); err != nil {
		return err
	}
	return e.failedProof.ProveSoon(ctx, b.Bench)
}

// lease has all clients ask for addresses.
func (b *openBlock) lease(ctx context.Context, s *Storm, ask func(int, bench.ClientHost) ([]client.Outcome, error)) (
	err error) {
	b.showStep(words.Agreed(s.Clients, "client leases", "clients lease"))
	if s.Lease, err = b.phase(ctx, ask); err != nil {
		return err
	}
	if s.LeasedPSSMiB, err = b.Router.PSSMiB(ctx); err != nil {
		return err
	}
	return b.Leased(ctx)
}

// create opens the meters and creates the clients. The meters come first: counters of the clients'
// own namespaces are not needed, and a thousand of them would take the client host longer to read
// than a login.
func (b *openBlock) create(ctx context.Context, s *Storm) (err error) {
	if err := b.OpenMeters(ctx); err != nil {
		return err
	}
	start := time.Now()
	if err := b.CreateClients(ctx); err != nil {
		return err
	}
	s.CreateSeconds = time.Since(start).Seconds()
	s.IdlePSSMiB, err = b.Router.PSSMiB(ctx)
	return err
}

// evidence collects what a storm left besides its figures; overflows are those
// of the neighbour table before it.
func (b *openBlock) evidence(ctx context.Context, overflows int64) (e evidence, err error) {
	e.cpus, e.speed = b.CPUs, b.Experiment.Router.Speed
	e.polling = "napi/" + b.Lab.Port(topology.PortLAN)
	if e.ended, err = b.Ended(ctx); err != nil {
		return e, err
	}
	after, err := b.Machine.Load(ctx)
	e.overflows = after.NeighbourOverflows - overflows
	return e, err
}

// rateOf is the number of clients that arrive a second; 0 is all at once.
func rateOf(b experiment.Block) float64 { return b.Cell.Number(LoginRate) }

// paceOf is the pace at which clients arrive at one of the hosts.
func paceOf(b experiment.Block, i, hosts int) client.Pace {
	rate := rateOf(b)
	pace := client.Pace{PerSecond: rate / float64(hosts), After: bench.StartOffset(i, rate), Patience: patience}
	if rate > 0 {
		pace.Patience += time.Duration(float64(b.Clients()) / rate * float64(time.Second))
	}
	return pace
}
