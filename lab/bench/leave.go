package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// Ended lists programs that ended by themselves, a sentence each: those of the device on its router, and those of the
// lab on other hosts.
type Ended struct{ Device, Lab []string }

// err is an error with all sentences, nil when no program has ended. Without this check a router whose gateway has
// ended would be measured as one that costs little.
func (e Ended) err() error {
	var errs []error
	for _, text := range slices.Concat(e.Device, e.Lab) {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// Ended returns the programs that ended by themselves, on all hosts but the clients'.
func (s *Bench) Ended(ctx context.Context) (e Ended, err error) {
	for _, h := range s.Lab.Hosts {
		if h.Role == backend.RoleClient {
			continue // their programs are the traffic generators, whose end is reported as broken streams
		}
		list, err := h.Programs(ctx)
		if err != nil {
			return e, err
		}
		for _, p := range list {
			if !p.Ended {
				continue
			}
			output := cmp.Or(p.Output, "it printed nothing")
			text := fmt.Sprintf("%s on %s ended by itself: %s: %s", p.Name, h.Name, p.Status, output)
			if h.Metered {
				e.Device = append(e.Device, text)
			} else {
				e.Lab = append(e.Lab, text)
			}
		}
	}
	return e, nil
}

// Running returns an error when a program of any of the labs has ended by itself.
func Running(ctx context.Context, labs ...*Bench) error {
	var errs []error
	for _, s := range labs {
		ended, err := s.Ended(ctx)
		errs = append(errs, err, ended.err())
	}
	return errors.Join(errs...)
}

// withEndedPrograms adds to an error the programs that ended by themselves, because a client's own error only says that
// nothing listens. It works also when ctx has ended.
func (s *Bench) withEndedPrograms(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endedTimeout)
	defer cancel()
	if ended, unknown := s.Ended(ctx); unknown == nil && ended.err() != nil {
		return fmt.Errorf("%w; %w", err, ended.err())
	}
	return err
}

// endedTimeout bounds how long withEndedPrograms waits for the hosts' lists of programs.
const endedTimeout = 10 * time.Second

// CauseOf is why something went wrong in labs: the hosts whose agents have ended, or else err. A
// lost host takes its links along, and a request that needs one of them then fails too.
func CauseOf(err error, labs ...*topology.Lab) error {
	var lost []error
	for _, l := range labs {
		for _, h := range l.Hosts {
			lost = append(lost, h.Err())
		}
	}
	return cmp.Or(errors.Join(lost...), err)
}

// leaveTimeout bounds each step of leaving; what it leaves undone ends with the hosts all the same.
const leaveTimeout = 2 * time.Minute

// Leave logs out clients that have commands for it, or has the device revoke them, proves that they are kept out again,
// gives the leases back and stops the device, as a real network would see it happen. Sessions of the portals the lab
// knows end with the device: openNDS takes seconds for them. Among its errors is a *NotBlocked where clients were not
// kept out; all others say nothing of what was measured before.
func (s *Bench) Leave(ctx context.Context) error {
	errs := []error{s.step(ctx, "stopping the traffic", s.StopTraffic)}
	out := s.step(ctx, "logging the clients out", s.logOutOrRevoke)
	if out == nil {
		out = s.step(ctx, "proving that the clients are kept out again", s.proveBlockedAfterLeaving)
	}
	errs = append(errs, out, s.step(ctx, "releasing the leases", func(ctx context.Context) error {
		return s.EachHost(func(_ int, h ClientHost) error { return h.Release(ctx) })
	}))
	return errors.Join(append(errs, s.StopDevice(ctx))...)
}

// logOutOrRevoke has clients log out by their commands, or the device revoke them.
func (s *Bench) logOutOrRevoke(ctx context.Context) (err error) {
	if adm := s.Traits.Admission; adm.Kind == client.AdmitCommand {
		err = s.EachHost(func(_ int, h ClientHost) error { return h.Logout(ctx, adm) })
	}
	if adm, ok := s.DUT.(dut.Admitter); ok {
		err = errors.Join(err, adm.Revoke(ctx, s.Env, s.Clients))
	}
	return err
}

// Leaver is a lab of a block that can be left.
type Leaver interface {
	// Leave undoes what the lab's device and clients did, as a real network would see it happen.
	Leave(ctx context.Context) error
	// Close ends the hosts, and with them all that Leave did not undo.
	Close() error
}

// End leaves labs, ends their hosts, and returns how their block ended. What goes wrong when labs are left costs no
// trial: note is called with it, unless the block failed, after which it says nothing new. Only clients that were not
// kept out again are an error of the block.
func End(ctx context.Context, err error, note func(left error), labs ...Leaver) error {
	if ctx.Err() == nil { // after Ctrl-C the hosts just end
		left := backend.Each(labs, func(_ int, l Leaver) error { return l.Leave(ctx) })
		if open := new(NotBlocked); errors.As(left, &open) {
			err = errors.Join(err, left)
		} else if left != nil && err == nil {
			note(left)
		}
	}
	return errors.Join(err, backend.Each(labs, func(_ int, l Leaver) error { return l.Close() }))
}

// StopDevice stops the device alone.
func (s *Bench) StopDevice(ctx context.Context) error {
	return s.step(ctx, "stopping the device", func(ctx context.Context) error { return s.DUT.Stop(ctx, s.Env) })
}

// step is one step of leaving. It ends when a host is lost: what waits for it would wait until leaveTimeout, and the
// other hosts undo what they have when they end.
func (s *Bench) step(ctx context.Context, what string, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	for _, h := range s.Lab.Hosts {
		go func() { // ends with the step
			select {
			case <-h.Done():
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	if err := fn(ctx); err != nil {
		return fmt.Errorf("%s in lab %s: %w", what, s.Lab.Name, CauseOf(err, s.Lab))
	}
	return nil
}

// Close ends the lab's hosts, and with them all that Leave did not undo.
func (s *Bench) Close() error {
	if s.Lab == nil {
		return nil
	}
	return s.Lab.Close()
}
