package dut

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// tunnelLab is the topology "tunnel": pc1 – gw1 – gw2 – pc2.
type tunnelLab struct {
	pc1, gw1, gw2, pc2 testHost
	env                Env
}

func newTunnelLab(t testing.TB, device DUT) *tunnelLab {
	t.Helper()
	local, err := backend.Local(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	lab, err := topology.Tunnel(topology.Spec{NoTxChecksum: device.Traits().NoTxChecksum}).Build(t.Context(), local, "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.Close() })
	l := &tunnelLab{pc1: testHost{lab.Host("pc1")}, gw1: testHost{lab.Host("gw1")}, gw2: testHost{lab.Host("gw2")},
		pc2: testHost{lab.Host("pc2")}}
	l.env = Env{
		Hosts: map[string]Host{"gw1": l.gw1, "gw2": l.gw2, "pc2": l.pc2}, Routers: []string{"gw1", "gw2"}, Ports: lab.Ports,
		LAN: lab.LAN, Gateway: lab.Gateway,
		RouterWAN: lab.RouterWAN, ServerIP: lab.ServerIP, ServiceIP: lab.ServiceIP, Outer: lab.Outer, Scratch: agent.Scratch,
		Install: lab.Host("gw1").Install,
	}
	return l
}

// state describes what a tunnel may change on the gateways, except for the files of /etc.
func (l *tunnelLab) state(t *testing.T) string {
	t.Helper()
	const look = `ip -o addr show scope global; ip -o link | cut -d' ' -f2; ip route show table all; ip rule
ip xfrm state 2>/dev/null || :; ip xfrm policy 2>/dev/null || :; find "$1" -path "$1/*" ! -name '*.log'
ps -eo pid=,comm= | awk '$1 != 1 && $2 != "ps" && $2 != "awk" && $2 != "sh" {print $2}'`
	var text string
	for _, host := range []testHost{l.gw1, l.gw2} {
		text += host.Name + "\n" + host.must(t, look, agent.Scratch)
	}
	return text
}

// ping sends one packet of length bytes, with its IP header, from gw1 to the server and waits for the answer. It
// returns ping's output.
func (l *tunnelLab) ping(t *testing.T, length int) (string, error) {
	t.Helper()
	out, err := l.gw1.Run(t.Context(), agent.Command{Argv: []string{
		"ping", "-c", "1", "-W", "20", "-M", "do", "-s", strconv.Itoa(length - 28), "-I", l.env.Gateway.String(),
		l.env.ServerIP.String(),
	}})
	return out.Stdout + out.Stderr, err
}

var packetLength = regexp.MustCompile(`(?m)^\d.*, length (\d+)\)`) // tcpdump indents the lines about inner packets

// outer pings through the tunnel with packets of the inner lengths, and returns the lengths of the first n packets that
// gw1 sends on the link between the gateways.
func (l *tunnelLab) outer(t *testing.T, n int, inner ...int) (lengths []int) {
	t.Helper()
	port := l.env.Port("outer1")
	// The filter leaves out TCP acknowledgements without data.
	const filter = `ip and not (ip[9] = 6 and ip[2:2] - (ip[0] & 0xf) * 4 - ((ip[(ip[0] & 0xf) * 4 + 12] & 0xf0) >> 2) = 0)`
	capture := []string{
		"tcpdump", "--immediate-mode", "-l", "-nn", "-v", "-Q", "out", "-i", port, "-c", strconv.Itoa(n), filter}
	if err := l.gw1.Spawn(t.Context(), agent.Command{Name: "capture", Argv: capture, Support: true}); err != nil {
		t.Fatal(err)
	}
	program := daemon{host: l.gw1, name: "capture"}
	if err := program.awaitText(t.Context(), "listening on"); err != nil {
		t.Fatal(err)
	}
	for _, length := range inner {
		if text, err := l.ping(t, length); err != nil {
			t.Fatalf("a packet of %d bytes: %v: %s", length, err, text)
		}
	}
	labtest.Await(t, "the capture's end", func() bool {
		process, err := program.state(t.Context())
		return err != nil || process.Ended
	})
	process, err := l.gw1.End(t.Context(), agent.Ending{Name: "capture"})
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range packetLength.FindAllStringSubmatch(process.Output, -1) {
		n, _ := strconv.Atoi(match[1]) // digits
		lengths = append(lengths, n)
	}
	return lengths
}

// checkTransfer sends a megabyte over TCP from pc1 to pc2.
func (l *tunnelLab) checkTransfer(t *testing.T) {
	t.Helper()
	listen := agent.Command{
		Name: "listen", Argv: []string{"busybox", "nc", "-l", "-p", "7001", "-e", "sh", "-c", "head -c 1000000 | wc -c"}}
	if err := l.pc2.Spawn(t.Context(), listen); err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "the server to listen", func() bool { return l.pc2.must(t, "ss -Hlnt 'sport = :7001'") != "" })
	if got := l.pc1.must(t, `head -c 1000000 /dev/zero | exec busybox nc "$1" 7001`,
		l.env.ServerIP.String()); strings.TrimSpace(got) != "1000000" {
		t.Errorf("of a megabyte came %q", got)
	}
	if _, err := l.pc2.End(t.Context(), agent.Ending{Name: "listen"}); err != nil {
		t.Error(err)
	}
}

// startTunnel starts a device.
func startTunnel(t *testing.T, device DUT, lab *tunnelLab) {
	t.Helper()
	start := time.Now()
	if err := device.Start(t.Context(), lab.env); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %v", time.Since(start).Round(time.Millisecond))
}

// TestTunnels checks VXLAN and each tunnel that runs in user space, each in a lab of its own.
func TestTunnels(t *testing.T) {
	t.Parallel()
	for _, name := range tunnels() {
		if tunnel := newTunnel(name, 0); tunnel.kernelThreads == nil || name == "vxlan" {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				skipUnsupported(t, tunnel)
				newTunnelLab(t, tunnel).checkTunnel(t, tunnel, 40, 41, 43, 47, 64, 100, 577, 1000, tunnel.MTU()-3, tunnel.MTU()-1,
					tunnel.MTU())
			})
		}
	}
}

