package gateway

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// keysOf are the keys of [datapath] by kind.
var keysOf = map[string]string{"ebpf": onEBPF, "tun": `kind = "tun"`, "nfqueue": `kind = "nfqueue"`}

// TestNoTrafficBeforeStart: on a machine that forwards, a client with an address of its own choice gets nothing through
// from the boot until the gateway runs and logs it in, if the guard comes before the interface.
func TestNoTrafficBeforeStart(t *testing.T) {
	must(t, Guard("lan0"))
	network(t)
	lan, err := net.InterfaceByName("lan0")
	must(t, err)
	sh(t, `ip -n client addr add 10.1.0.99/24 dev c0; ip -n client route add default via 10.1.0.1; ip -n client neigh add 10.1.0.1 lladdr `+
		lan.HardwareAddr.String()+` dev c0
nsenter --net=/run/netns/server nft 'table ip seen { counter clients {}; chain in { type filter hook prerouting priority 0; ip saddr 10.1.0.0/24 counter name clients; }; }'`)
	sender := exec.Command("ip", "netns", "exec", "client", "ping", "-q", "-i", "0.005", "192.0.2.2")
	must(t, netnstest.Start(sender))
	ended := make(chan error, 1)
	go func() { ended <- sender.Wait() }()
	t.Cleanup(func() { sender.Process.Kill(); <-ended })
	received := func() string { return sh(t, "nsenter --net=/run/netns/server nft list counters") }
	arrive := func(t *testing.T, n uint64) {
		t.Helper()
		before := packetsAt(t, "lan0")
		eventually(t, "the client's packets to arrive at lan0", func() bool { return packetsAt(t, "lan0") >= before+n })
	}
	for _, kind := range []string{"ebpf", "nfqueue", "tun"} {
		t.Run(kind, func(t *testing.T) {
			must(t, Guard("lan0")) // before nfqueue and tun: as before, but the interface is there
			if kind == "tun" {
				sh(t, "ip addr flush dev lan0; ip route add 10.1.0.0/24 dev lan0")
			}
			sh(t, "nsenter --net=/run/netns/server nft reset counters >/dev/null")
			arrive(t, 50)
			d := startOn(t, t.TempDir(), keysOf[kind])
			t.Cleanup(func() { d.stop(); must(t, Detach(d.cfg, false)) })
			arrive(t, 20)
			if got := received(); !strings.Contains(got, "packets 0 ") {
				t.Fatalf("the server has heard of the client before its login:\n%s", got)
			}
			logIn(t, d, "10.1.0.99")
			eventually(t, "packets to pass after the login", func() bool { return !strings.Contains(received(), "packets 0 ") })
		})
	}
}

// packetsAt returns how many packets an interface has received.
func packetsAt(t *testing.T, dev string) uint64 {
	t.Helper()
	link, err := netlink.LinkByName(dev)
	must(t, err)
	return link.Attrs().Statistics.RxPackets
}

// logIn logs the client in with an address that nobody leased.
func logIn(t *testing.T, d daemon, addr string) {
	t.Helper()
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	mac := strings.Fields(sh(t, "ip -n client -br link show c0"))[2]
	if _, err := c.Login(
		t.Context(), control.LoginRequest{Addr: netip.MustParseAddr(addr), MAC: mac, User: "ann"}); err != nil {
		t.Fatal(err)
	}
}

// TestForwardingSwitch: a gateway switches forwarding on at its own interfaces, and off when nothing passes
// without it: when the daemon ends, or with ebpf when it is detached. What the administrator switched on stays on.
func TestForwardingSwitch(t *testing.T) {
	network(t)
	sh(t, "sysctl -qw net.ipv4.ip_forward=0; ip -n client addr add 10.1.0.99/24 dev c0; ip -n client route add default "+
		"via 10.1.0.1")
	t.Cleanup(func() { sh(t, "sysctl -qw net.ipv4.ip_forward=1") })
	dir := t.TempDir()
	for _, kind := range []string{"ebpf", "nfqueue", "tun"} {
		t.Run(kind, func(t *testing.T) {
			clients := "lan0"
			if kind == "tun" {
				sh(t, "ip addr flush dev lan0")
				clients = "tun0"
			}
			d := startOn(t, dir, keysOf[kind])
			forwardingIs(t, "with the daemon", map[string]bool{clients: true, "wan0": true, "lo": false, "all": false})
			logIn(t, d, "10.1.0.99")
			eventually(t, "a client that is logged in to pass", clientReachesServer)
			must(t, d.stop())
			stays := kind == "ebpf"
			forwardingIs(t, "without the daemon", map[string]bool{"lan0": stays, "wan0": stays})
			if stays && !clientReachesServer() {
				t.Error("without the daemon the client is cut off")
			}
			must(t, Detach(d.cfg, false))
			forwardingIs(t, "detached", map[string]bool{"lan0": false, "wan0": false})
		})
	}
	sh(t, "sysctl -qw net.ipv4.ip_forward=1")
	d := startOn(t, dir, keysOf["tun"])
	must(t, d.stop())
	must(t, Detach(d.cfg, false))
	forwardingIs(t, "switched on by the administrator", map[string]bool{"lan0": true, "wan0": true})
}

// forwardingIs compares the interfaces' switches with what they should be.
func forwardingIs(t *testing.T, phase string, want map[string]bool) {
	t.Helper()
	for dev, on := range want {
		if text, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + dev + "/forwarding"); err != nil ||
			strings.TrimSpace(string(text)) == "1" != on {
			t.Errorf("%s, forwarding at %s is %s, %v", phase, dev, text, err)
		}
	}
}
