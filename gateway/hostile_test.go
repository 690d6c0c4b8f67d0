package gateway

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
)

// TestInvalidAddressesRefused: addresses that no client can have are refused, and entries of a former LAN keep no
// daemon from starting.
func TestInvalidAddressesRefused(t *testing.T) {
	network(t)
	dir := t.TempDir()
	d := start(t, dir)
	defer func() { must(t, d.stop()); must(t, Detach(d.cfg, false)) }()
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	login := func(addr, mac string) error {
		_, err := c.Login(t.Context(), control.LoginRequest{Addr: netip.MustParseAddr(addr), MAC: mac, User: "op"})
		return err
	}
	const mac = "02:aa:bb:cc:dd:04"
	for addr, want := range map[string]string{
		"198.51.100.7": "is not in the LAN, 10.1.0.0/24", "10.1.0.1": "is the gateway's own address",
		"10.1.0.0": "is the network 10.1.0.0/24 itself", "10.1.0.255": "is the LAN's broadcast address",
	} {
		if err := login(addr, mac); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("login of %s: %v, want %q", addr, err, want)
		}
	}
	lan, err := net.InterfaceByName("lan0")
	must(t, err)
	for _, mac := range []string{"00:00:00:00:00:00", lan.HardwareAddr.String()} {
		if err := login("10.1.0.77", mac); err == nil || !strings.Contains(err.Error(), "no client's MAC") {
			t.Errorf("login of %s: %v", mac, err)
		}
	}
	must(t, login("10.1.0.77", mac))
	must(t, d.stop())

	// The LAN changes, in size too.
	sh(t, "ip addr del 10.1.0.1/24 dev lan0; ip addr add 10.7.0.1/23 dev lan0")
	moved := *d.cfg
	moved.LAN.Address = netip.MustParsePrefix("10.7.0.1/23")
	moved.DHCP.Pools = []config.Range{{First: netip.MustParseAddr("10.7.0.2"), Last: netip.MustParseAddr("10.7.0.9")}}
	d = serve(t, &moved)
	c, err = control.Dial(d.cfg.ControlSocket())
	must(t, err)
	status, err := c.Status(t.Context())
	must(t, err)
	for state, n := range status.Sessions {
		if n > 0 {
			t.Errorf("%d clients of the former LAN are %s", n, state)
		}
	}
}

// TestUnauthenticatedReachNoService: before login clients reach only what the portal needs of the machine, whatever
// routing rules others add.
func TestUnauthenticatedReachNoService(t *testing.T) {
	network(t)
	d := start(t, t.TempDir())
	defer func() { must(t, d.stop()); must(t, Detach(d.cfg, false)) }()
	lease(t)
	service, err := net.ListenPacket("udp4", "0.0.0.0:2223")
	must(t, err)
	defer service.Close()
	got := func(label string) {
		t.Helper()
		for _, to := range []string{"10.1.0.1", "192.0.2.1"} {
			sh(t, "echo hello | ip netns exec client busybox nc -u -w 1 "+to+" 2223 || :")
		}
		sh(t, "ip netns exec client busybox arping -c 1 -I c0 10.1.0.1") // behind it on the wire
		if queue := strings.Fields(sh(t, "ss -Hlun 'sport = :2223'")); len(queue) < 2 || queue[1] != "0" {
			t.Errorf("%s: a service was reached: %v", label, queue)
		}
	}
	got("with the rules of a fresh machine")
	sh(t, "ip rule add from 10.1.0.0/24 lookup main") // without a priority: placed before all others
	t.Cleanup(func() { sh(t, "ip rule del from 10.1.0.0/24 lookup main") })
	got("with a rule of somebody else")
	if caught := sh(t, curl+`-o /dev/null -w '%{http_code}' http://192.0.2.2/`); caught != "302" {
		t.Errorf("with a rule of somebody else the first look at the web is answered by %s", caught)
	}
	before := sh(t, "ip netns exec server cat /proc/net/snmp | grep ^Udp:")
	sh(t, "echo hello | ip netns exec client busybox nc -u -w 1 192.0.2.2 9999 || :")
	if after := sh(t, "ip netns exec server cat /proc/net/snmp | grep ^Udp:"); after != before {
		t.Errorf("UDP of a stranger reached the server:\n%s%s", before, after)
	}
}

// TestReplacedInterfaceEndsDaemon: a new interface has no programs, so the daemon ends, to be started again.
func TestReplacedInterfaceEndsDaemon(t *testing.T) {
	network(t)
	d := start(t, t.TempDir())
	sh(t, "ip link del lan0")
	err := <-d.result
	d.result <- err
	if err == nil || !strings.Contains(err.Error(), "lan0 is gone") {
		t.Errorf("the daemon ended with %v", err)
	}
}