// TestTunnelsOfTheKernel checks the kernel's tunnels other than VXLAN one after the other in one lab. This test also
// runs on an emulated CPU, where building a lab takes long.
func TestTunnelsOfTheKernel(t *testing.T) {
	t.Parallel()
	var lab *tunnelLab
	for _, name := range tunnels() {
		if tunnel := newTunnel(name, 0); tunnel.kernelThreads != nil && name != "vxlan" {
			missing := checkSupported(t, tunnel)
			if lab == nil && missing == nil {
				lab = newTunnelLab(t, tunnel)
			}
			t.Run(name, func(t *testing.T) {
				if errors.Is(missing, ErrNotSupported) {
					t.Skipf("not here: %v", missing)
				}
				if missing != nil {
					t.Fatal(missing)
				}
				lab.checkTunnel(t, tunnel, 41, 100, tunnel.MTU())
			})
		}
	}
}

// checkProof checks that FailedProof finds no fault. A tunnel with DTLS may send packets by its TCP connection during a
// DTLS handshake, or while its UDP socket is full because the machine is busy. FailedProof may report that once, and
// not a second time.
func (l *tunnelLab) checkProof(t *testing.T, tunnel *Tunnel) {
	t.Helper()
	failure, err := tunnel.FailedProof(t.Context(), l.env)
	if strings.Contains(failure, "took its TCP connection") {
		failure, err = tunnel.FailedProof(t.Context(), l.env)
	}
	if failure != "" || err != nil {
		t.Errorf("it is said to be %q: %v", failure, err)
	}
}

// checkTunnel starts a tunnel and sends packets of the inner lengths and a TCP transfer through it. The outer packets
// must have the lengths that Encapsulation.Outer computes. Stop must restore the gateways' state.
func (l *tunnelLab) checkTunnel(t *testing.T, tunnel *Tunnel, inner ...int) {
	t.Helper()
	before := l.state(t)
	startTunnel(t, tunnel, l)
	mtu, encapsulation := tunnel.MTU(), tunnel.Encapsulation()
	var want []int
	for _, length := range inner {
		want = append(want, encapsulation.Outer(length, mtu))
	}
	if got := l.outer(t, len(inner), inner...); !slices.Equal(got, want) {
		t.Errorf("packets of %v take\n%v,\n%v by the formula: %s", inner, got, want, encapsulation)
	}
	if text, err := l.ping(t, mtu+1); err == nil || !strings.Contains(text, fmt.Sprint(mtu)) {
		t.Errorf("a packet of %d bytes, with an MTU of %d: %v: %s", mtu+1, mtu, err, text)
	}
	l.checkTransfer(t)
	l.checkProof(t, tunnel)
	start := time.Now()
	if err := errors.Join(tunnel.Stop(t.Context(), l.env), tunnel.Stop(t.Context(), l.env)); err != nil {
		t.Error(err)
	}
	t.Logf("gone after %v", time.Since(start).Round(time.Millisecond))
	if after := l.state(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	l.checkTransfer(t)
}
