package dut

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// TestMain lets the test binary serve as the agent of its labs' hosts. Tests with a lab mostly
// wait for its programs, so several run side by side.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	flag.Set("test.parallel", "4")
	status := m.Run()
	if gatewaydDir != "" {
		os.RemoveAll(gatewaydDir)
	}
	os.Exit(status)
}

// thisMachine answers for this machine as its agent would.
type thisMachine struct{}

func (thisMachine) Find(ctx context.Context, q machine.Query) ([]machine.Found, error) {
	return machine.Find(ctx, q), nil
}

// checkSupported is an error when a device cannot run on this machine.
func checkSupported(t testing.TB, d DUT) error {
	t.Helper()
	return Check(t.Context(), thisMachine{}, "device", d)
}

// skipUnsupported skips the test if this machine lacks what a device needs.
func skipUnsupported(t testing.TB, d DUT) {
	t.Helper()
	err := checkSupported(t, d)
	if errors.Is(err, ErrNotSupported) {
		t.Skipf("not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// testHost is a host of a real lab.
type testHost struct{ *backend.Host }

// must runs a shell script on the host and returns its output. The test fails if the script does.
func (h testHost) must(t testing.TB, script string, args ...string) string {
	t.Helper()
	argv := append([]string{"sh", "-ec", script, "sh"}, args...)
	out, err := h.Run(t.Context(), agent.Command{Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	return out.Stdout
}

// processes lists the command names on the host, without its first process and the lister.
func (h testHost) processes(t *testing.T) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(h.must(t, `exec ps -eo pid=,stat=,comm=`)) {
		f := strings.Fields(line)
		if f[0] != "1" && f[1][0] != 'Z' && f[2] != "ps" {
			names = append(names, f[2])
		}
	}
	return names
}

// testLab is a lab of a client host, a router and a server with study 1's addresses.
type testLab struct {
	clientHost, router, server testHost
	env                        Env
}

// newTestLab builds a lab for a device, with clients of IPv4.
func newTestLab(t testing.TB, d DUT, clients int) *testLab {
	t.Helper()
	return newTestLabOf(t, d, clients, client.IPv4)
}

// newTestLabOf builds a lab for a device, with clients of a family.
func newTestLabOf(t testing.TB, d DUT, clients int, f client.Family) *testLab {
	t.Helper()
	local, err := backend.Local(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	traits := d.Traits()
	portal := topology.Portal(topology.Spec{
		Family: f, LAN: traits.LAN, NoAggregation: traits.NoAggregation, NoTxChecksum: traits.NoTxChecksum,
	})
	lab, err := portal.Build(t.Context(), local, "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.Close() })
	return &testLab{
		clientHost: testHost{lab.Clients[0]}, router: testHost{lab.Host("router")}, server: testHost{lab.Host("server")},
		env: Env{
			Hosts: map[string]Host{"router": lab.Host("router"), "server": lab.Host("server")}, Ports: lab.Ports, LAN: lab.LAN,
			Gateway:   lab.Gateway,
			RouterWAN: lab.RouterWAN, ServerIP: lab.ServerIP, ServiceIP: lab.ServiceIP,
			LAN6: lab.LAN6, Gateway6: lab.Gateway6, RouterWAN6: lab.RouterWAN6, ServerIP6: lab.ServerIP6,
			Sessions6: lab.Sessions6,
			Clients:   clients, Scratch: agent.Scratch, Install: lab.Host("router").Install, Routers: []string{"router"},
		},
	}
}

// testClient is one simulated client: a macvlan in a namespace of its own.
type testClient struct {
	*netnstest.Space
	ip netip.Addr
}

// leaseScript is the script that udhcpc runs with a lease: it sets address and default route. udhcpc's own script would
// rewrite the machine's resolv.conf.
const leaseScript = `#!/bin/sh
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
ip addr flush dev "$interface"
ip addr add "$ip/${mask:-24}" dev "$interface"
ip route replace default via "$router" dev "$interface"
echo "leased $ip"
`

// addClients makes n clients and gives each a lease by a real DHCP exchange.
func (l *testLab) addClients(t *testing.T, n int) []*testClient {
	t.Helper()
	script := path.Join(t.TempDir(), "lease.sh")
	if err := os.WriteFile(script, []byte(leaseScript), 0o755); err != nil {
		t.Fatal(err)
	}
	hello, err := l.clientHost.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	clients := make([]*testClient, n)
	for i := range clients {
		clients[i] = &testClient{Space: netnstest.NewSpace(t)}
		out, err := exec.Command("nsenter", "-t", fmt.Sprint(hello.PID), "-n", "sh", "-ec",
			`ip link add link "$3" name "$1" type macvlan mode bridge; ip link set "$1" netns "$2" name eth0`,
			"sh", fmt.Sprintf("gwdm%d", i), fmt.Sprint(clients[i].TID()), l.clientHost.Ifs[0]).CombinedOutput()
		if err != nil {
			t.Fatalf("macvlan %d: %v: %s", i, err, out)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, c := range clients {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out, err := c.Exec(t.Context(), []string{"sh", "-ec", `ip link set eth0 up
udhcpc -i eth0 -n -q -f -t 10 -T 1 -s "$0"`, script}, nil)
			for line := range strings.Lines(out) {
				if ip, ok := strings.CutPrefix(strings.TrimSpace(line), "leased "); ok {
					c.ip, _ = netip.ParseAddr(ip)
				}
			}
			if err != nil || !c.ip.IsValid() {
				t.Errorf("client %d got no lease: %v: %s", i+1, err, out)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return clients
}

func (c *testClient) LocalIP() netip.Addr { return c.ip }

// DialContext makes the socket in the client's namespace, where it stays.
func (c *testClient) DialContext(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	c.Do(func() { conn, err = (&net.Dialer{}).DialContext(ctx, network, addr) })
	return conn, err
}

func (c *testClient) Exec(ctx context.Context, argv, env []string) (string, error) {
	var out strings.Builder
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := c.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), err
}

// reaches reports whether the client gets a connection to a TCP port at which the server listens. A portal that refuses
// sends an ICMP error, or nothing.
func (c *testClient) reaches(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := c.DialContext(ctx, "tcp", addr)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
