package dut

import (
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// subscribers gives a lab n clients with PPPoE sessions at the device.
func (l *testLab) subscribers(t *testing.T, d DUT, n int) []client.Address {
	t.Helper()
	adm := d.Traits().Admission
	return l.createLeased(t, client.Config{
		Kind: client.KindPPPoE, Count: n, Account: client.Account{User: adm.User, Password: adm.Password}})
}

// TestSubscribersAtTheConcentrator: clients log in over PPPoE, each with a session of its own, send, and take their
// sessions along when they leave.
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
			addrs := l.subscribers(t, d, n)
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
