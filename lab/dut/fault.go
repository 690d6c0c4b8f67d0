package dut

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// Fault is something that happens to a gateway while clients use it.
type Fault string

// Faults. Those of one gateway alone come first.
const (
	FaultNone    Fault = "none"    // nothing: what the lab itself loses
	FaultRestart Fault = "restart" // the gateway is asked to end, and started again at once
	FaultKill    Fault = "kill"    // kill -9 of the active gateway's daemon; one alone is started again at once
	FaultLink    Fault = "link"    // the active gateway's link towards the clients goes down, and stays so
	FaultPower   Fault = "power"   // all programs and links of the active gateway end at once, and stay so
	FaultStore   Fault = "store"   // kill -9 of the store's server, which stays away
	FaultSwitch  Fault = "switch"  // the operator has the other gateway take over
)

// Faults lists all faults.
func Faults() []string {
	return []string{string(FaultNone), string(FaultRestart), string(FaultKill), string(FaultLink), string(FaultPower),
		string(FaultStore), string(FaultSwitch)}
}

// Failing is a device of which the lab can cause faults.
type Failing interface {
	DUT
	// Refused says why the lab cannot cause a fault of this device, as the end of a sentence; empty: it can.
	Refused(f Fault) string
	// Cause causes a fault, and does what would be done on the gateway at once: it starts a daemon again. It returns when
	// that is done, which may be long after the fault. FaultPower is the lab's own to cause: see Powered.
	Cause(ctx context.Context, env Env, f Fault) error
}

// Powered is a device that loses a host by FaultPower.
type Powered interface {
	Failing
	// PowerOf names the host that has the active gateway.
	PowerOf(ctx context.Context, env Env) (string, error)
}

// alone says why a single gateway lacks a fault; empty: it has it.
func alone(f Fault) string {
	switch f {
	case FaultLink, FaultPower:
		return "it is one gateway, which nobody replaces: its clients wait until it is back"
	case FaultStore:
		return "it has no store beside it"
	case FaultSwitch:
		return "there is no other gateway"
	}
	return ""
}

// endingTime is how long a gateway that is asked to end may take. openNDS logs its clients out one by one.
const endingTime = time.Minute

// restart ends a daemon of the router, at once or in order, and starts it again with its command.
func (p *portal) restart(ctx context.Context, name string, f Fault) error {
	i := slices.IndexFunc(p.daemons, func(d daemon) bool { return d.name == name })
	if i < 0 {
		return fmt.Errorf("%s was not started", name)
	}
	if _, err := p.daemons[i].host.End(ctx, endingFor(name, f)); err != nil {
		return fmt.Errorf("ending %s: %w", name, err)
	}
	return p.daemons[i].spawn(ctx, p.daemons[i].argv...)
}

// endingFor is how a daemon ends by a fault: asked for FaultRestart, else killed.
func endingFor(name string, f Fault) agent.Ending {
	signals := []syscall.Signal{syscall.SIGKILL}
	if f == FaultRestart {
		signals = []syscall.Signal{syscall.SIGTERM}
	}
	return agent.Ending{Name: name, Signals: signals, Grace: endingTime}
}

// cause is Failing.Cause of a portal that is one daemon of the router.
func (p *portal) cause(ctx context.Context, name string, f Fault) error {
	if f == FaultNone {
		return nil
	}
	return p.restart(ctx, name, f)
}

var _, _, _ Failing = (*Gateway)(nil), (*OpenNDS)(nil), (*CoovaChilli)(nil)

// Refused implements Failing.
func (g *Gateway) Refused(f Fault) string     { return alone(f) }
func (o *OpenNDS) Refused(f Fault) string     { return alone(f) }
func (c *CoovaChilli) Refused(f Fault) string { return alone(f) }

// Cause implements Failing.
func (g *Gateway) Cause(ctx context.Context, _ Env, f Fault) error {
	return g.cause(ctx, "gatewayd", f)
}

// Cause implements Failing.
func (c *CoovaChilli) Cause(ctx context.Context, _ Env, f Fault) error {
	return c.cause(ctx, "chilli", f)
}

// Cause implements Failing. Unlike Start it does not take the fault out of the new daemon that opennds-settle.sh
// explains: clients would wait for that. Where the daemon then ends by itself, the record says so.
func (o *OpenNDS) Cause(ctx context.Context, _ Env, f Fault) error {
	return o.cause(ctx, "opennds", f)
}

var _ Failing = (*Custom)(nil)

// Refused implements Failing.
func (c *Custom) Refused(f Fault) string {
	if f == FaultKill && len(c.spec.Daemon) == 0 {
		return "its table has no daemon to kill"
	}
	return alone(f)
}

// Cause implements Failing. A device without a daemon is stopped and started by its commands.
func (c *Custom) Cause(ctx context.Context, env Env, f Fault) error {
	switch {
	case f == FaultNone:
		return nil
	case len(c.spec.Daemon) == 0:
		if err := c.Stop(ctx, env); err != nil {
			return err
		}
		return c.Start(ctx, env)
	}
	p := c.places[0]
	if _, err := p.End(ctx, endingFor(p.daemon.name, f)); err != nil {
		return err
	}
	return c.spawn(ctx, p)
}
