package dut

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// The tests of this file run gatewayd in several variants, in a lab of a client host, a router and a server
// (newTestLab). checkPortal is the test that all portals pass. must runs a shell script on a host.

// builtGatewayd is a flag for tests in virtual machines: there it takes too long to build gatewayd.
var builtGatewayd = flag.String("gatewayd", "", "test this gatewayd instead of one built from the sources")

// gatewaydDir is where withGatewayd puts gatewayd; TestMain removes it.
var gatewaydDir string

// buildGatewayd builds gatewayd and puts it on PATH, once for all tests.
var buildGatewayd = sync.OnceValue(func() (err error) {
	if *builtGatewayd != "" {
		return os.Setenv("PATH", filepath.Dir(*builtGatewayd)+":"+os.Getenv("PATH"))
	}
	gatewaydDir, err = os.MkdirTemp("/var/tmp", "gatewayd") // hosts have a /tmp of their own
	if err != nil {
		return err
	}
	out, err := exec.Command(
		"go", "build", "-o", filepath.Join(gatewaydDir, "gatewayd"), "../../cmd/gatewayd").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building gatewayd: %w\n%s", err, out)
	}
	return os.Setenv("PATH", gatewaydDir+":"+os.Getenv("PATH"))
})

// withGatewayd puts gatewayd on PATH: built from the present sources, or the program that -gatewayd names.
func withGatewayd(t testing.TB) {
	t.Helper()
	if err := buildGatewayd(); err != nil {
		t.Fatal(err)
	}
}

// TestGateway: clients log in and out, and nothing of gatewayd or of its RADIUS server is left when it stops.
func TestGateway(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	n := testClients(t)
	d := NewGateway(experiment.Variant{}, n)
	l := newTestLab(t, d, n)
	checkPortal(t, d, l, n)
	for _, name := range l.server.processes(t) {
		if strings.Contains(name, "radius") {
			t.Errorf("%s is left on the server", name)
		}
	}
	if rules := l.router.must(t, `ip rule; tc filter show dev "$1" ingress`, l.env.Port("lan")); strings.Contains(
		rules, "fwmark") || strings.Contains(rules, "lan_in") {
		t.Errorf("the router is not as it was:\n%s", rules)
	}
}

// TestGatewayWithDnsmasq: with these data paths, dnsmasq leases addresses and answers DNS beside gatewayd. It is gone
// after the stop, and so are all rules.
func TestGatewayWithDnsmasq(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	n := testClients(t)
	for _, datapath := range []string{"nfqueue", "nfqueue-fast"} {
		t.Run(datapath, func(t *testing.T) {
			d := NewGateway(experiment.Variant{Path: datapath}, n)
			l := newTestLab(t, d, n)
			checkPortal(t, d, l, n)
			for _, name := range l.router.processes(t) {
				if strings.Contains(name, "gatewayd") || strings.Contains(name, "dnsmasq") {
					t.Errorf("%s is left on the router", name)
				}
			}
			if rules := l.router.must(t, "nft list ruleset"); rules != "" {
				t.Errorf("left on the router:\n%s", rules)
			}
		})
	}
}

// TestGatewayAsksRADIUS: a wrong password is refused, and the right one admitted.
func TestGatewayAsksRADIUS(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	d := NewGateway(experiment.Variant{}, 1)
	checkAsksRADIUS(t, d, "")
}

// TestGatewayWithSilentSessions: a custom device with sessions = 400 has 400 sessions of clients that do not exist when
// it has started. The lab's own clients log in besides, and take places of these sessions.
func TestGatewayWithSilentSessions(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	const sessions, n = 400, 2
	exp, err := experiment.Catalogue{DUTs: Names()}.Parse("filled.toml", []byte(`
duts = ["filled"]
clients = [2]
offered_mbps = [9]
[dut.filled]
like = "gateway-ebpf"
sessions = 400
`))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New("filled", n, exp)
	if err != nil {
		t.Fatal(err)
	}
	l := newTestLab(t, d, n)
	l.start(t, d)
	clients := l.addClients(t, n)
	loginAll(t, clients, d.Traits().Admission)
	for _, c := range clients {
		if !c.reaches(t.Context(), trafficPort) {
			t.Error("a client that logged in does not reach the server")
		}
	}
	status := l.router.must(
		t, `"$1" status --json --socket "$2"/gatewayd/control.sock`, d.(*Gateway).program, l.env.Scratch)
	if want := fmt.Sprintf(`"authenticated": %d`, sessions); !strings.Contains(status, want) {
		t.Errorf("no %s in\n%s", want, status)
	}
}

// TestSilentSessionsHaveAddressesOfTheirOwn: silent sessions, whose clients do not exist, have addresses beyond those
// of the lab's clients. The DHCP server beside the gateway leases none of them.
func TestSilentSessionsHaveAddressesOfTheirOwn(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	const sessions, n = 100, 2
	d := NewGateway(experiment.Variant{Path: experiment.PathNFQueue}, n)
	d.Fill(sessions)
	l := newTestLab(t, d, n)
	l.start(t, d)
	leased := netip.PrefixFrom(d.lan().Addr(), 20) // the silent sessions' addresses are beyond this prefix
	for _, c := range l.addClients(t, n) {
		if ip := c.LocalIP(); !leased.Contains(ip) {
			t.Errorf("a client was leased %s, which may be one of those that never send", ip)
		}
	}
}

