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

// tunnelLab is pc1 – gw1 – gw2 – pc2.
type tunnelLab struct {
	pc1, gw1, gw2, pc2 testHost
	env                Env
}

func newTunnelLab(t testing.TB, d DUT) *tunnelLab {
	t.Helper()
	local, err := backend.Local(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	lab, err := topology.Tunnel(topology.Spec{NoTxChecksum: d.Traits().NoTxChecksum}).Build(t.Context(), local, "a")
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

// state is what a tunnel may change on the gateways, but for the files of /etc.
func (l *tunnelLab) state(t *testing.T) string {
	t.Helper()
	const look = `ip -o addr show scope global; ip -o link | cut -d' ' -f2; ip route show table all; ip rule
ip xfrm state 2>/dev/null || :; ip xfrm policy 2>/dev/null || :; find "$1" -path "$1/*" ! -name '*.log'
ps -eo pid=,comm= | awk '$1 != 1 && $2 != "ps" && $2 != "awk" && $2 != "sh" {print $2}'`
	var text string
	for _, h := range []testHost{l.gw1, l.gw2} {
		text += h.Name + "\n" + h.must(t, look, agent.Scratch)
	}
	return text
}

// ping sends one packet of that length from the first gateway to the server, which answers.
func (l *tunnelLab) ping(t *testing.T, length int) (string, error) {
	t.Helper()
	out, err := l.gw1.Run(t.Context(), agent.Command{Argv: []string{
		"ping", "-c", "1", "-W", "20", "-M", "do", "-s", strconv.Itoa(length - 28), "-I", l.env.Gateway.String(),
		l.env.ServerIP.String(),
	}})
	return out.Stdout + out.Stderr, err
}

var packetLength = regexp.MustCompile(`(?m)^\d.*, length (\d+)\)`) // lines about what is inside are indented

// outer is the length of each packet on the link between the gateways while packets of some lengths go through the
// tunnel, whose outer ones are n.
func (l *tunnelLab) outer(t *testing.T, n int, inner ...int) (lengths []int) {
	t.Helper()
	port := l.env.Port("outer1")
	// Without empty acknowledgements.
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
		p, err := program.state(t.Context())
		return err != nil || p.Ended
	})
	p, err := l.gw1.End(t.Context(), agent.Ending{Name: "capture"})
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range packetLength.FindAllStringSubmatch(p.Output, -1) {
		n, _ := strconv.Atoi(match[1]) // digits
		lengths = append(lengths, n)
	}
	return lengths
}

// checkTransfer sends a megabyte over TCP from client to server.
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

// startTunnel starts a device, and ends it with the test.
func startTunnel(t *testing.T, d DUT, l *tunnelLab) {
	t.Helper()
	start := time.Now()
	if err := d.Start(t.Context(), l.env); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %v", time.Since(start).Round(time.Millisecond))
}

// TestTunnels has each tunnel in user space, and VXLAN, carry packets and takes it away.
func TestTunnels(t *testing.T) {
	t.Parallel()
	for _, name := range tunnels() {
		if d := newTunnel(name, 0); d.kernelThreads == nil || name == "vxlan" {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				skipUnsupported(t, d)
				newTunnelLab(t, d).checkTunnel(t, d, 40, 41, 43, 47, 64, 100, 577, 1000, d.MTU()-3, d.MTU()-1, d.MTU())
			})
		}
	}
}

// TestTunnelsOfTheKernel does the same with the others, one after the other in one lab: they are tried on an emulated
// CPU, where a lab takes long.
func TestTunnelsOfTheKernel(t *testing.T) {
	t.Parallel()
	var l *tunnelLab
	for _, name := range tunnels() {
		if d := newTunnel(name, 0); d.kernelThreads != nil && name != "vxlan" {
			missing := checkSupported(t, d)
			if l == nil && missing == nil {
				l = newTunnelLab(t, d)
			}
			t.Run(name, func(t *testing.T) {
				if errors.Is(missing, ErrNotSupported) {
					t.Skipf("not here: %v", missing)
				}
				if missing != nil {
					t.Fatal(missing)
				}
				l.checkTunnel(t, d, 41, 100, d.MTU())
			})
		}
	}
}

// checkProof has a device say that it is as it was made. Packets of a tunnel with DTLS may take its TCP connection,
// which one look tells of: while DTLS shakes hands anew, and on a busy machine, where its UDP socket is full.
func (l *tunnelLab) checkProof(t *testing.T, d *Tunnel) {
	t.Helper()
	failure, err := d.FailedProof(t.Context(), l.env)
	if strings.Contains(failure, "took its TCP connection") {
		failure, err = d.FailedProof(t.Context(), l.env)
	}
	if failure != "" || err != nil {
		t.Errorf("it is said to be %q: %v", failure, err)
	}
}

// checkTunnel has a tunnel carry packets of some lengths, whose outer ones are to be those of its formula, and a
// connection, and takes it away.
func (l *tunnelLab) checkTunnel(t *testing.T, d *Tunnel, inner ...int) {
	t.Helper()
	before := l.state(t)
	startTunnel(t, d, l)
	mtu, e := d.MTU(), d.Encapsulation()
	var want []int
	for _, length := range inner {
		want = append(want, e.Outer(length, mtu))
	}
	if got := l.outer(t, len(inner), inner...); !slices.Equal(got, want) {
		t.Errorf("packets of %v take\n%v,\n%v by the formula: %s", inner, got, want, e)
	}
	if text, err := l.ping(t, mtu+1); err == nil || !strings.Contains(text, fmt.Sprint(mtu)) {
		t.Errorf("a packet of %d bytes, with an MTU of %d: %v: %s", mtu+1, mtu, err, text)
	}
	l.checkTransfer(t)
	l.checkProof(t, d)
	start := time.Now()
	if err := errors.Join(d.Stop(t.Context(), l.env), d.Stop(t.Context(), l.env)); err != nil {
		t.Error(err)
	}
	t.Logf("gone after %v", time.Since(start).Round(time.Millisecond))
	if after := l.state(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	l.checkTransfer(t)
}
