package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

const (
	// phaseTail is how long after a phase's end its CPU still counts: devices put
	// accounting off, and what one login costs must not be another's, or nobody's.
	phaseTail = 500 * time.Millisecond
	// stormPatience is what clients of a storm have, beside the time they take to
	// come. A login gives up by itself after eight attempts, which are bounded too.
	stormPatience = 3 * time.Minute
)

// storm measures one block of logins, again when it is rejected. Every attempt
// has a lab of its own: there is no way back to a device that nobody has met.
// Storms are on the disk as soon as they are judged; where none came about, the
// block's record says why.
func (r *run) storm(ctx context.Context, b experiment.Block) error {
	key := stormKey(b)
	for attempt := r.tried[key]; ; attempt++ {
		start := time.Now()
		s, err := r.stormOnce(ctx, b)
		if ctx.Err() != nil {
			return context.Cause(ctx) // measured again by a resume: no record
		}
		if err != nil {
			failed := r.writer.AppendBlock(result.Block{
				DUT: b.DUT, Clients: b.Clients, LoginRate: b.LoginRate, Block: b.Index, Sitting: r.sitting, DUTLab: b.DUTLab,
				Start: start.UTC(), Seconds: time.Since(start).Seconds(), Error: err.Error(),
			})
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("%w: %w", errStorage, failed))
			}
			return err
		}
		s.Block, s.Attempt, s.Sitting, s.Start, s.Seconds = b.Index, attempt, r.sitting, start.UTC(), time.Since(start).Seconds()
		if err := r.writer.AppendStorm(s); err != nil {
			return fmt.Errorf("%w: %w", errStorage, err)
		}
		if r.count(key, attempt, s.Accepted); s.Accepted || attempt >= r.cfg.Experiment.Redo {
			return nil
		}
		r.status("%s: measuring again: %s", blockName(b), s.Rejects[0])
	}
}

// stormKey is a storm in the books of the run: the only window of its block.
func stormKey(b experiment.Block) windowKey {
	return windowKey{cell: b.Cells[0], block: b.Index, loginRate: b.LoginRate}
}

// stormOnce builds a lab, lets the clients loose, and removes the lab.
func (r *run) stormOnce(ctx context.Context, b experiment.Block) (s result.Storm, err error) {
	d, err := dut.New(b.DUT, b.Clients, r.cfg.Experiment)
	if err != nil {
		return s, err
	}
	r.status("%s: building the lab, %s", blockName(b), rateText(b))
	t := d.Traits()
	has, _ := r.cfg.Experiment.Sides(b)
	side, err := openDevice(ctx, sideConfig{
		backend: r.backend, lab: b.DUTLab, device: d, has: has, told: tellsRouter(has),
		topology: testbed.Spec{LAN: t.LAN, Clients: b.Clients, ClientHosts: r.cfg.Experiment.Client.Hosts, NoAggregation: t.NoAggregation, NoTxChecksum: t.NoTxChecksum}.Topology(),
	})
	if err != nil {
		return s, err
	}
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { r.watch(watching, b, side) })
	s, err = r.measureStorm(ctx, b, side)
	stop()
	watch.Wait()
	if ctx.Err() == nil {
		if left := side.stopDevice(ctx); left != nil && err == nil { // noted, and the storm stands
			r.notice("%s: %v", blockName(b), left)
		}
	}
	return s, errors.Join(err, side.close())
}

// watchEvery is how often the device of a storm is looked at.
const watchEvery = time.Second

// watch says when a program of the device has ended: its clients take minutes to give
// up. It returns then, or when ctx ends.
func (r *run) watch(ctx context.Context, b experiment.Block, side *side) {
	for sleep(ctx, watchEvery) == nil {
		d, err := side.dead(ctx)
		if err != nil {
			return // the lab is gone, which the storm's own requests will tell
		}
		if len(d.device) > 0 {
			r.notice("%s: the device has ended, its clients will have to give up: %s", blockName(b), strings.Join(d.device, "; "))
			return
		}
	}
}

