package transfer

import (
	"context"
	"errors"
	"time"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Run returns the functions that measure the blocks of one run.
func (Measure) Run() runner.Measure { return runner.Measure{Block: carryOut} }

// openBlock is a block whose lab is open or is being built.
type openBlock struct {
	*runner.Session
	experiment.Block
	*bench.Bench
	setup time.Duration
	speed float64 // share of their CPU that the routers have
	kind  client.Kind
	hosts []address // one a client, in their order
}

// address is the host and the IP address of a client.
type address struct {
	host   *backend.Host
	num    int // number among the host's clients, from 1
	client client.Address
}

// carryOut measures all cells of a block in one lab. The lab has as many clients as the largest cell; in each cell, the
// first of them fetch at the same time.
func carryOut(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	b := &openBlock{Session: s, Block: eb, speed: eb.Cell.Number(RouterSpeed)}
	restore, err := s.Slow(ctx, b.speed, keySpeeds)
	if err != nil {
		return nil, err
	}
	s.Status("%s: building the lab", s.Name(eb))
	start, labs := time.Now(), s.Labs(eb)
	labs.Ends.RateMbps = linkMbps.Value(s.Experiment)
	if b.speed < 1 {
		labs.Slowed, labs.Speed = s.Machine, b.speed
	}
	err = labs.Admitted(ctx, func(lab *bench.Bench) error {
		b.Bench, b.kind = lab, client.KindOf(lab.Side.Client)
		if err := serve(ctx, b.Server, fileBytes(b.Experiment)); err != nil {
			return err
		}
		if err := b.findClients(ctx); err != nil {
			return err
		}
		b.setup = time.Since(start)
		return b.cells(ctx)
	})
	return nil, errors.Join(err, restore())
}

// findClients lists the host and the address of each client.
func (b *openBlock) findClients(ctx context.Context) error {
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
		err := b.MeasureWindow(b.Block, cell, 0, KindTransfer, func(runner.Attempt) (result.Record, []string, error) {
			return b.transfer(ctx, cell)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// transfer has the cell's clients fetch their files while it samples the router. It returns the record and the
// reasons to reject it.
func (b *openBlock) transfer(ctx context.Context, cell result.Cell) (*Transfer, []string, error) {
	e, n := b.Experiment, cell.Int(result.Clients)
	b.Status("%s: %d of %s fetch", b.Name(b.Block), n, words.Counted(len(b.hosts), "client"))
	t := &Transfer{SetupSeconds: b.setup.Seconds(), LinkMbps: linkMbps.Value(e), FileBytes: fileBytes(e),
		Transfers: transfers.Value(e)}
	t.SetCell(cell)
	before, err := b.ReadMeters(ctx)
	if err != nil {
		return t, nil, err
	}
	first, err := b.Router.Sample(ctx)
	if err != nil {
		return t, nil, err
	}
	s := &sampler{openBlock: b, first: first, t: t}
	var failedProof bench.Rejects
	err = s.sampleDuring(ctx, func() error {
		return backend.Together(
			func() error { return b.fetchAll(ctx, t) },
			func() error { return failedProof.ProveSoon(ctx, b.Bench) })
	})
	if err != nil {
		return t, nil, err
	}
	after, err := b.ReadMeters(ctx)
	if err != nil {
		return t, nil, err
	}
	t.Figures = figuresOf(t.Samples, t.LinkMbps*1e3/8)
	t.ThreadNs = bench.UsageOf(before.Router, after.Router).ThreadNs
	w := b.Window(before, after, " during the transfers")
	t.Share = w.Share
	over := bench.RejectIf(float64(t.Over) > maxOverShare*float64(t.Intervals),
		"machine: %d of %d intervals at the maximum had more than the link's rate: "+
			"frames had waited while other programs had the CPU", t.Over, t.Intervals)
	rejects, err := b.Judge(ctx, bench.RejectFor(failedProof...), t.checkFiles, w.Speed, over, w.Steal)
	return t, rejects, err
}

// fetchAll has the cell's clients fetch at the same time, and returns when the last of them has ended.
func (b *openBlock) fetchAll(ctx context.Context, t *Transfer) (err error) {
	// The time limit suffices for a device that carries a hundredth of the link's rate.
	const slowest = 100
	most := time.Minute + slowest*fullLinkTime(b.Experiment, t.Clients)/time.Duration(t.Transfers)
	t.Fetched, err = bench.Each(b.hosts[:t.Clients], func(_ int, a address) (Fetched, error) {
		return fetch(ctx, a.host, a.num, b.kind.Shared, a.client.IP, b.Env.ServerIP, t.Transfers, t.FileBytes, most)
	})
	return err
}

// maxOverShare is the highest share of the intervals at maximum load that may show more than the link's rate. The
// rate of an interval exceeds the link's if frames waited for a CPU before it.
const maxOverShare = 0.25

// checkFiles rejects a transfer in which a client did not get all its files.
func (t *Transfer) checkFiles(r *bench.Rejects) error {
	for i, f := range t.Fetched {
		r.AddIf(f.Problem != "" || len(f.Each) < t.Transfers, "transfers: client %d had %d of %s: %s",
			i+1, len(f.Each), words.Counted(t.Transfers, "whole file"), f.Problem)
	}
	return nil
}
