package transfer

import (
	"context"
	"errors"
	"time"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// sampler samples the router while clients fetch, and adds the samples to a record.
type sampler struct {
	*openBlock
	first meter.Sample // taken before the clients fetch; times and CPU of all samples count from it
	t     *Transfer    // the record
}

// sampleDuring runs work, samples the router every interval until work ends, and once more then. It returns the
// errors of work and of the first sample that failed.
func (s *sampler) sampleDuring(ctx context.Context, work func() error) error {
	s.add(s.first)
	done := make(chan error, 1)
	go func() { done <- work() }()
	tick := time.NewTicker(interval.Value(s.Experiment))
	defer tick.Stop()
	var failed error
	for {
		var ended, sampleErr error
		over := false
		select {
		case ended = <-done:
			over = true
		case <-tick.C:
		}
		if failed == nil {
			var now meter.Sample
			if now, sampleErr = s.Router.Sample(ctx); sampleErr == nil {
				s.add(now)
			}
			failed = sampleErr
		}
		if over {
			return errors.Join(ended, failed)
		}
	}
}

// Headers that do not count as bytes of IP, in bytes: they differ between links with and without PPPoE.
const (
	ethernetHeader = 14
	pppoeHeader    = 8
)

// add adds a sample to the record.
func (s *sampler) add(now meter.Sample) {
	link, header := now.Links[s.Lab.Port(topology.PortLAN)], int64(ethernetHeader)
	if s.Traits.PPPoE {
		header += pppoeHeader
	}
	usage := bench.UsageOf(s.first, now)
	stat := now.Stat
	s.t.Samples = append(s.t.Samples, Sample{
		LinksMs: float64(now.LinksNs-s.first.LinksNs) / 1e6, CPUMs: float64(now.MonotonicNs-s.first.MonotonicNs) / 1e6,
		Bytes: link.TxBytes - header*link.TxPackets, RouterNs: usage.NAPINs + usage.ProcessNs, Wakeups: usage.Wakeups,
		BusyTicks: stat.User + stat.Nice + stat.System + stat.IRQ + stat.SoftIRQ, AllTicks: stat.Total(),
	})
}
