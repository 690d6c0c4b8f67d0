package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/profile"
)

// machineMethods are what every agent answers for the machine it runs on.
func (a *Agent) machineMethods() map[string]handler {
	return map[string]handler{
		"hello":            method(a.hello),
		"machine.read":     method(readMachine),
		"machine.load":     method(readLoad),
		"machine.find":     method(find),
		"machine.busiest":  method(busiest),
		"machine.loops":    method(runLoops),
		"machine.accounts": method(readAccounts),
		"perf.start":       method(a.perfStart),
		"perf.stop":        method(a.perfStop),
		"perf.read":        method(a.perfRead),
	}
}

func readMachine(context.Context, none) (machine.Machine, error) { return machine.Read() }
func readLoad(context.Context, none) (machine.Load, error)       { return machine.ReadLoad() }

func find(ctx context.Context, q machine.Query) ([]machine.Found, error) {
	return machine.Find(ctx, q), nil
}

func busiest(ctx context.Context, _ none) ([]machine.User, error) { return machine.Busiest(ctx) }

// loops says where fixed loops run, and how long.
type loops struct {
	CPUs   []int         `json:"cpus"`
	Length time.Duration `json:"length"`
}

func runLoops(_ context.Context, l loops) ([]machine.Loop, error) {
	return machine.RunLoops(l.CPUs, l.Length), nil
}

// routerCPUs says whose accounts are read, and on which CPUs.
type routerCPUs struct {
	Router []int `json:"router"`
	Own    []int `json:"own"`
}

func readAccounts(_ context.Context, c routerCPUs) (machine.Accounts, error) {
	return machine.ReadAccounts(c.Router, c.Own), nil
}

// Machine asks what the agent's machine is.
func (c *Conn) Machine(ctx context.Context) (m machine.Machine, err error) {
	err = c.call(ctx, "machine.read", none{}, &m)
	return m, err
}

// Load asks how much of the machine is taken now.
func (c *Conn) Load(ctx context.Context) (l machine.Load, err error) {
	err = c.call(ctx, "machine.load", none{}, &l)
	return l, err
}

// Find looks for programs and features of the kernel, in the order of the query.
func (c *Conn) Find(ctx context.Context, q machine.Query) (list []machine.Found, err error) {
	err = c.call(ctx, "machine.find", q, &list)
	if err == nil && len(list) != len(q.Needs) {
		err = fmt.Errorf("%d answers to %d questions", len(list), len(q.Needs))
	}
	return list, err
}

// Busiest watches the machine's processes for a second, see machine.Busiest.
func (c *Conn) Busiest(ctx context.Context) (list []machine.User, err error) {
	err = c.call(ctx, "machine.busiest", none{}, &list)
	return list, err
}

// RunLoops runs fixed loops, see machine.RunLoops.
func (c *Conn) RunLoops(ctx context.Context, cpus []int, length time.Duration) (list []machine.Loop, err error) {
	err = c.call(ctx, "machine.loops", loops{cpus, length}, &list)
	return list, err
}

// ReadAccounts reads the accounts of the routers' threads, see machine.ReadAccounts.
func (c *Conn) ReadAccounts(ctx context.Context, router, own []int) (a machine.Accounts, err error) {
	err = c.call(ctx, "machine.accounts", routerCPUs{router, own}, &a)
	return a, err
}

// Perf says what perf is to sample.
type Perf struct {
	Programs []int `json:"programs"` // processes whose stacks are to be unwound
	CPUs     []int `json:"cpus"`     // sampled
	Own      []int `json:"own"`      // of perf itself
}

// PerfStarted says how perf samples.
type PerfStarted struct {
	Recording  int    `json:"recording"`   // its number, for ReadPerf
	UserStacks string `json:"user_stacks"` // profile.UnwindFP or profile.UnwindDWARF
	Version    string `json:"version"`     // of perf
}

var errNoPerf = errors.New("perf does not run on this host")

// perfData is where the data of a recording lies: tens of megabytes, of no use once read.
func (a *Agent) perfData(recording int) string {
	return filepath.Join(a.opts.LogDir, "perf", fmt.Sprintf("perf.data.%d", recording))
}

func (a *Agent) perfStart(ctx context.Context, p Perf) (s PerfStarted, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.recorder != nil {
		return s, errors.New("perf runs already")
	}
	if err := profile.Available(); err != nil {
		return s, err
	}
	dir := filepath.Dir(a.perfData(0))
	if a.recordings == 0 { // what a lab that was killed has left
		err = os.RemoveAll(dir)
	}
	if err = errors.Join(err, os.MkdirAll(dir, 0o755)); err != nil {
		return s, fmt.Errorf("making a folder for perf's data: %w", err)
	}
	s = PerfStarted{a.recordings, profile.Unwind(p.Programs), profile.PerfVersion(ctx)}
	a.recordings++
	// Not the request's context: perf outlives the request.
	a.recorder, err = profile.Start(context.WithoutCancel(ctx), a.perfData(s.Recording), s.UserStacks, p.CPUs, p.Own)
	return s, err
}

func (a *Agent) perfStop(ctx context.Context, _ none) (none, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.recorder == nil {
		return none{}, errNoPerf
	}
	r := a.recorder
	a.recorder = nil
	return none{}, r.Stop(ctx)
}

// perfRead reads the data of a recording and removes it.
func (a *Agent) perfRead(ctx context.Context, recording int) (*profile.Recording, error) {
	defer func() {
		os.Remove(a.perfData(recording))
		os.Remove(filepath.Dir(a.perfData(0))) // once it is empty
	}()
	return profile.Read(ctx, a.perfData(recording))
}

// StartPerf has perf sample some CPUs of the agent's machine until StopPerf; samples are
// being taken when it returns.
func (c *Conn) StartPerf(ctx context.Context, p Perf) (s PerfStarted, err error) {
	err = c.call(ctx, "perf.start", p, &s)
	return s, err
}

// StopPerf ends the recording. In any case perf has ended when it returns.
func (c *Conn) StopPerf(ctx context.Context) error { return c.call(ctx, "perf.stop", none{}, nil) }

// ReadPerf returns the samples of a recording, once.
func (c *Conn) ReadPerf(ctx context.Context, recording int) (rec *profile.Recording, err error) {
	err = c.call(ctx, "perf.read", recording, &rec)
	return rec, err
}
