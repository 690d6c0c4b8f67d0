package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/iperf3"
)

// serveIperf3 starts an iperf3 server for each client. StopTraffic ends them, so each load has new ones.
func (a *Agent) serveIperf3(ctx context.Context, t Traffic) error {
	for n := 1; n <= t.Clients; n++ {
		argv := iperf3.Server(t.Server.listen(iperf3Port(n)))
		if err := a.spawnTraffic(Command{Name: fmt.Sprintf("iperf3-server-%d", n), Argv: argv}); err != nil {
			return err
		}
	}
	return awaitServers(ctx, t.Clients)
}

// startIperf3 starts an iperf3 client in the namespace of each client.
func (a *Agent) startIperf3(_ context.Context, t Traffic, pool *client.Pool) error {
	for n := 1; n <= t.Clients; n++ {
		argv, err := t.iperf3(pool.Clients[n-1], pool.Kind().MTU).Args()
		if err == nil {
			err = a.spawnTraffic(Command{Name: fmt.Sprintf("iperf3-client-%d", n), Client: n, Argv: argv})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// spawnTraffic starts a support program that StopTraffic will end.
func (a *Agent) spawnTraffic(cmd Command) error {
	cmd.Support = true
	err := a.Spawn(context.Background(), cmd)
	if err == nil {
		a.traffic.programs = append(a.traffic.programs, cmd.Name)
	}
	return err
}

// iperf3Port is the port of the server for client n, which counts from 1.
func iperf3Port(n int) uint16 { return trafficPort + uint16(n-1) }

// iperf3 is one client's part of the load; mtu is that of the client's link, bytes.
func (t Traffic) iperf3(from *client.Client, mtu int) iperf3.Client {
	c := iperf3.Client{
		Server: t.Server.port(from.LocalIP(), iperf3Port(from.Num)), Local: from.LocalIP(), UDP: t.UDP,
		RateBps: t.OfferedMbps * 1e6 / float64(t.Clients), Direction: t.Direction, Seconds: t.MaxSeconds,
	}
	if !c.UDP {
		c.Bytes = t.BurstSegments * t.segmentBytes(mtu)
		c.Paced = t.Paced && t.Direction == result.Up
	}
	return c
}

// serversTimeout bounds awaitServers.
const serversTimeout = 2 * time.Second

// awaitServers waits until the servers of n clients take connections, because an iperf3
// client ends when it is refused. It returns nil even if some servers do not come up:
// then each trial fails a self-test, whose message tells more.
func awaitServers(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, serversTimeout)
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		ports, err := listening()
		if err != nil {
			return err
		}
		ports = slices.DeleteFunc(ports, func(p uint16) bool { return p < iperf3Port(1) || p > iperf3Port(n) })
		if len(ports) >= n {
			break
		}
	}
	return nil
}

// listening reads the TCP ports at which programs of the calling thread's network namespace listen.
func listening() (ports []uint16, err error) {
	for _, name := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/thread-self/net/" + name) // the main thread may be in a client's namespace
		if errors.Is(err, fs.ErrNotExist) && name == "tcp6" {
			break // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		more, err := meter.Listening(string(text))
		if err != nil {
			return nil, err
		}
		ports = append(ports, more...)
	}
	return ports, nil
}

// programStats adds the CPU time of the load's programs, and counts those that have ended as broken.
func (a *Agent) programStats(out *TrafficStats) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range a.traffic.programs {
		p := a.programs[name]
		if p == nil {
			continue
		}
		if p.ended.Err() != nil {
			out.add(TrafficStats{Open: true, Broken: 1, FirstError: fmt.Sprintf("%s ended: %s", name, p.ProcessState)})
			continue
		}
		if proc, err := meter.ReadProcess(p.Process.Pid); err == nil { // an error: it is ending now
			out.ThreadNs[name] = proc.RunNs
		}
	}
}
