package agent

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/rtt"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
	"github.com/gateweigh/gateweigh/lab/traffic/transition"
)

// The lab's verbs on a host. Each is one request, carried out by the method of the same
// name of Agent or client.Pool; all end when ctx does.

// Hello asks the agent for its process.
func (c *Conn) Hello(ctx context.Context) (Hello, error) { return ask[Hello](ctx, c, "Hello") }

// Machine asks what the agent's machine is.
func (c *Conn) Machine(ctx context.Context) (machine.Machine, error) {
	return ask[machine.Machine](ctx, c, "Machine")
}

// Load asks how much of the machine is taken now.
func (c *Conn) Load(ctx context.Context) (machine.Load, error) {
	return ask[machine.Load](ctx, c, "Load")
}

// Clock asks what keeps the machine's clock right, see machine.ReadClock.
func (c *Conn) Clock(ctx context.Context) (machine.Clock, error) {
	return ask[machine.Clock](ctx, c, "Clock")
}

// Find looks for programs and features of the kernel, in the order of the query.
func (c *Conn) Find(ctx context.Context, q machine.Query) ([]machine.Found, error) {
	list, err := ask[[]machine.Found](ctx, c, "Find", q)
	if err == nil && len(list) != len(q.Needs) {
		err = fmt.Errorf("%d answers to %d questions", len(list), len(q.Needs))
	}
	return list, err
}

// Busiest watches the machine's processes for a second, see machine.Busiest.
func (c *Conn) Busiest(ctx context.Context) ([]machine.User, error) {
	return ask[[]machine.User](ctx, c, "Busiest")
}

// RefusedLinks asks why interfaces of the machine may not be taken, in their order; empty: one may. connection is what
// sshd there calls SSH_CONNECTION.
func (c *Conn) RefusedLinks(ctx context.Context, links []string, connection string) ([]string, error) {
	list, err := ask[[]string](ctx, c, "RefusedLinks", links, connection)
	if err == nil && len(list) != len(links) {
		err = fmt.Errorf("%d answers about %d interfaces", len(list), len(links))
	}
	return list, err
}

// RunLoops runs fixed loops, see machine.RunLoops.
func (c *Conn) RunLoops(ctx context.Context, cpus []int, length time.Duration) ([]machine.Loop, error) {
	return ask[[]machine.Loop](ctx, c, "RunLoops", cpus, length)
}

// ReadAccounts reads the accounts of the routers' threads, see machine.ReadAccounts.
func (c *Conn) ReadAccounts(ctx context.Context, routers machine.Routers, ownPIDs []int) (machine.Accounts, error) {
	return ask[machine.Accounts](ctx, c, "ReadAccounts", routers, ownPIDs)
}

// Slow slows CPUs of the agent's machine down until the agent ends. They are slow when it returns.
func (c *Conn) Slow(ctx context.Context, s Slow) error { return c.do(ctx, "Slow", s) }

// ReadSlow reads how much of the CPUs' time the slowing has taken, in the order of Slow.CPUs.
func (c *Conn) ReadSlow(ctx context.Context) ([]burn.CPUTime, error) {
	return ask[[]burn.CPUTime](ctx, c, "ReadSlow")
}

// StartPerf has perf sample some CPUs of the agent's machine until StopPerf; samples are
// being taken when it returns.
func (c *Conn) StartPerf(ctx context.Context, p Perf) (PerfStarted, error) {
	return ask[PerfStarted](ctx, c, "StartPerf", p)
}

// StopPerf ends the recording. In any case perf has ended when it returns.
func (c *Conn) StopPerf(ctx context.Context) error { return c.do(ctx, "StopPerf") }

// ReadPerf returns the samples of a recording, once.
func (c *Conn) ReadPerf(ctx context.Context, recording int) (*profile.Recording, error) {
	return ask[*profile.Recording](ctx, c, "ReadPerf", recording)
}

// Run executes a command to its end. An exit status other than zero is an
// error with the last lines of its output; the output is returned either way.
func (c *Conn) Run(ctx context.Context, cmd Command) (Output, error) {
	return ask[Output](ctx, c, "Run", cmd)
}

// Spawn starts a long-running command.
func (c *Conn) Spawn(ctx context.Context, cmd Command) error { return c.do(ctx, "Spawn", cmd) }

