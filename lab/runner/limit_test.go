package runner

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

func TestWhatIsALimitOfTheDevice(t *testing.T) {
	outcomes := []client.Outcome{{Num: 1}, {Num: 2, Error: "the portal hangs"}, {Num: 3}, {Num: 4, Error: "the portal hangs"}}
	const text = "2 of 4 clients could log in: client 2: the portal hangs (and 1 more clients)"
	if err := gaveUp("log in", true, outcomes[:1]); err != nil {
		t.Errorf("all are in: %v", err)
	}
	own := errors.Join(errors.New("closing"), fmt.Errorf("admitting: %w", gaveUp("log in", true, outcomes)))
	labs := gaveUp("lease", false, outcomes)
	for _, tt := range []struct {
		name  string
		block experiment.Block
		took  int
		err   error
		want  bool
	}{
		{"it took fewer", experiment.Block{DUT: "a", Clients: 100}, 10, own, true},
		{"it took none yet", experiment.Block{DUT: "a", Clients: 100}, 0, own, false},
		{"it took as many before", experiment.Block{DUT: "a", Clients: 100}, 100, own, false},
		{"the lab's leases", experiment.Block{DUT: "a", Clients: 100}, 10, labs, false},
		{"A/A", experiment.Block{DUT: "a", Clients: 100, AA: true}, 10, own, false},
		{"another fault", experiment.Block{DUT: "a", Clients: 100}, 10, errors.New("no cable"), false},
		{"no fault", experiment.Block{DUT: "a", Clients: 100}, 10, nil, false},
	} {
		r := &run{took: map[string]int{"a": tt.took}, broke: map[string]int{}}
		got, is := r.limitOf(tt.block, tt.err)
		if is != tt.want || is && got != text {
			t.Errorf("%s: %v %q", tt.name, is, got)
		}
	}
}

func TestBeyondIsLeftOut(t *testing.T) {
	r := &run{broke: map[string]int{"a": 100}}
	for _, tt := range []struct {
		block experiment.Block
		want  bool
	}{
		{experiment.Block{DUT: "a", Clients: 99}, false},
		{experiment.Block{DUT: "a", Clients: 100}, true},
		{experiment.Block{DUT: "a", Clients: 1000}, true},
		{experiment.Block{DUT: "b", Clients: 1000}, false},
		{experiment.Block{DUT: "a", Clients: 1000, AA: true}, false},
	} {
		if got := r.beyond(tt.block); got != tt.want {
			t.Errorf("%+v: %v", tt.block, got)
		}
	}
}
