// A test of several networks with settings of their own. newNetwork makes the host of a gateway with clients and a
// server, in namespaces (world_test.go); networkOf returns the table of a network for the configuration
// (networks_test.go).

package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestEachNetworkHasItsOwn: of two networks one asks RADIUS servers, which are told by Called-Station-Id and
// NAS-Identifier which network it is, and the other one's clients are behind NAT and unknown to the servers. whois
// names the network, by the client's own address and by the one that others saw. Long: the steps of one run.
func TestEachNetworkHasItsOwn(t *testing.T) {
	t.Parallel()
	netnstest.NeedTCX(t)
	w := newNetwork(t)
	w.plainTCP("server")
	w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
	w.configureNetworks(true, networkOf("first", 0, fmt.Sprintf(`[network.auth]
methods = ["radius"]
[network.radius]
timeout = "500ms"
nas_identifier = "gate"
called_station_id = "02-00-00-00-00-FF:First"
[network.radius.primary]
address = "127.0.0.1:1812"
acct_address = "127.0.0.1:1813"
secret = "%s"
`, w.Secret)), networkOf("second", 1, "[network.nat]\nmasquerade = true\n"))
	b := w.addLAN(1)
	w.start()
	a := w.client()
	first := a.logIn("ann")
	second := w.admit(b)
	if first.Network != "first" || second.Network != "second" {
		t.Errorf("the sessions are of %q and %q", first.Network, second.Network)
	}
	start := w.acct.awaitAccounting("Start", first.ID)
	for name, want := range map[string]string{"Called-Station-Id": "02-00-00-00-00-FF:First", "NAS-Identifier": "gate",
		"User-Name": "ann", "NAS-Port-Id": "lan0"} {
		if got := start.value(name); got != want {
			t.Errorf("accounting of the first network has %s %q, not %q", name, got, want)
		}
	}
	if asked := w.auth.accessRequests(""); len(asked) != 1 ||
		asked[0].value("Called-Station-Id") != "02-00-00-00-00-FF:First" {
		t.Errorf("the server for logins was asked %v", asked)
	}
	if told := w.acct.accounting(second.ID); len(told) > 0 {
		t.Errorf("the server is told of the network without RADIUS: %v", told)
	}

	type found struct{ Network, Client, Outside, User string }
	whois := func(endpoint netip.AddrPort, want string) (f found) {
		t.Helper()
		at := time.Now().UTC().Format(time.RFC3339Nano)
		eventually(t, "whois "+endpoint.String(), func() error {
			out, err := w.try(fmt.Sprintf("gatewayd whois --config $DIR/gatewayd.toml --json %s --at %s", endpoint, at))
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			if err := json.Unmarshal([]byte(out), &f); err != nil || f.Network != want {
				return fmt.Errorf("whois says %s, %v", out, err)
			}
			return nil
		})
		return f
	}
	ofFirst := w.transfer(a, 100_000)
	if f := whois(ofFirst, "first"); f.User != "ann" {
		t.Errorf("whois finds %+v", f)
	}
	ofSecond := w.transfer(b, 100_000)
	f := whois(ofSecond, "second")
	outside, err := netip.ParseAddrPort(f.Outside)
	if err != nil || !strings.HasPrefix(f.Outside, "192.0.2.1:") {
		t.Fatalf("whois finds %+v, %v", f, err)
	}
	if again := whois(outside, "second"); again.Client != ofSecond.String() {
		t.Errorf("whois of %v finds %+v", outside, again)
	}
}
