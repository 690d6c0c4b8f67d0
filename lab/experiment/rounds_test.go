package experiment_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

const interleaved = `mode = "interleaved"
duts = ["opennds", "allowlist", "coovachilli"]
clients = [5]
offered_mbps = [10, 20]
`

// TestRoundsAreBalanced: each round has every device once and a clean router for each way to set links; devices have
// each place equally often over as many rounds as labs, whatever the seed, and A/A rounds lie evenly among the others.
func TestRoundsAreBalanced(t *testing.T) {
	for seed := range 3 {
		e := parse(t, interleaved+fmt.Sprintf("blocks = 10\naa_blocks = 5\nseed = %d\n", seed))
		places, floors := map[string][]int{}, []int{}
		for i, labs := range roundsOf(e) {
			place := 0
			for _, b := range labs {
				if b.AA {
					floors = append(floors, i)
					continue
				}
				name := b.DUT() + b.Cell.Text(result.LinkSettings)
				if places[name] == nil {
					places[name] = make([]int, 5)
				}
				places[name][place]++
				place++
			}
			if place != 5 {
				t.Fatalf("round %d has %d labs, want 3 devices and 2 clean routers", i, place)
			}
		}
		for name, counts := range places {
			if !slices.Equal(counts, []int{2, 2, 2, 2, 2}) {
				t.Errorf("seed %d: places of %s: %v", seed, name, counts)
			}
		}
		if len(places) != 5 || !slices.Equal(floors, []int{1, 3, 5, 7, 9}) {
			t.Errorf("seed %d: labs %v, A/A rounds %v", seed, places, floors)
		}
	}
}

func parse(t *testing.T, text string) *experiment.Experiment {
	t.Helper()
	e, err := measure.Catalogue().Parse("x.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// roundsOf are the blocks of a plan with one setting, round by round.
func roundsOf(e *experiment.Experiment) (rounds [][]experiment.Block) {
	for _, b := range e.Plan() {
		if b.Index == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[b.Index] = append(rounds[b.Index], b)
	}
	return rounds
}

// TestRoundsOfASeed: the seed alone decides the order.
func TestRoundsOfASeed(t *testing.T) {
	order := func(seed string) (names []string) {
		for _, b := range parse(t, interleaved+seed).Plan() {
			names = append(names, fmt.Sprint(b.Cell, b.AA, b.Index))
		}
		return names
	}
	if !slices.Equal(order("seed = 3\n"), order("seed = 3\n")) {
		t.Error("the same seed gives another order")
	}
	if slices.Equal(order("seed = 3\n"), order("seed = 4\n")) {
		t.Error("another seed gives the same order")
	}
}

// TestRoundsOfClean: more A/A rounds than others have clean routers alone, and devices with links of their own are
// compared with clean routers that have them.
func TestRoundsOfClean(t *testing.T) {
	e := parse(t, interleaved+"blocks = 2\naa_blocks = 3\n")
	for i, labs := range roundsOf(e) {
		clean := map[result.Cell]experiment.Block{}
		for _, b := range labs {
			if b.Control {
				clean[b.Cell] = b
			}
		}
		if i == 2 && (len(labs) != 2 || len(clean) != 1) {
			t.Errorf("round %d: %v", i, labs)
		}
		for _, b := range labs {
			against, found := clean[b.Against]
			if b.Control {
				continue
			}
			if own := b.DUT() == "coovachilli"; !found || (against.Like != "") != own || own && against.Like != b.DUT() {
				t.Errorf("round %d: %s is compared with %v", i, b.Cell, against)
			}
		}
	}
	if labs := len(e.Plan()); labs != 2*5+1+3 {
		t.Errorf("%d labs", labs)
	}
}