// measureStorm creates the clients, has them lease and log in, and judges.
func (r *run) measureStorm(ctx context.Context, b experiment.Block, side *side) (s result.Storm, err error) {
	s = result.Storm{
		DUT: b.DUT, Clients: b.Clients, LoginRate: b.LoginRate, SetupSeconds: side.setup.Seconds(),
		DeviceLeases: side.traits.DHCP, TailSeconds: phaseTail.Seconds(),
	}
	if err := side.gather(ctx, &s); err != nil {
		return s, err
	}
	overflows, err := meter.NeighbourOverflows()
	if err != nil {
		return s, err
	}
	pace := func(i int) client.Pace { return paceOf(b, i, len(side.hosts)) }
	p := phases{side: side, placement: r.placement, loginRate: b.LoginRate}
	r.status("%s: %d clients lease, %s", blockName(b), b.Clients, rateText(b))
	s.Lease, err = p.measure(ctx, func(i int, h clientHost) ([]client.Outcome, error) { return h.Lease(ctx, pace(i)) })
	if err == nil {
		s.LeasedPSSMiB, err = side.lab.Router.PSSMiB(ctx)
	}
	if err != nil {
		return s, fmt.Errorf("leasing: %w", err)
	}
	addrs, err := side.leased(ctx)
	if err == nil {
		err = side.tellRouter(ctx, addrs)
	}
	if err != nil {
		return s, err
	}
	r.status("%s: %d clients log in, %s", blockName(b), b.Clients, rateText(b))
	s.Login, err = p.measure(ctx, func(i int, h clientHost) ([]client.Outcome, error) {
		return h.Login(ctx, side.traits.Admission, pace(i))
	})
	if err == nil {
		s.LoggedPSSMiB, err = side.lab.Router.PSSMiB(ctx)
	}
	if err != nil {
		return s, fmt.Errorf("logging in: %w", err)
	}
	e, err := side.evidence(ctx, overflows)
	if err == nil {
		judgeStorm(&s, e)
	}
	return s, err
}

// gather opens the meters and creates the clients of a storm.
func (s *side) gather(ctx context.Context, storm *result.Storm) (err error) {
	// The meters first: counters of the clients' own namespaces are not needed, and
	// a thousand of them would take the client host longer to read than a login.
	if err := s.openMeters(ctx); err != nil {
		return err
	}
	start := time.Now()
	if err := s.createClients(ctx); err != nil {
		return err
	}
	storm.CreateSeconds = time.Since(start).Seconds()
	storm.IdlePSSMiB, err = s.lab.Router.PSSMiB(ctx)
	return err
}

// evidence collects what a storm left besides its figures; overflows are those
// of the neighbour table before it.
func (s *side) evidence(ctx context.Context, overflows int64) (e evidence, err error) {
	e.polling = "napi/" + s.lab.LANIf
	if e.dead, err = s.dead(ctx); err != nil {
		return e, err
	}
	after, err := meter.NeighbourOverflows()
	e.overflows = after - overflows
	return e, err
}

// paceOf is how clients come to host i of so many.
func paceOf(b experiment.Block, i, hosts int) client.Pace {
	pace := client.Pace{PerSecond: b.LoginRate / float64(hosts), After: turnOf(i, b.LoginRate), Patience: stormPatience}
	if b.LoginRate > 0 {
		pace.Patience += time.Duration(float64(b.Clients) / b.LoginRate * float64(time.Second))
	}
	return pace
}

func rateText(b experiment.Block) string { return experiment.RateText(b.LoginRate) }

// createClients makes the clients; they have no addresses yet.
func (s *side) createClients(ctx context.Context) error {
	return s.eachHost(func(i int, h clientHost) error {
		guest, guests := s.guestsOf(i)
		cfg := client.Config{
			Kind: s.has.Client, First: h.first, Count: h.count, FirstGuest: guest, Guests: guests, Parent: h.Ifs[0], LAN: s.lab.LAN, Gateway: s.lab.Gateway,
			Lab: s.lab.Name[0],
		}
		if s.static {
			cfg.FirstStatic = s.lab.FirstLease
		}
		return h.CreateClients(ctx, cfg)
	})
}

// phases measures what all clients of a lab do together.
type phases struct {
	side      *side
	placement testbed.Placement
	loginRate float64
}

// measure reads the meters, has every client host do its part, reads them again,
// and once more after the tail.
func (p phases) measure(ctx context.Context, do func(int, clientHost) ([]client.Outcome, error)) (phase result.Phase, err error) {
	first, err := p.side.readMeters(ctx)
	if err != nil {
		return phase, err
	}
	outcomes := make([][]client.Outcome, len(p.side.hosts))
	err = p.side.eachHost(func(i int, h clientHost) (err error) {
		outcomes[i], err = do(i, h)
		return err
	})
	if err != nil {
		return phase, err
	}
	end, err := p.side.readMeters(ctx)
	if err == nil {
		err = sleep(ctx, phaseTail)
	}
	if err != nil {
		return phase, err
	}
	tail, err := p.side.readMeters(ctx)
	if err != nil {
		return phase, err
	}
	phase = fates(slices.Concat(outcomes...))
	p.account(&phase, first, end, tail)
	return phase, nil
}
