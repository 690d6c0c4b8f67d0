package gateway

import (
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/logtest"
)

// TestForwardingRestored: where somebody sets net.ipv4.ip_forward to 0 under the daemon, clients continue, the log
// warns and the status counts; where forwarding cannot be switched on again the status says why nothing passes, until
// it can. Long: the steps of one run, each of which needs the state that the one before left.
func TestForwardingRestored(t *testing.T) {
	network(t)
	sh(t, "ip -n client addr add 10.1.0.99/24 dev c0; ip -n client route add default via 10.1.0.1")
	t.Cleanup(func() { sh(t, "umount -l /proc/sys 2>/dev/null || :; sysctl -qw net.ipv4.ip_forward=1") })
	other := t.TempDir() // another view of the settings
	sh(t, "mount -t proc none "+other)
	t.Cleanup(func() { sh(t, "umount "+other) })
	for _, kind := range []string{"ebpf", "nfqueue", "tun"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "tun" {
				sh(t, "ip addr flush dev lan0")
			}
			sh(t, "sysctl -qw net.ipv4.ip_forward=1")
			var logs logtest.Log
			d := serveLogging(t, configured(t, t.TempDir(), keysOf[kind]), logs.Logger())
			logIn(t, d, "10.1.0.99")
			eventually(t, "a client that is logged in to pass", clientReachesServer)
			c, err := control.Dial(d.cfg.ControlSocket())
			must(t, err)
			status := func() control.Status {
				s, err := c.Status(t.Context())
				must(t, err)
				return s
			}
			sh(t, "sysctl -qw net.ipv4.ip_forward=0")
			again := func() uint64 { return status().Repairs["forwarding-again"] }
			eventually(t, "the status to count", func() bool { return again() > 0 })
			eventually(t, "the client to pass again", clientReachesServer)
			on := again()       // one or two: the daemon may look while the kernel switches one interface after the other
			if kind == "ebpf" { // the rest is the same for all
				sh(t, "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys; echo 0 >"+other+
					"/sys/net/ipv4/conf/wan0/forwarding")
				eventually(t, "the status to say why nothing passes", func() bool {
					s := status()
					return s.Datapath == "ebpf, closed" && strings.Contains(s.Why, "forwarding is off at wan0")
				})
				sh(t, "umount -l /proc/sys") // which the daemon may be looking at
				eventually(t, "forwarding to be on again", func() bool {
					s := status()
					return s.Repairs["forwarding-again"] > on && s.Datapath != "ebpf, closed"
				})
				must(t, Detach(d.cfg, true)) // puts back what was there; the daemon leaves it so
				forwardingIs(t, "detached by force", map[string]bool{"lan0": false, "wan0": false})
				eventually(t, "the status to say so", func() bool { return status().Datapath == "ebpf, detached" })
			}
			must(t, d.stop())
			forwardingIs(t, "without the daemon", map[string]bool{"lan0": false, "wan0": false})
			if warned := logs.Count("level=WARN msg=\"forwarding was switched off"); warned < 1 ||
				!strings.Contains(logs.String(), "net.ipv4.ip_forward") {
				t.Errorf("it said:\n%s", logs.String())
			}
			must(t, Detach(d.cfg, false))
		})
	}
}
