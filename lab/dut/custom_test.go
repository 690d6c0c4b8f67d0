package dut

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

// A custom device is one that an experiment file describes in a table [dut.NAME] by its commands. The tests of this
// file run such devices in a lab of a client host, a router and a server. must runs a shell script on a host, and fails
// the test if the script fails.

// customLab makes a lab with one client that has a fixed address.
func customLab(t *testing.T) (*testLab, ClientAddr) {
	t.Helper()
	l := newTestLab(t, Clean{}, 1)
	l.clientHost.must(t, `ip addr flush dev "$1"; ip addr add 192.168.137.2/24 dev "$1"`, l.clientHost.Ifs[0])
	l.setMAC(t, "02:00:00:00:00:02")
	return l, ClientAddr{N: 1, IP: netip.MustParseAddr("192.168.137.2"), MAC: "02:00:00:00:00:02"}
}

// setMAC gives the client another hardware address.
func (l *testLab) setMAC(t *testing.T, mac string) {
	t.Helper()
	l.clientHost.must(
		t, `ip link set "$1" address "$2"; ip route replace default via 192.168.137.254`, l.clientHost.Ifs[0], mac)
}

// reaches reports whether the client's packets arrive at the server. Nothing listens on port 9 there, so the server
// refuses a connection that reaches it.
func (l *testLab) reaches(t *testing.T) bool {
	t.Helper()
	out, err := l.clientHost.Run(
		t.Context(), agent.Command{Argv: []string{"timeout", "1", "bash", "-c", "</dev/tcp/192.168.89.1/9"}})
	if err == nil {
		t.Fatal("something listens on the server's port 9")
	}
	return strings.Contains(out.Stderr, "refused")
}

// custom makes the device of a table [dut.x].
func custom(t *testing.T, table string) *Custom {
	t.Helper()
	exp, err := experiment.Catalogue{DUTs: Builtin()}.Parse(
		"x.toml", []byte("duts = [\"x\"]\nclients = [1]\noffered_mbps = [1]\n[dut.x]\n"+table))
	if err != nil {
		t.Fatal(err)
	}
	return &Custom{name: "x", spec: exp.Custom["x"]}
}

// shippedDevices returns the devices that ship as TOML, and those of the example experiments that admit clients on the
// router. The value is the example, or nil.
func shippedDevices(t *testing.T) map[string]*experiment.Experiment {
	t.Helper()
	devices := map[string]*experiment.Experiment{}
	for _, name := range experiment.ShippedDUTs() {
		devices[name] = nil
	}
	paths, err := filepath.Glob("../../examples/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("\n[dut.")) {
			continue
		}
		exp, err := experiment.Catalogue{DUTs: Builtin()}.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range exp.CustomNames() {
			if len(exp.Custom[name].Admit) > 0 {
				devices[name] = exp
			}
		}
	}
	if len(devices) < 2 {
		t.Fatalf("only %d devices", len(devices))
	}
	return devices
}

// TestDescribedDevicesAdmit: each device lets the packets of admitted clients through, and no others: not before the
// admission, not after its revocation, and not those of another host with an admitted IP address.
func TestDescribedDevicesAdmit(t *testing.T) {
	t.Parallel()
	for name, exp := range shippedDevices(t) {
		t.Run(name, func(t *testing.T) {
			l, cl := customLab(t)
			d, err := New(name, 1, exp)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkSupported(t, d); err != nil {
				t.Fatal(err)
			}
			if !l.reaches(t) {
				t.Fatal("the clean router does not forward")
			}
			if err := d.Start(t.Context(), l.env); err != nil {
				t.Fatal(err)
			}
			if l.reaches(t) {
				t.Error("forwarded before admission")
			}
			admitter := d.(Admitter)
			// A hundred clients are admitted at the same time. One of them is real.
			all := []ClientAddr{cl}
			for i := byte(3); i < 102; i++ {
				all = append(all,
					ClientAddr{N: int(i) - 1, IP: netip.AddrFrom4([4]byte{192, 168, 137, i}), MAC: "02:00:00:00:01:02"})
			}
			if err := admitter.Admit(t.Context(), l.env, all); err != nil {
				t.Fatal(err)
			}
			if !l.reaches(t) {
				t.Error("not forwarded after admission")
			}
			l.setMAC(t, "02:00:00:00:00:66")
			if l.reaches(t) {
				t.Error("forwarded for another MAC")
			}
			l.setMAC(t, "02:00:00:00:00:02")
			if err := admitter.Revoke(t.Context(), l.env, all); err != nil {
				t.Fatal(err)
			}
			if l.reaches(t) {
				t.Error("forwarded after revocation")
			}
			for range 2 {
				if err := d.Stop(t.Context(), l.env); err != nil {
					t.Fatal(err)
				}
			}
			if !l.reaches(t) {
				t.Error("Stop left something that blocks the client")
			}
			if rules := l.router.must(t, "nft list ruleset"); strings.TrimSpace(rules) != "" {
				t.Errorf("Stop left rules:\n%s", rules)
			}
		})
	}
}

