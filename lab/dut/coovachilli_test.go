package dut

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
)

// newChilliLab is a lab with CoovaChilli's network.
func newChilliLab(t *testing.T, d *CoovaChilli, n int) *testLab {
	t.Helper()
	return newTestLab(t, d.Traits().LAN, netip.MustParseAddr("10.1.0.254"), n)
}

func TestCoovaChilli(t *testing.T) {
	n := testClients(t)
	d := NewCoovaChilli(n)
	skipUnsupported(t, d)
	l := newChilliLab(t, d, n)
	checkPortal(t, d, l, n)
	for _, name := range l.server.processes(t) {
		if strings.Contains(name, "radius") {
			t.Errorf("%s is left on the server", name)
		}
	}
	if addrs := l.router.must(t, "ip -o addr show dev gwd-lan"); !strings.Contains(addrs, "10.1.0.254/24") {
		t.Errorf("the clients' interface did not get its address back: %s", addrs)
	}
}

func TestCoovaChilliAsksRADIUS(t *testing.T) {
	d := NewCoovaChilli(1)
	skipUnsupported(t, d)
	l := newChilliLab(t, d, 1)
	l.start(t, d)
	c := l.addClients(t, 1)[0]
	adm := d.Traits().Admission
	adm.Password = "wrong"
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := client.Login(ctx, c, adm, 1)
	if err == nil || !strings.Contains(err.Error(), "reject") || !strings.Contains(err.Error(), "gateweigh-test-1") {
		t.Errorf("log-in with a wrong password: %v", err)
	}
	if c.reaches(t.Context(), trafficPort) {
		t.Error("a client that RADIUS rejected reaches the server")
	}
}

func TestCoovaChilliEndsWhileStarting(t *testing.T) {
	d := NewCoovaChilli(1)
	skipUnsupported(t, d)
	t.Run("chilli", func(t *testing.T) {
		l := newChilliLab(t, d, 1)
		// A TAP device of the name it wants for its TUN device.
		l.router.must(t, "ip tuntap add dev tun0 mode tap")
		checkFailedStart(t, d, l, "chilli ended while starting")
	})
	t.Run("freeradius", func(t *testing.T) {
		l := newChilliLab(t, d, 1)
		l.env.ServiceIP = netip.MustParseAddr("192.168.89.77") // not the server's
		checkFailedStart(t, d, l, "freeradius ended while starting", "192.168.89.77")
	})
}

// checkFailedStart starts a device that cannot start, looks for the parts of
// its error, and stops it.
func checkFailedStart(t *testing.T, d DUT, l *testLab, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := d.Start(ctx, l.env)
	if err == nil {
		t.Error("it started")
	}
	for _, part := range want {
		if err != nil && !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	checkStop(t, d, l)
}
