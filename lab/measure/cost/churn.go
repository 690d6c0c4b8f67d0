package cost

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
)

// forgetTimeout bounds the wait until a device has forgotten its guests.
const forgetTimeout = 15 * time.Second

// startGuests starts the guests of all hosts that have some.
func (s *lab) startGuests(ctx context.Context, perSecond float64) error {
	return s.EachHost(func(i int, h bench.ClientHost) error {
		visits := s.GuestVisits(i, perSecond)
		if visits.PerSecond == 0 { // fewer guests than hosts
			return nil
		}
		return h.Visit(ctx, visits)
	})
}

// endVisits waits until all guests have left and returns their outcomes.
func (s *lab) endVisits(ctx context.Context) (c Churn, err error) {
	each, err := bench.Each(s.Hosts, func(_ int, h bench.ClientHost) (client.Visits, error) { return h.Leave(ctx) })
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
	c.Failures = bench.Reasons(failures)
	return c, err
}

// deviceState reads the device's counts, memory and rules at the moment.
func (s *lab) deviceState(ctx context.Context) (st DeviceState, err error) {
	if st.PSSMiB, err = s.PSSMiB(ctx); err != nil {
		return st, err
	}
	if d, ok := s.DUT.(dut.Counted); ok {
		if st.Counts, err = d.Counts(ctx, s.Env); err != nil {
			return st, err
		}
	}
	// A router without the program nft has no nftables rules.
	if out, err := s.Router.Run(ctx, agent.Command{Argv: []string{"nft", "list", "ruleset"}, Support: true}); err == nil {
		st.RuleLines = strings.Count(out.Stdout, "\n")
	}
	st.Flows = s.Flows(ctx)
	return st, nil
}

// underChurn measures the block while guests come and go on both sides. It reads the device's state before the first
// guest and after the last.
func (b *openBlock) underChurn(ctx context.Context, perSecond float64) error {
	device := b.pair.device
	before, err := device.deviceState(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := b.pair.onBothLabs(func(l *lab) error { return l.startGuests(ctx, perSecond) }); err != nil {
		return err
	}
	err = b.cells(ctx)
	guests, left := bench.Each(b.pair.labs(), func(_ int, l *lab) (Churn, error) { return l.endVisits(ctx) })
	if err = errors.Join(err, left); err != nil {
		return err
	}
	churn := guests[0]
	churn.PerSecond, churn.Seconds, churn.Before = perSecond, time.Since(start).Seconds(), before
	gone := time.Now()
	for {
		if churn.After, err = device.deviceState(ctx); err != nil {
			return err
		}
		churn.SettledSeconds = time.Since(gone).Seconds()
		if maps.Equal(churn.After.Counts, before.Counts) || time.Since(gone) > forgetTimeout {
			b.stay.Churn = &churn
			return nil
		}
		if err := bench.Sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}
