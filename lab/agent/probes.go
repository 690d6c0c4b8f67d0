package agent

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"

	"github.com/gateweigh/gateweigh/lab/traffic/transition"
)

// probes is a host's part in measuring transition times, that is when a packet passes which point of a path. It sends
// and receives probe packets, and its taps note when frames pass an interface: see package transition.
type probes struct {
	mu       sync.Mutex           // guards what follows
	receiver *transition.Receiver // nil before ServeProbes
	tap      *transition.Tap      // nil before OpenTap
}

func (p *probes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.receiver != nil {
		p.receiver.Close()
	}
	if p.tap != nil {
		_ = p.tap.Close() // without success the kernel closes it when this process ends
	}
}

var errNoTap = errors.New("no interface of this host is tapped")

// OpenTap attaches taps to interfaces of the host, until the agent ends.
func (a *Agent) OpenTap(_ context.Context, points []transition.Point) (err error) {
	p := &a.probes
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tap != nil {
		return errors.New("interfaces of this host are tapped already")
	}
	p.tap, err = transition.OpenTap(points)
	if err != nil {
		p.tap = nil
	}
	return err
}

// TapLengths makes the taps note only frames of these lengths, bytes with the Ethernet header.
func (a *Agent) TapLengths(_ context.Context, lengths []int) error {
	a.probes.mu.Lock()
	defer a.probes.mu.Unlock()
	if a.probes.tap == nil {
		return errNoTap
	}
	return a.probes.tap.Want(lengths)
}

// ReadTap returns the frames that the taps have noted since the last call.
func (a *Agent) ReadTap(context.Context) ([]transition.Event, error) {
	a.probes.mu.Lock()
	defer a.probes.mu.Unlock()
	if a.probes.tap == nil {
		return nil, errNoTap
	}
	return a.probes.tap.Read()
}

// ServeProbes begins to receive probes, until the agent ends. The receiving thread runs on the CPUs of the host's
// programs: on a gateway, those of the gateway.
func (a *Agent) ServeProbes(ctx context.Context, addr netip.AddrPort) (err error) {
	a.probes.mu.Lock()
	defer a.probes.mu.Unlock()
	if a.probes.receiver != nil {
		return errors.New("this host receives probes already")
	}
	a.probes.receiver, err = transition.Receive(context.WithoutCancel(ctx), addr, a.bindToProgramCPUs)
	return err
}

// TakeProbes returns the probes received of the run with this number. A run is one sequence of probes.
func (a *Agent) TakeProbes(_ context.Context, run uint32) (transition.Receiving, error) {
	a.probes.mu.Lock()
	defer a.probes.mu.Unlock()
	if a.probes.receiver == nil {
		return transition.Receiving{}, errors.New("this host receives no probes")
	}
	return a.probes.receiver.Take(run), nil
}

// SendProbes sends a run of probes, and returns when all are sent. The sending thread runs on the CPUs of the host's
// programs.
func (a *Agent) SendProbes(ctx context.Context, run transition.Run) (s transition.Sending, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so the thread, which is bound to CPUs, ends with the goroutine
		if err = a.bindToProgramCPUs(); err == nil {
			s, err = transition.Send(ctx, run)
		}
	}()
	<-done
	return s, err
}

// bindToProgramCPUs binds the calling thread to the CPUs of the host's programs.
func (a *Agent) bindToProgramCPUs() error { return setAffinity(0, a.opts.ProgramCPUs) }
