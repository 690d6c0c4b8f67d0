package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// churnSettles bounds the wait until a device has forgotten its guests.
const churnSettles = 15 * time.Second

// guestsOf is the part of host i of a lab's guests: the first's number and how many.
func (s *side) guestsOf(i int) (first, count int) {
	n := len(s.hosts)
	lo, hi := s.guests*i/n, s.guests*(i+1)/n
	return s.has.Clients + lo + 1, hi - lo
}

// visit has guests come and go on all hosts.
func (s *side) visit(ctx context.Context, perSecond float64) error {
	return s.eachHost(func(i int, h clientHost) error { return h.Visit(ctx, s.visitsOf(i, perSecond)) })
}

// visitsOf is how guests come to host i, which takes its part of the rate.
func (s *side) visitsOf(i int, perSecond float64) client.Churn {
	_, count := s.guestsOf(i)
	return client.Churn{
		PerSecond: perSecond * float64(count) / float64(s.guests), After: turnOf(i, perSecond), Stay: experiment.GuestStays, Admission: s.traits.Admission,
	}
}

// farewell waits until all guests are gone and tells what became of them.
func (s *side) farewell(ctx context.Context) (result.Churn, error) {
	each := make([]client.Visits, len(s.hosts))
	err := s.eachHost(func(i int, h clientHost) (err error) { each[i], err = h.Leave(ctx); return err })
	var c result.Churn
	var leases, logins []float64
	var failures []string
	for _, v := range each {
		c.Came, c.In, c.Gone, c.Missed = c.Came+v.Came, c.In+v.In, c.Gone+v.Gone, c.Missed+v.Missed
		leases, logins, failures = append(leases, v.LeaseMs...), append(logins, v.LoginMs...), append(failures, v.Failures...)
	}
	slices.Sort(leases)
	slices.Sort(logins)
	if len(logins) > 0 {
		c.LeaseP50Ms, c.LeaseP99Ms = millis(result.Quantile(leases, 0.5)), millis(result.Quantile(leases, 0.99))
		c.LoginP50Ms, c.LoginP99Ms = millis(result.Quantile(logins, 0.5)), millis(result.Quantile(logins, 0.99))
	}
	c.Failures = reasons(failures)
	return c, err
}

// state is what the device holds at the moment.
func (s *side) state(ctx context.Context) (st result.DeviceState, err error) {
	if st.PSSMiB, err = s.lab.Router.PSSMiB(ctx); err != nil {
		return st, err
	}
	if d, ok := s.dut.(dut.Counted); ok {
		if st.Counts, err = d.Counts(ctx, s.env); err != nil {
			return st, err
		}
	}
	// A router without nft or without connection tracking has none of either.
	if out, err := s.lab.Router.Run(ctx, agent.Command{Argv: []string{"nft", "list", "ruleset"}, Support: true}); err == nil {
		st.RuleLines = strings.Count(out.Stdout, "\n")
	}
	if out, err := s.lab.Router.Run(ctx, agent.Command{Argv: []string{"cat", flowCount}, Support: true}); err == nil {
		_, _ = fmt.Sscan(out.Stdout, &st.Flows)
	}
	return st, nil
}

// underChurn measures a block while guests come and go on both sides, and looks at
// the device before the first and after the last.
func underChurn(ctx context.Context, perSecond float64, device, clean *side, rec *result.Block, measure func() error) error {
	before, err := device.state(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := testbed.Together(func() error { return device.visit(ctx, perSecond) }, func() error { return clean.visit(ctx, perSecond) }); err != nil {
		return err
	}
	err = measure()
	var churn result.Churn
	left := testbed.Together(
		func() (err error) { churn, err = device.farewell(ctx); return err },
		func() (err error) { _, err = clean.farewell(ctx); return err },
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
		if maps.Equal(churn.After.Counts, before.Counts) || time.Since(gone) > churnSettles {
			rec.Churn = &churn
			return nil
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}
