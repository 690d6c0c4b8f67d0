// A test of the dashboard of gateways. newWorld makes the host of a gateway with clients and a
// server, in namespaces.

package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/gateweigh/gateweigh/internal/prometheustest"
)

// TestDashboardOfGateways: a real Prometheus that scrapes a gateway under load has data for each of the dashboard's
// queries.
func TestDashboardOfGateways(t *testing.T) {
	t.Parallel()
	const metrics = "127.0.0.1:9464"
	w := newWorld(t)
	w.LAN = `address6 = "2001:db8:1::1/64"`
	path := w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	w.sh(`nsenter --net=/run/netns/$ID-router sysctl -qw net.ipv6.conf.lan0.disable_ipv6=0 net.ipv6.conf.all.forwarding=1
nsenter --net=/run/netns/$ID-router ip addr add 2001:db8:1::1/64 dev lan0 nodad`)
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, fmt.Appendf(text, "\n[metrics]\nlisten = %q\n", metrics), 0o600))
	w.start()
	c := w.client()
	c.logIn("ann")
	for _, up := range []bool{true, false} {
		flow := w.flow(c, up, 100)
		flow.start()
		t.Cleanup(flow.halt)
	}
	prometheustest.Start(t, metrics, func(do func()) { w.inHost("router", func() error { do(); return nil }) },
		"nsenter", "--net=/run/netns/"+w.id+"-router").AwaitData(t, "../../monitoring/gatewayd.json")
}