// End ends a spawned command and returns how it ended and what it printed. An unknown name is the zero Program.
func (c *Conn) End(ctx context.Context, e Ending) (Program, error) {
	return ask[Program](ctx, c, "End", e)
}

// Programs lists the spawned commands that End has not ended, by name.
func (c *Conn) Programs(ctx context.Context) ([]Program, error) {
	return ask[[]Program](ctx, c, "Programs")
}

// Logs reads what the host's spawned programs have printed, by the names of their log files: of each the end.
func (c *Conn) Logs(ctx context.Context) (map[string]string, error) {
	return ask[map[string]string](ctx, c, "Logs")
}

// WriteFile writes a file as the host's programs see it, with its directories.
func (c *Conn) WriteFile(ctx context.Context, path string, data []byte, mode uint32) error {
	return c.do(ctx, "WriteFile", path, data, mode)
}

// Install returns the file by which the host's programs reach a program of its machine;
// where that takes a copy, it is put into dir.
func (c *Conn) Install(ctx context.Context, n machine.Need, dir string) (string, error) {
	return ask[string](ctx, c, "Install", n, dir)
}

// Namespaces says where the programs of the host run, or of its client N; 0 is the host itself.
func (c *Conn) Namespaces(ctx context.Context, client int) (Namespaces, error) {
	return ask[Namespaces](ctx, c, "Namespaces", client)
}

// AddVethPair makes a link to another host on the same machine.
func (c *Conn) AddVethPair(ctx context.Context, p VethPair) error { return c.do(ctx, "AddVethPair", p) }

// Apply configures the host's links and routes.
func (c *Conn) Apply(ctx context.Context, n Network) error { return c.do(ctx, "Apply", n) }

// AwaitLinks waits until interfaces of the host have a carrier.
func (c *Conn) AwaitLinks(ctx context.Context, names []string) error {
	return c.do(ctx, "AwaitLinks", names)
}

// LinkAddresses asks for the hardware addresses of the host's interfaces, by name.
func (c *Conn) LinkAddresses(ctx context.Context) (map[string]string, error) {
	return ask[map[string]string](ctx, c, "LinkAddresses")
}

// ReadPorts asks how interfaces of the host are set, in their order.
func (c *Conn) ReadPorts(ctx context.Context, names []string) ([]result.Port, error) {
	list, err := ask[[]result.Port](ctx, c, "ReadPorts", names)
	if err == nil && len(list) != len(names) {
		err = fmt.Errorf("%d answers about %d interfaces", len(list), len(names))
	}
	return list, err
}

// AddNeighbours enters machines on a link into the neighbour table of the host.
func (c *Conn) AddNeighbours(ctx context.Context, n Neighbours) error {
	return c.do(ctx, "AddNeighbours", n)
}

// OpenMeter prepares the host's meter; again after links, clients or support programs changed.
func (c *Conn) OpenMeter(ctx context.Context, m Meter) error { return c.do(ctx, "OpenMeter", m) }

// Sample reads the host's meter.
func (c *Conn) Sample(ctx context.Context) (meter.Sample, error) {
	return ask[meter.Sample](ctx, c, "Sample")
}

// PSSMiB is the memory of the host's counted programs, MiB.
func (c *Conn) PSSMiB(ctx context.Context) (float64, error) { return ask[float64](ctx, c, "PSSMiB") }

// Rest reads what the host's counted programs still have to do.
func (c *Conn) Rest(ctx context.Context) (meter.Rest, error) { return ask[meter.Rest](ctx, c, "Rest") }

// LineMbps asks for the rate of an interface, Mbit/s; 0: it has none.
func (c *Conn) LineMbps(ctx context.Context, name string) (float64, error) {
	return ask[float64](ctx, c, "LineMbps", name)
}

// WatchCPUs watches CPUs of the host's machine until the agent ends. The text says why it cannot; empty: it does.
func (c *Conn) WatchCPUs(ctx context.Context, cpus []int) (reason string, _ error) {
	return ask[string](ctx, c, "WatchCPUs", cpus)
}

// Away is the longest time for which a watched CPU worked for nobody since the request before: see watch.CPU.
func (c *Conn) Away(ctx context.Context) (time.Duration, error) {
	return ask[time.Duration](ctx, c, "Away")
}

