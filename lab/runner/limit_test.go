package runner

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/side"
)

func TestWhatIsALimitOfTheDevice(t *testing.T) {
	refused := &side.NotAdmitted{Own: true}
	own := errors.Join(errors.New("closing"), fmt.Errorf("admitting: %w", refused))
	labs := &side.NotAdmitted{}
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
		if is != tt.want || is && got != refused.Error() {
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
