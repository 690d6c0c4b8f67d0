// Tests of gatewayd as a device with PPPoE clients. newTestLab makes a lab of a client host, a router with the device,
// and a server (lab_test.go).

package dut

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// subscribers gives a lab n clients of a family with PPPoE sessions at the device.
func (l *testLab) subscribers(t *testing.T, d DUT, n int, f client.Family) []client.Address {
	t.Helper()
	adm := d.Traits().Admission
	return l.createLeased(t, client.Config{
		Kind: client.KindPPPoE, Count: n, Family: f, Account: client.Account{User: adm.User, Password: adm.Password}})
}

// TestSubscribersAtTheConcentrator: clients log in at gatewayd over PPPoE. Each has a session and an address of its
// own, all send, and the sessions end when the clients leave.
func TestSubscribersAtTheConcentrator(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	for name, n := range map[string]int{
		"gateway-pppoe-ebpf": 300, "gateway-pppoe-user": 10, "gateway-pppoe-masquerade": 3, "gateway-pppoe-ident-nat": 3,
		"gateway-pppoe-ident-masquerade": 3,
		"gateway-pppoe-kernel":           3,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, err := New(name, n, nil)
			if err != nil {
				t.Fatal(err)
			}
			skipUnsupported(t, made)
			d := made.(*Gateway)
			l := newTestLab(t, d, n)
			l.start(t, d)
			if _, err := l.server.End(t.Context(), agent.Ending{Name: "traffic"}); err != nil { // streams want its port
				t.Fatal(err)
			}
			sessions := func() int {
				counts, err := d.Counts(t.Context(), l.env)
				if err != nil {
					t.Fatal(err)
				}
				return counts["sessions"]
			}
			addrs := l.subscribers(t, d, n, client.IPv4)
			if got := sessions(); got != n {
				t.Errorf("%d clients have %d sessions", n, got)
			}
			ips := map[string]bool{}
			for _, a := range addrs {
				ips[a.IP.String()] = true
			}
			if len(ips) != n {
				t.Errorf("%d clients share %d addresses", n, len(ips))
			}
			l.checkAllSend(t, n)
			if rules := l.router.must(t, "nft list ruleset"); strings.Contains(rules, "masquerade") != d.NAT {
				t.Errorf("its rules are:\n%s", rules)
			}
			if ident := l.status(t, d).Ident != nil; ident != (d.Ident != "") {
				t.Errorf("answers to ident queries: %v, method %q", ident, d.Ident)
			}
			if err := l.clientHost.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			labtest.Await(t, "the end of all sessions", func() bool { return sessions() == 0 })
		})
	}
}

// TestSubscribersByIPv6: PPPoE clients of gatewayd negotiate IPv6, and each has a /64 of its own, which the gateway
// advertises in the session. They send and receive by their families, and their sessions end when they leave.
// Long: one lab, with all that its clients do.
func TestSubscribersByIPv6(t *testing.T) {
	t.Parallel()
	withGatewayd(t)
	for _, f := range []client.Family{client.IPv6, client.DualStack} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			const n = 20
			made, err := New("gateway-pppoe-ebpf", n, nil)
			if err != nil {
				t.Fatal(err)
			}
			d := made.(*Gateway)
			l := newTestLabOf(t, d, n, f)
			l.start(t, d)
			if _, err := l.server.End(t.Context(), agent.Ending{Name: "traffic"}); err != nil { // streams want its port
				t.Fatal(err)
			}
			addrs := l.subscribers(t, d, n, f)
			own := map[netip.Prefix]bool{}
			for _, a := range addrs {
				if !a.IP.IsValid() || !l.env.Sessions6.Contains(a.IP6) {
					t.Errorf("client %d has the addresses %s and %s", a.Num, a.IP, a.IP6)
				}
				own[netip.PrefixFrom(a.IP6, 64).Masked()] = true
			}
			if len(own) != n {
				t.Errorf("%d clients have %d prefixes", n, len(own))
			}
			for _, direction := range []string{"up", "down"} {
				sent := l.receivedAtServer(t)
				l.awaitPayload(t, agent.Traffic{Direction: direction, Clients: n, OfferedMbps: 50,
					Server: agent.ServerFor(f, l.env.ServerIP, l.env.ServerIP6)}, 10e6)
				now := l.receivedAtServer(t)
				if four, six := now[0]-sent[0], now[1]-sent[1]; six < 100 || four >= 100 != f.Has4() { // a few are of RADIUS
					t.Errorf("%s: the server received %d packets of IPv4 and %d of IPv6", direction, four, six)
				}
			}
			labtest.Await(t, "sessions that count what each client sent and received", func() bool {
				all := l.sessions(t, d)
				for _, a := range addrs {
					if s := all[a.MAC]; s.UpBytes < 1e4 || s.DownBytes < 1e4 {
						return false
					}
				}
				return len(all) == n
			})
			if err := l.clientHost.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			labtest.Await(t, "the end of all sessions", func() bool { return len(l.sessions(t, d)) == 0 })
			checkStop(t, d, l)
		})
	}
}