// CreateClients makes the simulated clients.
func (c *Conn) CreateClients(ctx context.Context, cfg client.Config) error {
	return c.do(ctx, "CreateClients", cfg)
}

// Clients lists the clients with their addresses.
func (c *Conn) Clients(ctx context.Context) ([]client.Address, error) {
	return ask[[]client.Address](ctx, c, "Addresses")
}

// Lease has all clients ask for their addresses, at a pace. A client that got none is no
// error: see client.GaveUp.
func (c *Conn) Lease(ctx context.Context, pace client.Pace) ([]client.Outcome, error) {
	return ask[[]client.Outcome](ctx, c, "Lease", pace)
}

// Login has all clients log in, at a pace. A client that was not admitted is no error: see
// client.GaveUp.
func (c *Conn) Login(ctx context.Context, adm client.Admission, pace client.Pace) ([]client.Outcome, error) {
	return ask[[]client.Outcome](ctx, c, "Login", adm, pace)
}

// Arrive has all clients lease and log in, at a pace, each within limit: see client.Pool.
func (c *Conn) Arrive(ctx context.Context, adm client.Admission, pace client.Pace, limit time.Duration) (
	[]client.Outcome, error) {
	return ask[[]client.Outcome](ctx, c, "Arrive", adm, pace, limit)
}

// Status asks the portal whether it counts each client as admitted, at a pace; the
// outcome of one that is not says so.
func (c *Conn) Status(ctx context.Context, adm client.Admission, pace client.Pace) ([]client.Outcome, error) {
	return ask[[]client.Outcome](ctx, c, "Status", adm, pace)
}

// Logout logs all clients out.
func (c *Conn) Logout(ctx context.Context, adm client.Admission) error {
	return c.do(ctx, "Logout", adm)
}

// Release gives all clients' leases back.
func (c *Conn) Release(ctx context.Context) error { return c.do(ctx, "Release") }

// Visit has the guests come and go from now on.
func (c *Conn) Visit(ctx context.Context, churn client.Churn) error { return c.do(ctx, "Visit", churn) }

// Leave ends the arrivals of guests, waits until all have left, and returns the counts.
func (c *Conn) Leave(ctx context.Context) (client.Visits, error) {
	return ask[client.Visits](ctx, c, "Leave")
}

// ServeTraffic prepares the server's side of a load.
func (c *Conn) ServeTraffic(ctx context.Context, t Traffic) error {
	return c.do(ctx, "ServeTraffic", t)
}

// StartTraffic starts a load from the client host.
func (c *Conn) StartTraffic(ctx context.Context, t Traffic) error {
	return c.do(ctx, "StartTraffic", t)
}

// TrafficStats reads the counters of the host's side of the load.
func (c *Conn) TrafficStats(ctx context.Context) (TrafficStats, error) {
	return ask[TrafficStats](ctx, c, "TrafficStats")
}

// ShortStats counts the load's short connections since it began; all zero without any.
func (c *Conn) ShortStats(ctx context.Context) (short.Stats, error) {
	return ask[short.Stats](ctx, c, "ShortStats")
}

// MarkTraffic has the host count what its streams received each from now on.
func (c *Conn) MarkTraffic(ctx context.Context) error { return c.do(ctx, "MarkTraffic") }

// StopTraffic ends the host's side of the load; without one it does nothing.
func (c *Conn) StopTraffic(ctx context.Context) error { return c.do(ctx, "StopTraffic") }

// Appear has all clients lease an address and send pulses, see Agent.Appear.
func (c *Conn) Appear(ctx context.Context, server Server, pace client.Pace, add int) ([]client.Outcome, error) {
	return ask[[]client.Outcome](ctx, c, "Appear", server, pace, add)
}

// SilencePulses ends the clients' pulses; they receive on.
func (c *Conn) SilencePulses(ctx context.Context) error { return c.do(ctx, "SilencePulses") }

// ServeEcho has the server answer round-trip probes; traffic's server does so too.
func (c *Conn) ServeEcho(ctx context.Context, server Server) error {
	return c.do(ctx, "ServeEcho", server)
}

// ServePulses has the host answer pulses of clients until the agent ends: see package pulse.
func (c *Conn) ServePulses(ctx context.Context, server Server) error {
	return c.do(ctx, "ServePulses", server)
}

