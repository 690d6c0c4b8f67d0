package cost

import (
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

// TestPlanInWords: an experiment's windows and loads, as the user reads them before it runs.
func TestPlanInWords(t *testing.T) {
	known := experiment.Catalogue{Measures: []experiment.Measure{Measure{}.Rules()}}
	for keys, want := range map[string]experiment.Description{
		"offered_mbps = [100, 1000]\n": {
			Block: "block", Contents: " of 3 windows of 1 s", Doing: "at 100 and 1000 Mbit/s"},
		"mbps_per_client = [0.5]\nwindow = \"2s\"\n": {
			Block: "block", Contents: " of 3 windows of 2 s", Doing: "at 0.5 Mbit/s each"},
		"offered_mbps = [1, 2, 3]\nmbps_per_client = [4]\n": {
			Block: "block", Contents: " of 3 windows of 1 s", Doing: "at 1, 2 and 3 Mbit/s and 4 Mbit/s each"},
	} {
		e, err := known.Parse("x.toml", []byte("duts = [\"a\"]\nclients = [1]\n"+keys))
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Describe(); got != want {
			t.Errorf("%s: %+v, want %+v", keys, got, want)
		}
	}
}

// TestNoLoginTimeWithoutPortal: the estimated duration of a run has no time for logins at a router without a portal
// (device masquerade). With a portal (gateway-ebpf-nat) it is longer, but by less than a minute for 10,000 clients.
func TestNoLoginTimeWithoutPortal(t *testing.T) {
	known := experiment.Catalogue{DUTs: dut.Names(), Measures: []experiment.Measure{Measure{}.Rules()}}
	took := func(name string) time.Duration {
		e, err := known.Parse("x.toml", []byte("duts = [\""+name+
			"\"]\nclients = [10000]\noffered_mbps = [1000]\nblocks = 1\naa_blocks = 0\n[client]\nkind = \"persona\"\n"))
		if err != nil {
			t.Fatal(err)
		}
		return e.EstimatedDuration()
	}
	if free, portal := took("masquerade"), took("gateway-ebpf-nat"); free >= portal || portal-free > time.Minute {
		t.Errorf("%v without a portal, %v with one", free, portal)
	}
}
