package gateway

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
)

// TestGatewaysShareAWAN: of two gateways that share a WAN, and log connections, the one that stops leaves what the
// other one needs of the kernel, and the last one leaves the kernel as it was.
func TestGatewaysShareAWAN(t *testing.T) {
	const settings = "sysctl -n net.netfilter.nf_conntrack_acct net.netfilter.nf_conntrack_timestamp " +
		"net.ipv4.conf.wan0.forwarding net.ipv4.conf.wan0.accept_redirects"
	network(t)
	sh(t, "ip link add lan1 type veth peer name c1; ip addr add 10.2.0.1/24 dev lan1; ip link set lan1 up; ip link set "+
		"c1 up; "+
		"sysctl -qw net.ipv4.ip_forward=0 net.ipv4.conf.wan0.accept_redirects=1")
	t.Cleanup(func() { sh(t, "ip link del lan1") })
	before := sh(t, settings)
	first, second := configured(t, t.TempDir(), keysOf["nfqueue"]), configured(t, t.TempDir(), keysOf["nfqueue"])
	second.LAN.Interface, second.LAN.Address = "lan1", netip.MustParsePrefix("10.2.0.1/24")
	second.DHCP.Pools = []config.Range{{First: netip.MustParseAddr("10.2.0.50"), Last: netip.MustParseAddr("10.2.0.60")}}
	first.FlowLog.Enabled, second.FlowLog.Enabled = true, true
	one, two := serve(t, first), serve(t, second)
	both := sh(t, settings)
	if both != "1\n1\n1\n0\n" && both != "1\n1\n1\n0" {
		t.Errorf("with both the settings are %q", both)
	}
	must(t, one.stop())
	if got := sh(t, settings); got != both {
		t.Errorf("when one has stopped they are %q, want %q", got, both)
	}
	c, err := control.Dial(second.ControlSocket())
	must(t, err)
	if s, err := c.Status(t.Context()); err != nil || s.Repairs["forwarding-again"] > 0 || s.Flows["rule-again"] > 0 {
		t.Errorf("the other one had to repair %v, and its log %v, %v", s.Repairs, s.Flows, err)
	}
	must(t, two.stop())
	must(t, Detach(first, false))
	must(t, Detach(second, false))
	if got := sh(t, settings); got != before {
		t.Errorf("when both have stopped they are %q, want %q", got, before)
	}
	if left := sh(t, "nft list ruleset"); strings.Contains(left, "gatewayd") {
		t.Errorf("left:\n%s", left)
	}
}