// SendPulses has all clients of the host that have an address send pulses to the server, until EndPulses.
func (c *Conn) SendPulses(ctx context.Context, server Server) error {
	return c.do(ctx, "SendPulses", server)
}

// MarkPulses has the host count outages from now on.
func (c *Conn) MarkPulses(ctx context.Context) error { return c.do(ctx, "MarkPulses") }

// ReadPulses reads which pulses the host has received.
func (c *Conn) ReadPulses(ctx context.Context) (Pulses, error) {
	return ask[Pulses](ctx, c, "ReadPulses")
}

// EndPulses ends the clients' pulses.
func (c *Conn) EndPulses(ctx context.Context) error { return c.do(ctx, "EndPulses") }

// StartRTT begins probing the server's round-trip time from the clients.
func (c *Conn) StartRTT(ctx context.Context, server Server) error {
	return c.do(ctx, "StartRTT", server)
}

// PathMTU looks for the largest packet that comes back from the server.
func (c *Conn) PathMTU(ctx context.Context, server Server) (rtt.MTU, error) {
	return ask[rtt.MTU](ctx, c, "PathMTU", server)
}

// TakeRTT returns the round-trip times since the last call.
func (c *Conn) TakeRTT(ctx context.Context) (rtt.Times, error) {
	return ask[rtt.Times](ctx, c, "TakeRTT")
}

// StartCourse begins to follow the host's meter.
func (c *Conn) StartCourse(ctx context.Context, q Course) error { return c.do(ctx, "StartCourse", q) }

// TakeCourse ends following it and returns the readings in their order, the first at the window's beginning.
func (c *Conn) TakeCourse(ctx context.Context) ([]meter.Moment, error) {
	return ask[[]meter.Moment](ctx, c, "TakeCourse")
}

// RTTCourse returns the medians of round-trip times by steps of the window that the last TakeRTT ended, µs; 0: no
// answer.
func (c *Conn) RTTCourse(ctx context.Context, step time.Duration) ([]float64, error) {
	return ask[[]float64](ctx, c, "RTTCourse", step)
}

// WatchPort has the host record the knocks that arrive at a port by one of its links, until UnwatchPort.
func (c *Conn) WatchPort(ctx context.Context, link string, d LoadPort) error {
	return c.do(ctx, "WatchPort", link, d)
}

// Arrivals returns the senders of the knocks that arrived since the last call.
func (c *Conn) Arrivals(ctx context.Context) ([]netip.Addr, error) {
	return ask[[]netip.Addr](ctx, c, "Arrivals")
}

// UnwatchPort ends the watch.
func (c *Conn) UnwatchPort(ctx context.Context) error { return c.do(ctx, "UnwatchPort") }

// Knock has clients of the host knock at a port: see Agent.Knock.
func (c *Conn) Knock(ctx context.Context, k Knocks) error { return c.do(ctx, "Knock", k) }

// OpenTap taps interfaces of the host until the agent ends: see transition.OpenTap.
func (c *Conn) OpenTap(ctx context.Context, points []transition.Point) error {
	return c.do(ctx, "OpenTap", points)
}

// TapLengths has the taps note frames of these lengths, with the Ethernet header, and no others.
func (c *Conn) TapLengths(ctx context.Context, lengths []int) error {
	return c.do(ctx, "TapLengths", lengths)
}

// ReadTap returns the frames that the taps have noted since the call before.
func (c *Conn) ReadTap(ctx context.Context) ([]transition.Event, error) {
	return ask[[]transition.Event](ctx, c, "ReadTap")
}

// ServeProbes has the host receive probes until the agent ends.
func (c *Conn) ServeProbes(ctx context.Context, addr netip.AddrPort) error {
	return c.do(ctx, "ServeProbes", addr)
}

// SendProbes sends a run of probes from the host, to its end.
func (c *Conn) SendProbes(ctx context.Context, run transition.Run) (transition.Sending, error) {
	return ask[transition.Sending](ctx, c, "SendProbes", run)
}

// TakeProbes returns the probes of a run that the host has received.
func (c *Conn) TakeProbes(ctx context.Context, run uint32) (transition.Receiving, error) {
	return ask[transition.Receiving](ctx, c, "TakeProbes", run)
}
