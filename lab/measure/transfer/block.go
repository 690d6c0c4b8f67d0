package transfer

import (
	"context"
	"errors"
	"time"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/words"
)

type run struct{}

var _ runner.Measure = run{}

// Run returns what measures the blocks of one run.
func (Measure) Run() runner.Measure { return run{} }

// Lacks is false: a cell has nothing besides its transfers.
func (run) Lacks(*runner.Session, experiment.Block, result.Cell) bool { return false }

// Fits is nil: every device that runs can be fetched through.
func (run) Fits(*experiment.Experiment, string, dut.Traits) error { return nil }

// openBlock is a block whose lab stands.
type openBlock struct {
	*runner.Session
	experiment.Block
	*bench.Bench
	setup time.Duration
	speed float64
	kind  client.Kind
	hosts []address // of the clients, in their order
}

// address is where a client is.
type address struct {
	host   *backend.Host
	num    int // among the host's clients, from 1
	client client.Address
}

// Block builds a lab with the most clients of the block's cells, and has some of them fetch at a time, cell by cell.
func (run) Block(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	b := &openBlock{Session: s, Block: eb, speed: eb.Cell.Number(result.RouterSpeed)}
	restore, err := s.Slow(ctx, b.speed, keySpeeds)
	if err != nil {
		return nil, err
	}
	s.Status("%s: building the lab", s.Name(eb))
	err = b.open(ctx)
	if err == nil {
		err = bench.End(ctx, b.cells(ctx), func(left error) { s.Left(eb, left) }, b.Bench)
	}
	return nil, errors.Join(err, restore())
}

