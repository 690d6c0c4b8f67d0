package dut

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The tests of this file run CoovaChilli in a lab of a client host, a router and a server (newTestLab). checkPortal is
// the test that all portals pass. A test that cannot run here sets the attribute "not-run" with the reason; "make test"
// lists these.

// chilliIsHere reports whether CoovaChilli is on PATH and starts. Debian has no package of it. If it does not start,
// chilliIsHere sets "not-run".
func chilliIsHere(t *testing.T, d DUT) bool {
	t.Helper()
	err := checkSupported(t, d)
	if err == nil {
		err = chilliStarts(t.Context())
	}
	if err != nil {
		t.Attr("not-run", strings.Join(strings.Fields(err.Error()), " ")) // an attribute is one line
	}
	return err == nil
}

// chilliStarts returns an error with chilli's output if chilli does not print its version. The device's own check is
// not so strict. chilli first writes a file into /var/run, so it runs with a /run of its own. Some builds print the
// version and exit with an error all the same.
func chilliStarts(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-ec",
		`mount -t tmpfs none /run; exec chilli --version`).CombinedOutput()
	if err == nil {
		return nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() && exit.ExitCode() < 126 && regexp.MustCompile(`\d\.\d`).Match(out) {
		return nil
	}
	return fmt.Errorf("coovachilli: chilli is on PATH and does not start: %w: %s", err, out)
}

// TestCoovaChilliNotRunWhereItDoesNotStart runs the tests of CoovaChilli with a chilli that
// does not start: each says so with the attribute that make test counts, and does not fail.
func TestCoovaChilliNotRunWhereItDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]string{
		"a library is missing": "#!/bin/sh\necho \"$0: error while loading shared libraries: libssl.so.1.1: cannot open\" " +
			">&2; exit 127\n",
		"for another machine": "\x7fELF\x02\x01\x01",
		"it crashes":          "#!/bin/sh\necho chilli 1.9; kill -SEGV $$\n",
		"it gives up":         "#!/bin/sh\necho 'no licence'; exit 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range []string{"chilli", "chilli_opt", "chilli_query"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(program), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(
				t.Context(), os.Args[0], "-test.v", "-test.run=^TestCoovaChilli(AsksRADIUS|DoesNotStart)?$")
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("the tests fail: %v\n%s", err, out)
			}
			for _, test := range []string{"TestCoovaChilli", "TestCoovaChilliAsksRADIUS", "TestCoovaChilliDoesNotStart"} {
				if !regexp.MustCompile(`(?m)^=== ATTR +` + test + ` not-run .*chilli`).Match(out) {
					t.Errorf("%s does not say why it did nothing:\n%s", test, out)
				}
			}
		})
	}
}

// TestCoovaChilliAbsent: the error names the missing program, and how to get it.
func TestCoovaChilliAbsent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := checkSupported(t, NewCoovaChilli(1))
	if !errors.Is(err, ErrNotSupported) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"not on PATH", "chilli", "build CoovaChilli"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}

// TestCoovaChilli: clients log in and out, and nothing of CoovaChilli or of its RADIUS server is left when it stops.
func TestCoovaChilli(t *testing.T) {
	t.Parallel()
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
	if addrs := l.router.must(t, `ip -o addr show dev "$1"`, l.env.Port("lan")); !strings.Contains(
		addrs, "192.168.137.254/24") {
		t.Errorf("the clients' interface did not get its address back: %s", addrs)
	}
}

// TestCoovaChilliAsksRADIUS: a wrong password is refused, and the right one admitted.
func TestCoovaChilliAsksRADIUS(t *testing.T) {
	t.Parallel()
	d := NewCoovaChilli(1)
	if !chilliIsHere(t, d) {
		return
	}
	checkAsksRADIUS(t, d, "gateweigh-test-1")
}

// TestCoovaChilliDoesNotStart: the error of a failed start says what is wrong.
func TestCoovaChilliDoesNotStart(t *testing.T) {
	t.Parallel()
	d := NewCoovaChilli(1)
	if !chilliIsHere(t, d) {
		return
	}
	t.Run("bad configuration", func(t *testing.T) {
		l := newTestLab(t, d, 1)
		l.env.LAN = netip.MustParsePrefix("10.1.0.252/32")
		checkFailedStart(t, d, l, 30*time.Second, "chilli ended while starting")
	})
	t.Run("no TUN device", func(t *testing.T) {
		l := newTestLab(t, d, 1)
		l.router.must(t, "mount --bind /dev/null /dev/net/tun")
		checkFailedStart(t, d, l, 5*time.Second, "chilli is running but its TUN device is absent")
	})
	t.Run("no RADIUS address", func(t *testing.T) {
		l := newTestLab(t, d, 1)
		l.env.ServiceIP = netip.MustParseAddr("192.168.89.77") // not the server's
		checkFailedStart(t, d, l, 30*time.Second, "freeradius ended while starting", "192.168.89.77")
	})
}

// checkFailedStart starts a device that cannot start, looks for parts of its error (want), and stops it. patience is
// how long the start may take: a device that runs and never becomes ready takes all of it.
func checkFailedStart(t *testing.T, d DUT, l *testLab, patience time.Duration, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
