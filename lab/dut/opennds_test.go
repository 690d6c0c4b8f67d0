package dut

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// The tests of this file run openNDS in a lab of a client host, a router and a server (newTestLab). checkPortal is the
// test that all portals pass. must runs a shell script on a host.

// testClients returns how many clients the tests of portals admit: 4, or the number in GATEWEIGH_TEST_CLIENTS, with
// which their log shows login times.
func testClients(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("GATEWEIGH_TEST_CLIENTS"))
	if err != nil || n < 1 {
		return 4
	}
	return n
}

// TestOpenNDS: clients log in and out, and nothing of openNDS is left when it stops.
func TestOpenNDS(t *testing.T) {
	t.Parallel()
	n := testClients(t)
	d := NewOpenNDS(n)
	skipUnsupported(t, d)
	l := newTestLab(t, d, n)
	checkPortal(t, d, l, n)
	if mounts := l.router.must(t, "cat /proc/mounts"); strings.Contains(mounts, "opennds") {
		t.Errorf("mounts left on the router:\n%s", mounts)
	}
}

// TestOpenNDSRepairsHalfOpenSession: after a failed firewall command, openNDS has a session whose client has no access.
// Status must notice that, and Login repair it.
func TestOpenNDSRepairsHalfOpenSession(t *testing.T) {
	t.Parallel()
	d := NewOpenNDS(1)
	skipUnsupported(t, d)
	l := newTestLab(t, d, 1)
	l.start(t, d)
	// Signal 17 is bit 16: see templates/opennds-settle.sh.
	mask := strings.TrimSpace(l.router.must(t, `sed -n 's/^SigCgt://p' "/proc/$(pgrep -xo opennds)/status"`))
	if caught, err := strconv.ParseUint(mask, 16, 64); err != nil || caught>>16&1 == 1 {
		t.Errorf("openNDS still handles SIGCHLD: %s, %v", mask, err)
	}
	// The lab's script that makes openNDS ignore SIGCHLD must have left no rule.
	if rules := l.router.must(t, "nft list chain ip mangle ndsBLK"); strings.Contains(rules, "02:67:77") {
		t.Errorf("a rule is left from starting:\n%s", rules)
	}
	c := l.addClients(t, 1)[0]
	adm := d.Traits().Admission
	loginAll(t, []*testClient{c}, adm)
	l.router.must(t, "iptables -t mangle -F ndsOUT")
	if in, err := client.Status(t.Context(), c, adm, 1); in || err != nil {
		t.Fatalf("status without rules is %v, %v; want false, nil", in, err)
	}
	loginAll(t, []*testClient{c}, adm)
	if !c.reaches(t.Context(), trafficPort) {
		t.Error("the client does not reach the server after its session was repaired")
	}
	period := fmt.Sprintf("Client Check Interval: %.0fs", d.Traits().Housekeeping.Seconds())
	if status := l.router.must(t, "ndsctl status"); !strings.Contains(status, period) {
		t.Errorf("no %q in:\n%s", period, status)
	}
}

// TestOpenNDSLogins: the slower openNDS's web server answers, the fewer clients log in at the same time, but at least
// one.
func TestOpenNDSLogins(t *testing.T) {
	for answer, want := range map[time.Duration]int{
		0: 4, 60 * time.Millisecond: 4, 200 * time.Millisecond: 2, time.Second: 1, time.Minute: 1} {
		if got := openNDSAtOnce(answer); got != want {
			t.Errorf("web server that answers after %s: %d logins at once, want %d", answer, got, want)
		}
	}
}

// TestOpenNDSEndsWhileStarting: openNDS ends on an interface with two addresses. The error has its own message.
func TestOpenNDSEndsWhileStarting(t *testing.T) {
	t.Parallel()
	d := NewOpenNDS(1)
	skipUnsupported(t, d)
	l := newTestLab(t, d, 1)
	l.router.must(t, `ip addr add 192.168.138.1/24 dev "$1"`, l.env.Port("lan"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	err := d.Start(ctx, l.env)
	if err == nil || !strings.Contains(err.Error(), "opennds ended while starting") ||
		!strings.Contains(err.Error(), l.env.Port("lan")) {
		t.Errorf("start on an interface with two addresses: %v", err)
	}
	checkStop(t, d, l)
}

// TestOpenNDSNeverReady: the error of a start that never becomes ready says what is missing.
func TestOpenNDSNeverReady(t *testing.T) {
	t.Parallel()
	d := NewOpenNDS(1)
	skipUnsupported(t, d)
	l := newTestLab(t, d, 1)
	// Without /usr/bin/iptables there are no rules to become ready with.
	l.router.must(t, `printf '#!/bin/sh\nsleep 60\n' >/tmp/iptables; chmod 755 /tmp/iptables
mount --bind /tmp/iptables "$(readlink -f "$(command -v iptables)")"`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- d.Start(ctx, l.env) }()
	labtest.Await(t, "openNDS to wait for its rules", func() bool {
		names := l.router.processes(t)
		return slices.Contains(names, "opennds") && slices.Contains(names, "sleep")
	})
	cancel()
	err := <-started
	if err == nil || !strings.Contains(err.Error(), "running but its filter chain ndsNET is absent") {
		t.Errorf("start without rules: %v", err)
	}
	for range 2 {
		if err := d.Stop(t.Context(), l.env); err != nil {
			t.Error(err)
		}
	}
}

// TestOpenNDSOfManyHasItsOwnNetwork: for more clients than a /24 holds, openNDS gets a larger network. It sets the
// router's address in it, and removes the address when it stops.
func TestOpenNDSOfManyHasItsOwnNetwork(t *testing.T) {
	t.Parallel()
	d := NewOpenNDS(1000)
	skipUnsupported(t, d)
	l := newTestLab(t, d, 2)
	const addresses = `ip -o -4 addr show dev "$1" | awk '{print $4}'`
	before := l.router.must(t, addresses, l.env.Port("lan"))
	checkPortal(t, d, l, 2)
	if after := l.router.must(t, addresses, l.env.Port("lan")); after != before {
		t.Errorf("the router's addresses were %q and are %q", before, after)
	}
}