// TestTranslating: gatewayd with NAT masquerades by itself. Its proof sees that once there is a connection, and no rule
// is left.
func TestTranslating(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	d := NewGateway(experiment.Variant{NAT: true}, 1)
	l := newTestLab(t, d, 1)
	l.start(t, d)
	clients := l.addClients(t, 1)
	loginAll(t, clients, d.Traits().Admission)
	if text, err := d.FailedProof(t.Context(), l.env); err != nil || text == "" {
		t.Errorf("before there is a connection it is as it should be: %v", err)
	}
	conn, err := clients[0].DialContext(t.Context(), "udp", trafficPort) // the kernel tracks datagrams too
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	awaitFailedProof(t, l, d, "")
	if err := d.Stop(t.Context(), l.env); err != nil {
		t.Error(err)
	}
	if got := l.router.must(t, "nft list ruleset"); got != "" {
		t.Errorf("left on the router:\n%s", got)
	}
}

// TestRateLimitedClients: packets of clients with a rate wait in gatewayd's queues, which take the place of the lab's.
func TestRateLimitedClients(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	d := NewGateway(gateways["gateway-ebpf-limited"], 1)
	l := newTestLab(t, d, 1)
	l.start(t, d)
	clients := l.addClients(t, 1)
	loginAll(t, clients, d.Traits().Admission)
	for port, number := range map[string]string{"wan": "6a77:", "lan": "6a78:"} {
		if got := l.router.must(t, "tc qdisc show dev "+l.env.Port(port)); !strings.Contains(got, " "+number+" root") {
			t.Errorf("the queue of %s is not gatewayd's:\n%s", port, got)
		}
	}
	if !clients[0].reaches(t.Context(), trafficPort) {
		t.Error("a client that logged in does not reach the server")
	}
	if err := d.Stop(t.Context(), l.env); err != nil {
		t.Error(err)
	}
}

// TestMasqueradeBesideGateway: the router's own rules exist before its gateway starts and are gone after it ended.
// Clients are admitted.
func TestMasqueradeBesideGateway(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	exp, err := experiment.Catalogue{DUTs: Names()}.Load("../../examples/masquerade.toml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := New("nat-gateway-ebpf", 1, exp)
	if err != nil {
		t.Fatal(err)
	}
	l := newTestLab(t, d, 1)
	l.start(t, d)
	if got := l.router.must(t, "nft list ruleset"); !strings.Contains(got, "masquerade") {
		t.Errorf("nothing masquerades:\n%s", got)
	}
	clients := l.addClients(t, 1)
	loginAll(t, clients, d.Traits().Admission)
	if !clients[0].reaches(t.Context(), trafficPort) {
		t.Error("a client that logged in does not reach the server")
	}
	if n, err := d.(Counted).Counts(t.Context(), l.env); err != nil || n["sessions"] != 1 {
		t.Errorf("the gateway counts %v: %v", n, err)
	}
	if err := d.Stop(t.Context(), l.env); err != nil {
		t.Error(err)
	}
	if got := l.router.must(t, "nft list ruleset"); got != "" {
		t.Errorf("left on the router:\n%s", got)
	}
}

// TestNamesAreParameters: a named device, such as gateway-pppoe-ident-masquerade, is the same as a custom device that
// is like "gateway" with the same parameters.
func TestNamesAreParameters(t *testing.T) {
	exp, err := experiment.Catalogue{DUTs: Names()}.Parse("x.toml", []byte(`
duts = ["x"]
clients = [2]
offered_mbps = [9]
[dut.x]
like = "gateway"
pppoe = true
nat = true
ident = "masquerade"
`))
	if err != nil {
		t.Fatal(err)
	}
	mine, err := New("x", 2, exp)
	if err != nil {
		t.Fatal(err)
	}
	named, err := New("gateway-pppoe-ident-masquerade", 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	const about = "gatewayd, PPPoE concentrator, data path ebpf, RADIUS accounts (CHAP), masquerade, ident (masquerade)"
	if !reflect.DeepEqual(mine, named) || mine.Traits().About != about {
		t.Errorf("%+v is not %+v", mine, named)
	}
	if _, err := New(experiment.Parametrised, 2, nil); err == nil {
		t.Error("the device that takes parameters is a device without them")
	}
}

// TestStartKeepsParameters: the description of a variant of gatewayd with a start command of its own still names its
// parameters.
func TestStartKeepsParameters(t *testing.T) {
	d, err := newVariant("x", 2, experiment.CustomDUT{Description: "mine", Like: experiment.Parametrised,
		Variant: experiment.Variant{NAT: true}, Start: experiment.Command{"true"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "mine (gatewayd, data path ebpf, RADIUS accounts (CHAP), masquerade), and its table's start beside it"
	if about := d.Traits().About; about != want {
		t.Errorf("%q, want %q", about, want)
	}
}

// TestVariantsThatAreRefused: a custom device may be like another one only if that has the asked-for feature. The error
// lists the devices that have it.
func TestVariantsThatAreRefused(t *testing.T) {
	for like, want := range map[string]string{
		"\"opennds\"\nsessions = 400":            `no device "opennds" whose sessions the lab can make: there is flowtable-masquerade-gateway, gateway-ebpf, `,
		"\"gateway-pppoe-ebpf\"\nsessions = 400": `no device "gateway-pppoe-ebpf" whose sessions the lab can make: there is `,
		"\"allowlist\"\nstart = \"true\"":        `no portal written in Go is named "allowlist": there is accel-ppp, coovachilli, coovachilli-two, flowtable-masquerade-gateway, `,
	} {
		exp, err := experiment.Catalogue{DUTs: Names()}.Parse(
			"x.toml", []byte("duts = [\"x\"]\nclients = [2]\noffered_mbps = [9]\n[dut.x]\nlike = "+like+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckVariants(exp); err == nil || !strings.HasPrefix(err.Error(), "x.toml:5: dut.x.like: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
