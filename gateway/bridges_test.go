package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestBridge: a LAN that is a bridge of the gateway's machine is served as other LANs are. If netfilter sees the
// bridge's frames, Check and the log name the setting that causes this, also when somebody changes it later. HTTP
// before login comes to the portal, and nobody passes without a login. Long: the steps of one run, each of which needs
// the state that the one before left.
func TestBridge(t *testing.T) {
	network(t)
	netnstest.NeedBridgeCalls(t)
	const call = "/proc/sys/net/bridge/bridge-nf-call-iptables"
	sh(t, `ip addr flush dev lan0; ip link add br0 type bridge; ip link set lan0 master br0; ip link set br0 up; echo 1 >`+
		call+"\n"+netnstest.Up+"up br0")
	t.Cleanup(func() { sh(t, "ip link del br0; echo 0 >"+call) })
	for kind, keys := range map[string]string{"ebpf": onEBPF, "nfqueue": `kind = "nfqueue"`,
		"nfqueue-fast": "kind = \"nfqueue\"\nfast = true", "tun": `kind = "tun"`} {
		t.Run(kind, func(t *testing.T) {
			sh(t, "echo 1 >"+call)
			if kind == "tun" {
				sh(t, "ip addr flush dev br0")
			} else {
				sh(t, "ip addr replace 10.1.0.1/24 dev br0")
			}
			cfg := configured(t, t.TempDir(), keys)
			cfg.LAN.Interface, cfg.NAT = "br0", config.NAT{Masquerade: true, Hairpin: true}
			expectFindings(t, *cfg, Warning, "br0 is a bridge, whose frames netfilter sees",
				"sysctl -w net.bridge.bridge-nf-call-iptables=0")
			var log logtest.Log
			d := serveLogging(t, cfg, log.Logger())
			const warning = "br0 is a bridge, whose frames netfilter sees"
			if log.Count(warning) != 1 {
				t.Errorf("the log warns %d times:\n%s", log.Count(warning), log.String())
			}
			sh(t, "ip -n client addr flush dev c0")
			addr := lease(t)
			if out, err := try("ip netns exec client ping -c 1 -W 0.3 192.0.2.2"); err == nil {
				t.Errorf("a client passes without a login while netfilter sees the frames: %s", out)
			}
			netnstest.Await(t, "HTTP before login to be answered", func() error {
				if out, err := try(
					"ip netns exec client curl -s -m 5 -o /dev/null -w '%{redirect_url}' http://192.0.2.2/"); err != nil ||
					!strings.Contains(out, "10.1.0.1:8080") {
					return fmt.Errorf("%s, %v", out, err)
				}
				return nil
			})
			logIn(t, d, addr)
			eventually(t, "a client that is logged in to pass", clientReachesServer)
			sh(t, "echo 0 >"+call)
			eventually(t, "the log to say that it is over",
				func() bool { return log.Count("sees a bridge's frames no longer") == 1 })
			eventually(t, "the client to pass still", clientReachesServer)
			sh(t, "echo 1 >"+call)
			eventually(t, "the log to warn again", func() bool { return log.Count(warning) == 2 })
			must(t, d.stop())
			must(t, Detach(d.cfg, false))
		})
	}
}
