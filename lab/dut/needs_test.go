// Tests of what devices need on a machine, and of the advice where it is missing. thisMachine answers for this machine
// as its agent would (lab_test.go).

package dut

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// A device lists the programs and kernel features that it needs (Need). Check returns an error that names what this
// machine lacks.

// needyDevice is a device that has needs and does nothing.
type needyDevice struct{ needs []Need }

func (needyDevice) Start(context.Context, Env) error { return nil }
func (needyDevice) Stop(context.Context, Env) error  { return nil }
func (g needyDevice) Traits() Traits                 { return Traits{Needs: g.needs} }

// TestMissingNamesProgramsAndRemedies: the error names all missing programs, with their packages or another advice.
func TestMissingNamesProgramsAndRemedies(t *testing.T) {
	needs := []Need{
		{Program: "sh", Package: "dash"},
		{Program: "gwd-b", Package: "gadgets"},
		{Program: "gwd-a", Package: "gadgets"},
		{Program: "gwd-c", Advice: "build it"},
	}
	err := Check(t.Context(), thisMachine{}, "gadget", needyDevice{needs})
	if !errors.Is(err, ErrNotSupported) ||
		!strings.Contains(err.Error(), "gadget: not on PATH: gwd-a, gwd-b (package gadgets), gwd-c (build it)") {
		t.Errorf("error is %v", err)
	}
	if err := Check(t.Context(), thisMachine{}, "gadget", needyDevice{needs[:1]}); err != nil {
		t.Error(err)
	}
}

// TestBrokenIsNotSupported: a device is skipped if a program is installed but does not start (with ProbeArg), or if the
// kernel lacks a feature, as if the program were missing.
func TestBrokenIsNotSupported(t *testing.T) {
	labtest.Program(t, "gwd-broken", "echo 'libgadget.so.1: cannot open shared object file' >&2; exit 127\n")
	labtest.Program(t, "gwd-fine", "exit 1\n")
	labtest.Program(t, "chilli", "echo 'libchilli.so.0: cannot open shared object file' >&2; exit 127\n")
	labtest.Program(t, "chilli_query", "exit 0\n")
	for name, c := range map[string]struct {
		d    DUT
		want string
	}{
		"broken": {needyDevice{[]Need{{Program: "gwd-broken", ProbeArg: "--version"}}},
			"gwd-broken does not start: exit status 127: libgadget"},
		"not tried":         {needyDevice{[]Need{{Program: "gwd-broken"}}}, ""},
		"status of its own": {needyDevice{[]Need{{Program: "gwd-fine", ProbeArg: "--version"}}}, ""},
		"chilli":            {NewCoovaChilli(1), "chilli does not start: exit status 127: libchilli"},
	} {
		err := Check(t.Context(), thisMachine{}, name, c.d)
		if c.want == "" && err != nil ||
			c.want != "" && (!errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	lacks := missingText(
		[]Need{{Program: "nft"}, {Program: "iptables", Feature: "NFQUEUE"}}, []machine.Found{{Path: "/nft",
			FeatureError: "no"}, {Path: "/iptables", FeatureError: "none"}})
	if lacks != "the kernel lacks NFQUEUE: none; the kernel lacks nftables: no" {
		t.Errorf("features: %s", lacks)
	}
}

// TestDepsInstallWhatDevicesNeed: the script that prepares a machine knows
// every package that a device of ours asks for.
func TestDepsInstallWhatDevicesNeed(t *testing.T) {
	script, err := os.ReadFile("../../.ci/deps")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		d, err := New(name, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range d.Traits().Needs {
			if n.Package != "" && !strings.Contains(string(script), ":"+n.Package) {
				t.Errorf("%s needs %s: .ci/deps does not install the package %s", name, n.Program, n.Package)
			}
			if n.Remedy() == "" || n.Why == "" {
				t.Errorf("%s needs %s: nothing says why, or what to do without it", name, n.Program)
			}
		}
	}
}