// open builds the lab, admits its clients and starts the FTP server. On error nothing is left.
func (b *openBlock) open(ctx context.Context) (err error) {
	start := time.Now()
	labs := b.Labs(b.Block)
	labs.Ends.RateMbps = linkMbps.Of(b.Experiment)
	if b.speed < 1 {
		labs.Slowed = b.Machine
	}
	if b.Bench, err = labs.OpenAdmitted(ctx); err != nil {
		return err
	}
	b.kind = client.KindOf(b.Has.Client)
	if err = serve(ctx, b.Server, fileBytes(b.Experiment)); err == nil {
		err = b.locate(ctx)
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	b.setup = time.Since(start)
	return nil
}

// locate notes where each client is.
func (b *openBlock) locate(ctx context.Context) error {
	for _, h := range b.Hosts {
		list, err := h.Clients(ctx)
		if err != nil {
			return err
		}
		for i, c := range list {
			b.hosts = append(b.hosts, address{h.Host, i + 1, c})
		}
	}
	return nil
}

// cells measures every cell that still lacks its transfers.
func (b *openBlock) cells(ctx context.Context) error {
	for _, cell := range b.Cells {
		if len(b.Todo(b.Block, cell)) == 0 {
			continue
		}
		err := b.Settle(b.Block, cell, 0, func(a runner.Attempt) (func(*result.Writer) error, []string, error) {
			t, err := b.transfer(ctx, a, cell)
			return func(w *result.Writer) error { return w.Append(KindTransfer, t) }, t.Rejects, err
		})
		if err != nil {
			return bench.CauseOf(err, b.Bench)
		}
	}
	return nil
}

// transfer has the first clients fetch, while the router is sampled.
func (b *openBlock) transfer(ctx context.Context, a runner.Attempt, cell result.Cell) (*Transfer, error) {
	e, n := b.Experiment, cell.Int(result.Clients)
	b.Status("%s: %d of %s fetch", b.Name(b.Block), n, words.Counted(len(b.hosts), "client"))
	t := &Transfer{
		Head: a.Head(b.Block), DUT: b.Block.DUT(), Clients: n, RouterSpeed: b.speed, SetupSeconds: b.setup.Seconds(),
		LinkMbps: linkMbps.Of(e), FileBytes: fileBytes(e), Transfers: transfers.Of(e),
	}
	before, err := b.ReadMeters(ctx)
	if err != nil {
		return t, err
	}
	first, err := b.Router.Sample(ctx)
	if err != nil {
		return t, err
	}
	s := &sampler{openBlock: b, first: first, t: t}
	var proof bench.Rejects
	err = s.until(ctx, func() error {
		return backend.Together(
			func() error { return b.fetchAll(ctx, t) }, func() error { return proof.ProveSoon(ctx, b.Bench) })
	})
	if err != nil {
		return t, err
	}
	after, err := b.ReadMeters(ctx)
	if err != nil {
		return t, err
	}
	t.Figures = figuresOf(t.Samples, t.LinkMbps*1e3/8)
	t.Seconds = time.Since(a.Start).Seconds()
	return t, b.judge(ctx, t, proof, before, after)
}

// fetchAll has the cell's clients fetch at the same time, and returns when the last of them is through.
func (b *openBlock) fetchAll(ctx context.Context, t *Transfer) (err error) {
	// A transfer of many beside each other on a device that carries a hundredth of the link still ends.
	const slowest = 100
	most := time.Minute + slowest*ideal(b.Experiment, t.Clients)/time.Duration(t.Transfers)
	t.Fetched, err = bench.Each(b.hosts[:t.Clients], func(_ int, a address) (Fetched, error) {
		return fetch(ctx, a.host, a.num, b.kind.Shared, a.client.IP, b.Env.ServerIP, t.Transfers, t.FileBytes, most)
	})
	return err
}

// sampler reads the router while something goes on.
type sampler struct {
	*openBlock
	first meter.Sample
	t     *Transfer
}

// until samples until work is done, and once more then.
func (s *sampler) until(ctx context.Context, work func() error) error {
	s.add(s.first)
	done := make(chan error, 1)
	go func() { done <- work() }()
	tick := time.NewTicker(interval.Of(s.Experiment))
	defer tick.Stop()
	var failed error
	for {
		var ended, worked error
		over := false
		select {
		case ended = <-done:
			over = true
		case <-tick.C:
		}
		if failed == nil {
			var now meter.Sample
			if now, worked = s.Router.Sample(ctx); worked == nil {
				s.add(now)
			}
			failed = worked
		}
		if over {
			return errors.Join(ended, failed)
		}
	}
}

// Headers that do not count: they differ between a session and none.
const (
	ethernetHeader = 14
	pppoeHeader    = 8
)

func (s *sampler) add(now meter.Sample) {
	link, header := now.Links[s.Lab.Port(topology.PortLAN)], int64(ethernetHeader)
	if s.Traits.Lines {
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

// mostOver is the share of the maximum-load interval in which frames may have waited for a CPU before.
const mostOver = 0.25

// judge rejects transfers in which the lab failed, and not the device, or for reasons that there are.
func (b *openBlock) judge(ctx context.Context, t *Transfer, r bench.Rejects, before, after bench.Reading) error {
	ended, err := b.Ended(ctx)
	if err = errors.Join(err, ended.Err()); err != nil {
		return err
	}
	t.ThreadNs = bench.UsageOf(before.Router, after.Router).ThreadNs
	seconds := float64(after.Router.MonotonicNs-before.Router.MonotonicNs) / 1e9
	for i, f := range t.Fetched {
		r.If(f.Problem != "" || len(f.Each) < t.Transfers, "transfers: client %d had %d of %s: %s", i+1, len(f.Each),
			words.Counted(t.Transfers, "whole file"), f.Problem)
	}
	if b.speed < 1 {
		t.Share = bench.RouterShare(before, after)
		r.Speed(t.Share, b.speed, " during the transfers")
	}
	r.If(float64(t.Over) > mostOver*float64(t.Intervals),
		"machine: %d of %d intervals at the maximum had more than the link's rate: frames had waited while other programs "+
			"had the CPU", t.Over, t.Intervals)
	r.Steal(bench.Machine(after.Router.Stat.Sub(before.Router.Stat)), seconds, b.CPUs, " during the transfers")
	t.Rejects, t.Accepted = r, len(r) == 0
	return nil
}