// TestCustomDaemon: files of a table get the lab's values in place of ${GATEWEIGH_…}, the daemon becomes ready after a
// while, and nothing is left after Stop.
func TestCustomDaemon(t *testing.T) {
	t.Parallel()
	l, _ := customLab(t)
	d := custom(t, `
files = { "gw.conf" = "${GATEWEIGH_LAN_IF} ${GATEWEIGH_GATEWAY} $HOME ${OTHER}\n", "/etc/gwx/late.sh" = "sleep 0.3; touch $GATEWEIGH_SCRATCH/up; exec tail -f /dev/null\n" }
start = 'cp gw.conf copied; env > vars'
daemon = ["sh", "/etc/gwx/late.sh"]
ready = 'test -e "$GATEWEIGH_SCRATCH/up"'
stop = 'rm "$GATEWEIGH_SCRATCH/up"'
processes = ["tail"]
`)
	if err := d.Start(t.Context(), l.env); err != nil {
		t.Fatal(err)
	}
	if got := l.router.must(t, "cat copied"); got != l.env.Port("lan")+" 192.168.137.254 $HOME ${OTHER}\n" {
		t.Errorf("file: %q", got)
	}
	vars := strings.Split(l.router.must(t, "cat vars"), "\n")
	for _, want := range []string{
		"GATEWEIGH_LAN_IF=" + l.env.Port("lan"), "GATEWEIGH_WAN_IF=" + l.env.Port("wan"), "GATEWEIGH_LAN=192.168.137.0/24",
		"GATEWEIGH_GATEWAY=192.168.137.254",
		"GATEWEIGH_SERVER=192.168.89.1", "GATEWEIGH_SERVICE=192.168.89.2", "GATEWEIGH_CLIENTS=1",
		"GATEWEIGH_SCRATCH=" + agent.Scratch,
	} {
		if !slices.Contains(vars, want) {
			t.Errorf("start did not get %s", want)
		}
	}
	if got := l.router.processes(t); !slices.Contains(got, "tail") {
		t.Errorf("daemon does not run: %v", got)
	}
	if err := d.Stop(t.Context(), l.env); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, l.router, "tail")
	l.router.must(t, "test ! -e up")
}

// awaitGone waits until no process of that name is left. A killed process takes a moment to disappear.
func awaitGone(t *testing.T, h testHost, name string) {
	t.Helper()
	netnstest.Await(t, name+" to end", func() error {
		if all := h.processes(t); slices.Contains(all, name) {
			return fmt.Errorf("there are %v", all)
		}
		return nil
	})
}

