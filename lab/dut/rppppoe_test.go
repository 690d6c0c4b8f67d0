// Tests of devices that are PPPoE servers. newTestLab makes a lab of a client host, a router with the device, and a
// server (lab_test.go).

package dut

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/meter"
)

// TestPPPoEServers: the lab's clients log in at PPPoE servers other than gatewayd, send and receive. The meter counts
// the CPU time of all programs and kernel threads that work for them (works). Nothing of the server is left when it
// stops. The kernel must have PPP.
func TestPPPoEServers(t *testing.T) {
	for name, works := range map[string][]string{
		"rp-pppoe-user": {"pppoe", "pppd", "kworker"}, "rp-pppoe-kernel": {"pppd", "ksoftirqd"},
		"accel-ppp": {"accel-pppd", "ksoftirqd"},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 3
			d, err := New(name, n, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkSupported(t, d); name == "accel-ppp" && err != nil { // no package has it
				t.Attr("not-run", strings.Join(strings.Fields(err.Error()), " "))
				return
			}
			skipUnsupported(t, d)
			l := newTestLab(t, d, n)
			l.start(t, d)
			if _, err := l.server.End(t.Context(), agent.Ending{Name: "traffic"}); err != nil { // streams want its port
				t.Fatal(err)
			}
			addrs := l.subscribers(t, d, n, client.IPv4)
			ips := map[string]bool{}
			for _, a := range addrs {
				ips[a.IP.String()] = l.env.LAN.Contains(a.IP)
			}
			if len(ips) != n || ips[l.env.Gateway.String()] {
				t.Errorf("clients have the addresses %v", ips)
			}
			l.awaitSessions(t, d.(Counted), n)
			traits := d.Traits()
			err = l.router.OpenMeter(t.Context(), agent.Meter{IfNames: l.router.Ifs, Counted: traits.Processes, Follow: true,
				Kernel: traits.KernelThreads})
			if err != nil {
				t.Fatal(err)
			}
			before, err := l.router.Sample(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			l.awaitPayload(t, agent.Traffic{Direction: "up", Clients: n, OfferedMbps: 5}, 500e3)
			l.awaitPayload(t, agent.Traffic{Direction: "down", Clients: n, OfferedMbps: 5}, 500e3)
			after, err := l.router.Sample(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			used := cpuByProgram(before, after)
			t.Logf("CPU, ms: %v", used)
			for _, program := range works {
				if _, found := used[program]; !found {
					t.Errorf("the meter does not count %s: %v", program, used)
				}
			}
			if err := l.clientHost.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.awaitSessions(t, d.(Counted), 0)
			leased, err := l.clientHost.Lease(t.Context(), client.Pace{Parallel: n}) // the server ends under its sessions
			if err != nil || client.FirstFailure(leased) != nil {
				t.Fatal(err, client.FirstFailure(leased))
			}
			for range 2 {
				if err := d.Stop(t.Context(), l.env); err != nil {
					t.Error(err)
				}
			}
			if left := l.router.processes(t); len(left) > 0 || strings.Contains(l.router.must(t, "ip -o link"), ": ppp") {
				t.Errorf("left behind: %v, %s", left, l.router.must(t, "ip -o link"))
			}
		})
	}
}

// cpuByProgram returns the CPU time of programs between two samples, ms by name.
func cpuByProgram(a, b meter.Sample) map[string]string {
	before, used := map[int]int64{}, map[string]int64{}
	for _, p := range a.Processes {
		before[p.PID] = p.RunNs
	}
	for _, p := range b.Processes {
		used[p.Name] += p.RunNs - before[p.PID]
	}
	out := map[string]string{}
	for name, ns := range used {
		out[name] = fmt.Sprintf("%.1f", float64(ns)/1e6)
	}
	return out
}

// awaitSessions waits until a device counts n sessions.
func (l *testLab) awaitSessions(t *testing.T, d Counted, n int) {
	t.Helper()
	labtest.Await(t, fmt.Sprintf("%d sessions", n), func() bool {
		counts, err := d.Counts(t.Context(), l.env)
		if err != nil {
			t.Fatal(err)
		}
		return counts["sessions"] == n
	})
}
