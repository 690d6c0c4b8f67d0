// Tests of gatewayd as a device with IPv6 clients. newTestLabOf makes a lab of a client host, a router with the device,
// and a server, with clients of a family (lab_test.go); withGatewayd builds gatewayd (gateway_test.go).

package dut

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// gatewaySession is a client as gatewayd shows it.
type gatewaySession struct {
	Addr      netip.Addr   // its first address
	Further   []netip.Addr `json:"further_addrs"`
	State     string
	UpBytes   int64 `json:"up_bytes"`
	DownBytes int64 `json:"down_bytes"`
}

// sessions lists gatewayd's clients by their hardware addresses.
func (l *testLab) sessions(t *testing.T, g *Gateway) map[string]gatewaySession {
	t.Helper()
	out := l.router.must(
		t, `"$1" sessions --json --socket "$2"`, g.program, path.Join(l.env.Scratch, "gatewayd/control.sock"))
	all := map[string]gatewaySession{}
	for line := range strings.Lines(out) {
		var s struct {
			MAC string
			gatewaySession
		}
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		all[s.MAC] = s.gatewaySession
	}
	return all
}

// TestGatewayByIPv6: clients of each kind, with IPv6 alone or with both families (dual stack), log in at gatewayd.
// Before that they reach nothing. Afterwards they send and receive by their families, and gatewayd counts it for their
// sessions.
func TestGatewayByIPv6(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	for _, kind := range gatewayKinds6 {
		for _, f := range []client.Family{client.IPv6, client.DualStack} {
			t.Run(kind+" "+string(f), func(t *testing.T) {
				t.Parallel()
				checkGateway6(t, kind, f)
			})
		}
	}
}

// gatewayKinds6 are the kinds of clients that lease and log in at the portal.
var gatewayKinds6 = client.Kinds(func(k client.Kind) bool { return k.Leases && !k.PPPoE })

// checkGateway6 carries out TestGatewayByIPv6 for a kind of clients and a family.
func checkGateway6(t *testing.T, kind string, f client.Family) {
	const n = 4
	d := NewGateway(experiment.Variant{}, n)
	l := newTestLabOf(t, d, n, f)
	l.start(t, d)
	if _, err := l.server.End(t.Context(), agent.Ending{Name: "traffic"}); err != nil { // streams want its port
		t.Fatal(err)
	}
	addrs := l.createLeased(t, client.Config{Kind: kind, Count: n, Family: f, LeasesIPv4: d.Traits().LeasesIPv4})
	host, adm, pace := l.clientHost, d.Traits().Admission, client.Pace{Parallel: 2}
	for _, a := range addrs {
		if !a.IP.IsValid() || !l.env.LAN6.Contains(a.IP6) {
			t.Errorf("client %d has the addresses %s and %s", a.Num, a.IP, a.IP6)
		}
	}
	if before, err := host.Status(t.Context(), adm, pace); err != nil || client.FirstFailure(before) == nil {
		t.Fatalf("before its login a client is in: %+v, %v", before, err)
	}
	if in, err := host.Login(t.Context(), adm, pace); err != nil || client.FirstFailure(in) != nil {
		t.Fatalf("login: %v, %v", err, client.FirstFailure(in))
	}
	for _, direction := range []string{"up", "down"} {
		sent := l.receivedAtServer(t)
		l.awaitPayload(t, agent.Traffic{Direction: direction, Clients: n, OfferedMbps: 50,
			Server: agent.ServerFor(f, l.env.ServerIP, l.env.ServerIP6)}, 10e6)
		now := l.receivedAtServer(t)
		if four, six := now[0]-sent[0], now[1]-sent[1]; six < 20 || four >= 20 != f.Has4() {
			t.Errorf("%s: the server received %d packets of IPv4 and %d of IPv6", direction, four, six)
		}
	}
	labtest.Await(t, "sessions that count what the clients sent and received", func() bool {
		all := l.sessions(t, d)
		return !slices.ContainsFunc(addrs, func(a client.Address) bool {
			s := all[a.MAC]
			return s.Addr != a.IP || f.Sends6(a.Num) && !slices.Contains(s.Further, a.IP6) ||
				s.UpBytes < 1e5 || s.DownBytes < 1e5
		})
	})
	checkStop(t, d, l)
}

// receivedAtServer returns how many packets of IPv4 and of IPv6 the server has received.
func (l *testLab) receivedAtServer(t *testing.T) (packets [2]int64) {
	t.Helper()
	const script = `awk '/^Ip: [0-9]/ {print $4}' /proc/net/snmp; awk '$1 == "Ip6InReceives" {print $2}' /proc/net/snmp6`
	if _, err := fmt.Sscan(l.server.must(t, script), &packets[0], &packets[1]); err != nil {
		t.Fatal(err)
	}
	return packets
}

// TestVariantsWithoutIPv6: a device that does not forward IPv6 says why (Traits.NoIPv6).
func TestVariantsWithoutIPv6(t *testing.T) {
	for name, reason := range map[string]string{
		"gateway-ebpf":         "",
		"gateway-ebpf-limited": "",
		"gateway-ebpf-nat":     "what is measured is masquerading, and gatewayd translates no IPv6",
		"gateway-tun-fast":     `gatewayd's data path "tun" has no IPv6`,
		"gateway-nfqueue":      `gatewayd's data path "nfqueue" has no IPv6`,
		"gateway-pppoe-ebpf":   "",
		"gateway-pppoe-kernel": `the lab gives clients IPv6 in sessions with gatewayd's data path "ebpf" alone`,
		"accel-ppp":            "the lab configures accel-ppp without IPV6CP",
		"nft-queue":            `gatewayd's data path "nfqueue" has no IPv6`,

		"flowtable-masquerade-gateway": "its rules are of nftables' family ip",
	} {
		d, err := New(name, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		traits := d.Traits()
		if traits.NoIPv6 != reason || client.IPv6.In(traits.Families) != (reason == "") {
			t.Errorf("%s forwards %v, because %q; want %q", name, traits.Families, traits.NoIPv6, reason)
		}
	}
}
