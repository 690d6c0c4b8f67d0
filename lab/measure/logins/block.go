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
	// phaseTail is the time after a phase's end in which CPU time still counts for the phase. Devices delay accounting.
	phaseTail = 500 * time.Millisecond
	// patience is the longest time that the clients of a storm may take after the last of them has come. A client gives
	// up earlier after eight attempts.
	patience = 3 * time.Minute
)

// Run returns the functions that measure the blocks of one run.
func (Measure) Run() runner.Measure {
	return runner.Measure{Block: carryOut, Fits: func(e *experiment.Experiment, _ string, t dut.Traits) error {
		return checkClients(slices.Max(e.Clients), t)
	}}
}

// checkClients refuses a device at which n clients cannot log in: one without a login, or with a network that is too
// small. The error wraps dut.ErrNotSupported.
func checkClients(n int, t dut.Traits) error {
	if t.Admission.Kind == client.AdmitNone && !t.PPPoE {
		return fmt.Errorf("its clients do not log in themselves: there is no storm to measure: %w", dut.ErrNotSupported)
	}
	lan := t.LAN
	if !lan.IsValid() {
		lan = topology.DefaultLAN
	}
	// Addresses that no client can have: the network's, the router's, the broadcast address, and those of the lab's
	// hosts.
	const others = 6
	if most := 1<<(32-lan.Bits()) - others; most < n {
		return fmt.Errorf("its network %s has room for %s, not for %d: %w", lan, words.Agreed(most, "client", "clients"), n,
			dut.ErrNotSupported)
	}
	return nil
}

// openBlock is a block whose lab is open or is being built.
type openBlock struct {
	*runner.Session
	experiment.Block
	*bench.Bench
}

// carryOut measures one storm. It builds a new lab for every attempt, because a device keeps state of clients that it
// has admitted. It returns no block record: the runner writes one if the storm failed.
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

// showStep shows the user a step of the block, and the rate at which its clients arrive.
func (b *openBlock) showStep(step string) {
	b.Status("%s: %s, %s", b.Name(b.Block), step, rateText(rateOf(b.Block)))
}

// watchEvery is the interval at which the device's programs are checked during a storm.
const watchEvery = time.Second

// watchPrograms tells the user at once if a program of the device ends, because clients then take minutes to give up.
// It watches until stop is called; stop waits for it.
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

// storm creates the clients, has them lease and log in, and returns the storm's record with the reasons to reject it.
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

// phases has all clients lease, and then log in. PPPoE clients do both at once, in the login phase.
func (b *openBlock) phases(ctx context.Context, s *Storm) error {
	pace := func(i int) client.Pace { return paceOf(b.Block, i, len(b.Hosts)) }
	lease := func(i int, h bench.ClientHost) ([]client.Outcome, error) { return h.Lease(ctx, pace(i)) }
	login := func(i int, h bench.ClientHost) ([]client.Outcome, error) {
		return h.Login(ctx, b.Traits.Admission, pace(i))
	}
	if b.Traits.PPPoE { // the login gives these clients their addresses
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

// prove checks that clients that logged in can reach the server, and has the device prove, under a little load, that it
// works as configured. It proves nothing if no client got through or if the device ended.
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

// lease has all clients lease addresses, and adds the phase and the device's memory after it to the record.
func (b *openBlock) lease(ctx context.Context, s *Storm, do func(int, bench.ClientHost) ([]client.Outcome, error)) (
	err error) {
	b.showStep(words.Agreed(s.Clients, "client leases", "clients lease"))
	if s.Lease, err = b.phase(ctx, do); err != nil {
		return err
	}
	if s.LeasedPSSMiB, err = b.Router.PSSMiB(ctx); err != nil {
		return err
	}
	return b.Leased(ctx)
}

// create opens the meters and creates the clients. It opens the meters first, so that they do not read the counters of
// each client's namespace: to read a thousand of them takes longer than a login.
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

// evidence collects the input of the storm's self-tests. overflows is the count of neighbour table overflows before the
// storm.
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

// rateOf returns the number of clients that arrive a second; 0 means all at once.
func rateOf(b experiment.Block) float64 { return b.Cell.Number(LoginRate) }

// paceOf returns the pace at which the clients of host i arrive. The hosts share the rate equally.
func paceOf(b experiment.Block, i, hosts int) client.Pace {
	rate := rateOf(b)
	pace := client.Pace{PerSecond: rate / float64(hosts), After: bench.StartOffset(i, rate), Patience: patience}
	if rate > 0 {
		pace.Patience += time.Duration(float64(b.Clients()) / rate * float64(time.Second))
	}
	return pace
}
