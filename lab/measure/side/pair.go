package side

import (
	"context"
	"errors"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// Labs says what the labs of a block are built from.
type Labs struct {
	Backend    testbed.Backend
	Experiment *experiment.Experiment
	DUT        string            // name of the device
	DUTLab     string            // "a" or "b"
	Sides      []experiment.Side // the device's lab, and that of the clean router where there is one
	Aggregate  bool              // the routers' links aggregate packets
}

// OpenDevice builds the device's lab alone, without clients.
func (l Labs) OpenDevice(ctx context.Context) (*Side, error) {
	d, err := l.device()
	if err != nil {
		return nil, err
	}
	cfg, err := l.config(l.DUTLab, d, d, l.Sides[0])
	if err != nil {
		return nil, err
	}
	return OpenDevice(ctx, cfg)
}

// OpenPair builds both labs at once, and admits their clients. Networks, queues and the links'
// settings are alike on both sides.
func (l Labs) OpenPair(ctx context.Context) (device, clean *Side, err error) {
	d, err := l.device()
	if err != nil {
		return nil, nil, err
	}
	open := func(lab string, own dut.DUT, has experiment.Side, into **Side) func() error {
		return func() (err error) {
			cfg, err := l.config(lab, own, d, has)
			if err != nil {
				return err
			}
			cfg.Static = hasStatic(has, cfg.EnterNeighbours, own.Traits())
			*into, err = Open(ctx, cfg)
			return err
		}
	}
	other := map[string]string{"a": "b", "b": "a"}[l.DUTLab]
	err = testbed.Together(open(l.DUTLab, d, l.Sides[0], &device), open(other, dut.NewClean(), l.Sides[1], &clean))
	if err == nil {
		return device, clean, nil
	}
	for _, s := range []*Side{device, clean} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return nil, nil, err
}

func (l Labs) device() (dut.DUT, error) {
	return dut.New(l.DUT, l.Sides[0].Clients+l.Experiment.Client.Guests(), l.Experiment)
}

// config is that of one lab; shared is the device whose link settings hold in all of them.
func (l Labs) config(lab string, own, shared dut.DUT, has experiment.Side) (Config, error) {
	cfg := Config{
		Backend: l.Backend, Lab: lab, Device: own, Has: has, Guests: l.Experiment.Client.Guests(), EnterNeighbours: EntersNeighbours(l.Sides...),
	}
	for _, s := range l.Sides {
		cfg.Most = max(cfg.Most, s.Clients)
	}
	t := shared.Traits()
	kind, err := testbed.Named(l.Experiment.Topology)
	if err != nil {
		return cfg, err
	}
	cfg.Topology = kind.Build(testbed.Spec{
		Aggregate: l.Aggregate, LAN: own.Traits().LAN, Clients: cfg.Most + cfg.Guests, ClientHosts: l.Experiment.Client.Hosts,
		NoAggregation: t.NoAggregation, NoTxChecksum: t.NoTxChecksum,
	})
	return cfg, nil
}