// TestCustomErrorsNameDeviceKeyAndOutput: the error of a command that fails names device and key, and has its output.
func TestCustomErrorsNameDeviceKeyAndOutput(t *testing.T) {
	t.Parallel()
	l, cl := customLab(t)
	for _, tt := range []struct {
		name, table string
		want        []string
	}{
		{"start", "start = \"echo no licence >&2; exit 3\"\n", []string{"x: start command", "no licence"}},
		{"ready", "start = \"true\"\nready = \"echo still waiting; false\"\nready_timeout = \"1s\"\n",
			[]string{"not ready after 1s", "x: ready command", "still waiting"}},
		{"daemon ends", "daemon = \"echo bad config; exit 1\"\nready = \"false\"\n",
			[]string{"x: daemon command", "ended while starting", "bad config"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := custom(t, tt.table+"stop = \"nft delete table ip none\"\n")
			err := d.Start(t.Context(), l.env)
			if err == nil {
				t.Fatal("Start succeeded")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
			// The stop command fails, because there is nothing to undo. After a failed start that is no error.
			if err := d.Stop(t.Context(), l.env); err != nil {
				t.Errorf("Stop after a failed Start: %v", err)
			}
		})
	}
	t.Run("admit", func(t *testing.T) {
		d := custom(t, "start = \"true\"\nadmit = \"cat; echo refused; false\"\n")
		err := d.Admit(t.Context(), l.env, []ClientAddr{cl})
		if err == nil || !strings.Contains(err.Error(), "x: admit command") ||
			!strings.Contains(err.Error(), "1 192.168.137.2 02:00:00:00:00:02") {
			t.Errorf("Admit = %v", err)
		}
	})
	t.Run("stop", func(t *testing.T) {
		d := custom(t, "start = \"true\"\nstop = \"echo stuck; false\"\n")
		if err := d.Start(t.Context(), l.env); err != nil {
			t.Fatal(err)
		}
		if err := d.Stop(t.Context(), l.env); err == nil || !strings.Contains(err.Error(), "x: stop command") {
			t.Errorf("Stop = %v", err)
		}
	})
}

// TestCustomTunnelErrorsNameGateways: the error of one gateway of a tunnel names it. If both have the same error, it is
// there once, with both names.
func TestCustomTunnelErrorsNameGateways(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ start, want string }{
		"both":  {"echo no licence >&2; exit 3", "gw1 and gw2: x: start command"},
		"one":   {"test $GATEWEIGH_SIDE = 1 || { echo no licence >&2; exit 3; }", "gw2: x: start command"},
		"other": {"test $GATEWEIGH_SIDE = 2 || { echo no licence >&2; exit 3; }", "gw1: x: start command"},
	} {
		t.Run(name, func(t *testing.T) {
			d := custom(t, fmt.Sprintf("tunnel = true\nstart = '%s'\n", tt.start))
			l := newTunnelLab(t, d)
			err := d.Start(t.Context(), l.env)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Count(err.Error(), "start command") != 1 {
				t.Errorf("Start = %v, want one %q", err, tt.want)
			}
			if err := d.Stop(t.Context(), l.env); err != nil {
				t.Errorf("Stop after a failed Start: %v", err)
			}
		})
	}
}

// TestCustomAdmissionCarriesTheLab: the login command of clients gets the lab's addresses, once the device has started.
func TestCustomAdmissionCarriesTheLab(t *testing.T) {
	l, _ := customLab(t)
	d := custom(t, "start = \"true\"\nlogin = 'echo $GATEWEIGH_GATEWAY'\nlan = \"10.1.0.0/16\"\ndhcp = "+
		"true\nno_aggregation = true\n")
	before := d.Traits()
	if before.Admission.Kind != client.AdmitCommand || before.LAN.String() != "10.1.0.0/16" || !before.DHCP ||
		!before.NoAggregation || before.NoTxChecksum {
		t.Errorf("traits before Start: %+v", before)
	}
	if err := d.Start(t.Context(), l.env); err != nil {
		t.Fatal(err)
	}
	out, err := l.clientHost.Run(t.Context(), agent.Command{Argv: d.Traits().Admission.Login})
	if err != nil || strings.TrimSpace(out.Stdout) != "192.168.137.254" {
		t.Errorf("login printed %q, %v", out.Stdout, err)
	}
}

// TestCustomCheckNamesPackages: the error of a missing program names the program and its package, and no others.
func TestCustomCheckNamesPackages(t *testing.T) {
	d := custom(t, "start = \"true\"\nrequires = { gw-no-such-tool = \"gw-tools\", sh = \"dash\" }\n")
	err := checkSupported(t, d)
	if !errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "gw-no-such-tool") ||
		!strings.Contains(err.Error(), "gw-tools") || strings.Contains(err.Error(), "dash") {
		t.Errorf("Check = %v", err)
	}
}

// TestNewKnowsEveryName: each listed device can be made, and the error of an unknown one lists them.
func TestNewKnowsEveryName(t *testing.T) {
	for _, name := range Names() {
		if _, err := New(name, 1, nil); err != nil {
			t.Error(err)
		}
	}
	if _, err := New("none", 1, nil); err == nil ||
		!strings.Contains(err.Error(), "known are "+strings.Join(Names(), ", ")) {
		t.Errorf("New(none) = %v", err)
	}
}
