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
	if err == nil || !strings.Contains(err.Error(), "refused by the portal") || !strings.Contains(err.Error(), "gateweigh-test-1") {
		t.Errorf("log-in with a wrong password: %v", err)
	}
	if c.reaches(t.Context(), trafficPort) {
		t.Error("a client that RADIUS rejected reaches the server")
	}
	loginAll(t, []*testClient{c}, d.Traits().Admission)
	if !c.reaches(t.Context(), trafficPort) {
		t.Error("the right password after a wrong one gives no access")
	}
}

func TestCoovaChilliDoesNotStart(t *testing.T) {
	d := NewCoovaChilli(1)
	skipUnsupported(t, d)
	t.Run("bad configuration", func(t *testing.T) {
		l := newChilliLab(t, d, 1)
		l.env.LAN = netip.MustParsePrefix("10.1.0.252/32")
		checkFailedStart(t, d, l, "chilli ended while starting")
	})
	t.Run("no TUN device", func(t *testing.T) {
		l := newChilliLab(t, d, 1)
		l.router.must(t, "mount --bind /dev/null /dev/net/tun")
		checkFailedStart(t, d, l, "chilli is running but its TUN device is absent")
	})
	t.Run("no RADIUS address", func(t *testing.T) {
		l := newChilliLab(t, d, 1)
		l.env.ServiceIP = netip.MustParseAddr("192.168.89.77") // not the server's
		checkFailedStart(t, d, l, "freeradius ended while starting", "192.168.89.77")
	})
}

// checkFailedStart starts a device that cannot start, looks for the parts of
// its error, and stops it.
func checkFailedStart(t *testing.T, d DUT, l *testLab, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
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
