package runner

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

// These tests concern the largest number of clients of a device: took is the number that it admitted in a completed
// block, and broke the number at which it failed.

// blockOf returns a block of a device. aa: both labs have the clean router.
func blockOf(dut string, clients int, aa bool) experiment.Block {
	return experiment.Block{Cell: result.NewCell(result.DUT, dut, result.Clients, clients), AA: aa}
}

// TestWhatIsALimitOfTheDevice: a failed block shows a limit of the device if the device refused clients (own), and
// admitted fewer clients before. An error of the lab (labs) is no limit of the device.
func TestWhatIsALimitOfTheDevice(t *testing.T) {
	refused := &bench.NotAdmitted{DeviceFault: true}
	own := errors.Join(errors.New("closing"), fmt.Errorf("admitting: %w", refused))
	labs := &bench.NotAdmitted{}
	for _, tt := range []struct {
		name  string
		block experiment.Block
		took  int
		err   error
		want  bool
	}{
		{"it took fewer", blockOf("a", 100, false), 10, own, true},
		{"it took none yet", blockOf("a", 100, false), 0, own, false},
		{"it took as many before", blockOf("a", 100, false), 100, own, false},
		{"the lab's leases", blockOf("a", 100, false), 10, labs, false},
		{"A/A", blockOf("a", 100, true), 10, own, false},
		{"another fault", blockOf("a", 100, false), 10, errors.New("no cable"), false},
		{"no fault", blockOf("a", 100, false), 10, nil, false},
	} {
		r := &Session{took: map[string]int{"a": tt.took}, broke: map[string]int{}}
		got, is := r.limitOf(tt.block, tt.err)
		if is != tt.want || is && got != refused.Error() {
			t.Errorf("%s: %v %q", tt.name, is, got)
		}
	}
}

// TestBeyondIsLeftOut: blocks with as many clients as the device broke at, or more, are left out.
func TestBeyondIsLeftOut(t *testing.T) {
	r := &Session{broke: map[string]int{"a": 100}}
	for _, tt := range []struct {
		block experiment.Block
		want  bool
	}{
		{blockOf("a", 99, false), false},
		{blockOf("a", 100, false), true},
		{blockOf("a", 1000, false), true},
		{blockOf("b", 1000, false), false},
		{blockOf("a", 1000, true), false},
	} {
		if got := r.beyond(tt.block); got != tt.want {
			t.Errorf("%+v: %v", tt.block, got)
		}
	}
}
