package dut

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// chilliIsHere reports whether CoovaChilli is on PATH. No package has it: where it is
// absent make test names the tests that did nothing for that.
func chilliIsHere(t *testing.T, d DUT) bool {
	t.Helper()
	err := supported(t, d)
	if err != nil {
		t.Attr("not-run", err.Error())
	}
	return err == nil
}

// TestCoovaChilliAbsent: the adapter says what is not there, and how to come by it.
func TestCoovaChilliAbsent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := supported(t, NewCoovaChilli(1))
	if !errors.Is(err, ErrNotSupported) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"not on PATH", "chilli", "build CoovaChilli"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}

func TestCoovaChilli(t *testing.T) {
	n := testClients(t)
	d := NewCoovaChilli(n)
	if !chilliIsHere(t, d) {
		return
	}
	l := newTestLab(t, d, n)
	checkPortal(t, d, l, n)
	for _, name := range l.server.processes(t) {
		if strings.Contains(name, "radius") {
			t.Errorf("%s is left on the server", name)
		}
	}
	if addrs := l.router.must(t, `ip -o addr show dev "$1"`, l.env.Port("lan")); !strings.Contains(addrs, "192.168.137.254/24") {
		t.Errorf("the clients' interface did not get its address back: %s", addrs)
	}
}

func TestCoovaChilliAsksRADIUS(t *testing.T) {
	d := NewCoovaChilli(1)
	if !chilliIsHere(t, d) {
		return
	}
	checkAsksRADIUS(t, d, "gateweigh-test-1")
}

func TestCoovaChilliDoesNotStart(t *testing.T) {
	d := NewCoovaChilli(1)
	if !chilliIsHere(t, d) {
		return
	}
	t.Run("bad configuration", func(t *testing.T) {
		l := newTestLab(t, d, 1)
		l.env.LAN = netip.MustParsePrefix("10.1.0.252/32")
		checkFailedStart(t, d, l, "chilli ended while starting")
	})
	t.Run("no TUN device", func(t *testing.T) {
		l := newTestLab(t, d, 1)
		l.router.must(t, "mount --bind /dev/null /dev/net/tun")
		checkFailedStart(t, d, l, "chilli is running but its TUN device is absent")
	})
	t.Run("no RADIUS address", func(t *testing.T) {
		l := newTestLab(t, d, 1)
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
