package agent

import (
	"context"
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/traffic/rtt"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
)

// The lab's verbs on a host. Each is one request; all end when ctx does.

// Hello asks the agent for its process.
func (c *Conn) Hello(ctx context.Context) (h Hello, err error) {
	err = c.call(ctx, "hello", none{}, &h)
	return h, err
}

// Run executes a command to its end. An exit status other than zero is an
// error with the last lines of its output; the output is returned either way.
func (c *Conn) Run(ctx context.Context, cmd Command) (out Output, err error) {
	err = c.call(ctx, "run", cmd, &out)
	return out, err
}

// Spawn starts a long-running command.
func (c *Conn) Spawn(ctx context.Context, cmd Command) error {
	return c.call(ctx, "spawn", cmd, nil)
}

// Kill ends a spawned command; an unknown or ended one is no error.
func (c *Conn) Kill(ctx context.Context, name string) error { return c.call(ctx, "kill", name, nil) }

// Programs lists the spawned commands that were not killed, by name.
func (c *Conn) Programs(ctx context.Context) (list []Program, err error) {
	err = c.call(ctx, "programs", none{}, &list)
	return list, err
}

// WriteFile writes a file as the host's programs see it, with its directories.
func (c *Conn) WriteFile(ctx context.Context, path string, data []byte, mode uint32) error {
	return c.call(ctx, "file.write", File{path, data, mode}, nil)
}

// AddPair makes a link to another host on the same machine.
func (c *Conn) AddPair(ctx context.Context, p Pair) error { return c.call(ctx, "net.pair", p, nil) }

// Apply configures the host's links and routes.
func (c *Conn) Apply(ctx context.Context, n Network) error { return c.call(ctx, "net.apply", n, nil) }

// AddNeighbours enters machines on a link into the neighbour table of the host.
func (c *Conn) AddNeighbours(ctx context.Context, n Neighbours) error {
	return c.call(ctx, "net.neighbours", n, nil)
}

// OpenMeter prepares the host's meter; again after links, clients or support programs changed.
func (c *Conn) OpenMeter(ctx context.Context, m Meter) error {
	return c.call(ctx, "meter.open", m, nil)
}

// Sample reads the host's meter.
func (c *Conn) Sample(ctx context.Context) (s meter.Sample, err error) {
	err = c.call(ctx, "meter.sample", none{}, &s)
	return s, err
}

// PSSMiB is the memory of the host's counted programs, MiB.
func (c *Conn) PSSMiB(ctx context.Context) (mib float64, err error) {
	err = c.call(ctx, "meter.pss", none{}, &mib)
	return mib, err
}

// CreateClients makes the simulated clients.
func (c *Conn) CreateClients(ctx context.Context, cfg client.Config) error {
	return c.call(ctx, "client.create", cfg, nil)
}

// Clients lists the clients with their addresses.
func (c *Conn) Clients(ctx context.Context) (list []client.Address, err error) {
	err = c.call(ctx, "client.list", none{}, &list)
	return list, err
}

// Lease has all clients ask for their addresses, at a pace. A client that got none is no
// error: see client.GaveUp.
func (c *Conn) Lease(ctx context.Context, pace client.Pace) (list []client.Outcome, err error) {
	err = c.call(ctx, "client.lease", pace, &list)
	return list, err
}

// Login has all clients log in, at a pace. A client that was not admitted is no error: see
// client.GaveUp.
func (c *Conn) Login(ctx context.Context, adm client.Admission, pace client.Pace) (list []client.Outcome, err error) {
	err = c.call(ctx, "client.login", logins{adm, pace}, &list)
	return list, err
}

// Status asks the portal whether it counts each client as admitted, at a pace; the
// outcome of one that is not says so.
func (c *Conn) Status(ctx context.Context, adm client.Admission, pace client.Pace) (list []client.Outcome, err error) {
	err = c.call(ctx, "client.status", logins{adm, pace}, &list)
	return list, err
}

// Logout logs all clients out.
func (c *Conn) Logout(ctx context.Context, adm client.Admission) error {
	return c.call(ctx, "client.logout", adm, nil)
}

// Release gives all clients' leases back.
func (c *Conn) Release(ctx context.Context) error { return c.call(ctx, "client.release", none{}, nil) }

// Visit has the guests come and go from now on.
func (c *Conn) Visit(ctx context.Context, churn client.Churn) error {
	return c.call(ctx, "client.visit", churn, nil)
}

// Leave ends the arrivals of guests, waits until all have left, and returns the counts.
func (c *Conn) Leave(ctx context.Context) (v client.Visits, err error) {
	err = c.call(ctx, "client.leave", none{}, &v)
	return v, err
}

// ServeTraffic prepares the server's side of a load.
func (c *Conn) ServeTraffic(ctx context.Context, t Traffic) error {
	return c.call(ctx, "traffic.serve", t, nil)
}

// StartTraffic starts a load from the client host.
func (c *Conn) StartTraffic(ctx context.Context, t Traffic) error {
	return c.call(ctx, "traffic.start", t, nil)
}

// TrafficStats reads the counters of the host's side of the load.
func (c *Conn) TrafficStats(ctx context.Context) (s TrafficStats, err error) {
	err = c.call(ctx, "traffic.stats", none{}, &s)
	return s, err
}

// ShortStats counts the load's short connections since it began; all zero without any.
func (c *Conn) ShortStats(ctx context.Context) (s short.Stats, err error) {
	err = c.call(ctx, "traffic.short", none{}, &s)
	return s, err
}

// MarkTraffic has the host count what its streams received each from now on.
func (c *Conn) MarkTraffic(ctx context.Context) error {
	return c.call(ctx, "traffic.mark", none{}, nil)
}

// StopTraffic ends the host's side of the load; without one it does nothing.
func (c *Conn) StopTraffic(ctx context.Context) error {
	return c.call(ctx, "traffic.stop", none{}, nil)
}

// StartRTT begins probing the server's round-trip time from the clients.
func (c *Conn) StartRTT(ctx context.Context, server netip.Addr) error {
	return c.call(ctx, "rtt.start", server, nil)
}

// TakeRTT returns the round-trip times since the last call.
func (c *Conn) TakeRTT(ctx context.Context) (r rtt.Times, err error) {
	err = c.call(ctx, "rtt.take", none{}, &r)
	return r, err
}
