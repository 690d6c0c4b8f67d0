// Tests of programs that run as devices. newTestLab makes a lab of a client host, a router with the device, and a
// server (lab_test.go).

package dut

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestDaemonAwait: await returns when the probe (a command) succeeds. If the program ends or the deadline passes before
// that, the error says which, and what the program printed last.
func TestDaemonAwait(t *testing.T) {
	t.Parallel()
	h := newTestLab(t, Clean{}, 1).router
	for name, tc := range map[string]struct {
		script string
		probe  probe
		want   []string // parts of the error; nil: no error, it becomes ready
	}{
		"ready late": {"sleep 0.2; touch up; exec sleep 60", probe{"it is not up", "test -e up"}, nil},
		"ends": {"echo first; echo cannot bind; exit 3", probe{"it is not up", "false"}, []string{
			"ended while starting", "first | cannot bind"}},
		"ends mutely": {"exit 0", probe{"it is not up", "false"}, []string{"ended while starting", "printed nothing"}},
		"never ready": {"echo waiting; exec sleep 60", probe{"its door is shut", "false"}, []string{
			"running but its door is shut", "deadline", "waiting"}},
	} {
		t.Run(name, func(t *testing.T) {
			h.must(t, "rm -f up")
			d := daemon{host: h, name: "gwd-daemon"}
			if err := d.spawn(t.Context(), "sh", "-c", tc.script); err != nil {
				t.Fatal(err)
			}
			patience := 20 * time.Second
			if name == "never ready" {
				patience = 2 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := d.await(ctx, tc.probe)
			if (err == nil) != (tc.want == nil) {
				t.Errorf("await: %v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			for range 2 { // the second time there is nothing to kill, which is no error
				if err := d.kill(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if left := h.processes(t); len(left) != 0 {
				t.Errorf("processes left: %q", left)
			}
		})
	}
}

// TestLeaseRange: leases begin at the 100th address where the clients fit from there on, else at the first one. The
// gateway's address is left out.
func TestLeaseRange(t *testing.T) {
	for _, tc := range []struct {
		lan, gateway string
		clients      int
		first, last  string // empty: an error
	}{
		{"192.168.137.0/24", "192.168.137.254", 100, "192.168.137.100", "192.168.137.253"},
		{"192.168.137.0/24", "192.168.137.254", 250, "192.168.137.1", "192.168.137.253"},
		{"192.168.137.0/24", "192.168.137.1", 250, "192.168.137.2", "192.168.137.254"},
		{"10.1.0.0/16", "10.1.0.1", 10000, "10.1.0.100", "10.1.255.254"},
		{"192.168.137.0/24", "192.168.137.254", 254, "", ""},
	} {
		first, last, err := leaseRange(netip.MustParsePrefix(tc.lan), netip.MustParseAddr(tc.gateway), tc.clients)
		if tc.first == "" {
			if err == nil {
				t.Errorf("%d clients fit in %s: %s to %s", tc.clients, tc.lan, first, last)
			}
			continue
		}
		if err != nil || first.String() != tc.first || last.String() != tc.last {
			t.Errorf("range of %s for %d clients is %s to %s, %v; want %s to %s",
				tc.lan, tc.clients, first, last, err, tc.first, tc.last)
		}
	}
	if got := dottedMask(netip.MustParsePrefix("10.0.0.0/20")); got != "255.255.240.0" {
		t.Errorf("mask of a /20 is %s", got)
	}
}

// TestCleanRouter: the clean router does nothing but check that the kernel forwards.
func TestCleanRouter(t *testing.T) {
	l := newTestLab(t, Clean{}, 1)
	d := Clean{}
	if err := errors.Join(checkSupported(t, d), d.Start(t.Context(), l.env), d.Stop(t.Context(), l.env)); err != nil {
		t.Fatal(err)
	}
	l.router.must(t, "echo 0 >/proc/sys/net/ipv4/ip_forward")
	if err := d.Start(t.Context(), l.env); err == nil || !strings.Contains(err.Error(), "ip_forward") {
		t.Errorf("a router that does not forward starts: %v", err)
	}
}
