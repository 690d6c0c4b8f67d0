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

// chilliIsHere reports whether CoovaChilli is on PATH and starts. No package has it: where
// it does not start, make test names the tests that did nothing for that.
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

// chilliStarts is an error with what chilli prints when it starts and ends without printing its
// version, which the device's own check takes for a program that starts. chilli writes a file into
// /var/run first, and gets one of its own. Some builds exit with an error after the version.
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

// TestCoovaChilliAbsent: the adapter says what is not there, and how to come by it.
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

func TestCoovaChilliAsksRADIUS(t *testing.T) {
	t.Parallel()
	d := NewCoovaChilli(1)
	if !chilliIsHere(t, d) {
		return
	}
	checkAsksRADIUS(t, d, "gateweigh-test-1")
}

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

// checkFailedStart starts a device that cannot start, looks for the parts of
// its error, and stops it. Only a device that runs and is never ready takes all of patience.
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
