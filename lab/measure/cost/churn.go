package cost

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/measure/side"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// forgotten bounds the wait until a device has forgotten its guests.
const forgotten = 15 * time.Second

// visit has guests come and go on all hosts that have some.
func (s *lab) visit(ctx context.Context, perSecond float64) error {
	return s.EachHost(func(i int, h side.ClientHost) error {
		visits := s.GuestVisits(i, perSecond)
		if visits.PerSecond == 0 { // fewer guests than hosts
			return nil
		}
		return h.Visit(ctx, visits)
	})
}

// endVisits waits until all guests are gone and returns what became of them.
func (s *lab) endVisits(ctx context.Context) (c result.Churn, err error) {
	each := make([]client.Visits, len(s.Hosts))
	err = s.EachHost(func(i int, h side.ClientHost) (err error) { each[i], err = h.Leave(ctx); return err })
	var leases, logins []float64
	var failures []string
	for _, v := range each {
		c.Came, c.In, c.Gone, c.Missed = c.Came+v.Came, c.In+v.In, c.Gone+v.Gone, c.Missed+v.Missed
		leases, logins, failures = append(leases, v.LeaseMs...), append(logins, v.LoginMs...), append(failures, v.Failures...)
	}
	if len(logins) > 0 {
		lease, login := delaysOf(leases), delaysOf(logins)
		c.LeaseP50Ms, c.LeaseP99Ms, c.LoginP50Ms, c.LoginP99Ms = lease.P50, lease.P99, login.P50, login.P99
	}
	c.Failures = side.Reasons(failures)
	return c, err
}

// state is what the device holds at the moment.
func (s *lab) state(ctx context.Context) (st result.DeviceState, err error) {
	if st.PSSMiB, err = s.Router.PSSMiB(ctx); err != nil {
		return st, err
	}
	if d, ok := s.DUT.(dut.Counted); ok {
		if st.Counts, err = d.Counts(ctx, s.Env); err != nil {
			return st, err
		}
	}
	// A router without nft has no rules of it.
	if out, err := s.Router.Run(ctx, agent.Command{Argv: []string{"nft", "list", "ruleset"}, Support: true}); err == nil {
		st.RuleLines = strings.Count(out.Stdout, "\n")
	}
	st.Flows = s.Flows(ctx)
	return st, nil
}

// underChurn measures the block while guests come and go on both sides, and looks at
// the device before the first and after the last.
func (b *openBlock) underChurn(ctx context.Context, perSecond float64) error {
	device, clean := b.pair.device, b.pair.clean
	before, err := device.state(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := testbed.Together(func() error { return device.visit(ctx, perSecond) }, func() error { return clean.visit(ctx, perSecond) }); err != nil {
		return err
	}
	err = b.cells(ctx)
	var churn result.Churn
	left := testbed.Together(
		func() (err error) { churn, err = device.endVisits(ctx); return err },
		func() (err error) { _, err = clean.endVisits(ctx); return err },
	)
	if err = errors.Join(err, left); err != nil {
		return err
	}
	churn.PerSecond, churn.Seconds, churn.Before = perSecond, time.Since(start).Seconds(), before
	gone := time.Now()
	for {
		if churn.After, err = device.state(ctx); err != nil {
			return err
		}
		churn.SettledSeconds = time.Since(gone).Seconds()
		if maps.Equal(churn.After.Counts, before.Counts) || time.Since(gone) > forgotten {
			b.rec.Churn = &churn
			return nil
		}
		if err := side.Sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}
