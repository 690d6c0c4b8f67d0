package experiment_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

func quick(t *testing.T, set ...string) *experiment.Experiment {
	t.Helper()
	e, err := measure.Catalogue().Builtin("quick")
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range set {
		key, value, _ := strings.Cut(pair, "=")
		if err := e.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func TestPrecision(t *testing.T) {
	for text, want := range map[string]experiment.Precision{
		"±2 %": 2, "2%": 2, "+-0.5 %": 0.5, "+/- 3%": 3, "1.5": 1.5} {
		e := quick(t, "blocks=60", "at_most=30m", "until="+text)
		if e.Until != want {
			t.Errorf("%q is %g", text, float64(e.Until))
		}
		again, err := measure.Catalogue().Parse("again.toml", e.Encode())
		if err != nil || again.Until != want || again.AtMost != e.AtMost {
			t.Errorf("%q comes back as %v, %v", text, again, err)
		}
	}
	for text, want := range map[string]string{
		"0.01": "half-width in per cent", "twice": "half-width in per cent", "60 %": "half-width in per cent"} {
		if err := quick(t).Set("until", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestUntilIsChecked(t *testing.T) {
	for _, tt := range []struct {
		set  []string
		want string
	}{
		{[]string{"until=2"}, "fewer than 10 do not say how exact they are"},
		{[]string{"at_most=30m"}, "at_most: needs until"},
		{[]string{"until=2", "blocks=20", "duts=clean", "aa_blocks=3"}, "name a device in duts"},
	} {
		if err := quick(t, tt.set...).Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.set, err, tt.want)
		}
	}
}

// TestPlanUntil: A/A blocks lie before the first look, and a run takes from that to all blocks.
func TestPlanUntil(t *testing.T) {
	for _, mode := range []string{result.ModeDuet, result.ModeInterleaved} {
		e := quick(t, "blocks=60", "until=2", "aa_blocks=4", "mode="+mode)
		for i, b := range e.Plan() {
			if later := slices.ContainsFunc(e.Plan()[:i], func(b experiment.Block) bool { return b.Index >= 10 }); b.AA &&
				later {
				t.Errorf("%s: an A/A block is planned after the first look", mode)
			}
		}
		least, most := e.DurationBounds()
		if least >= most/3 || most != e.EstimatedDuration() {
			t.Errorf("%s: it takes %s to %s, about %s", mode, least, most, e.EstimatedDuration())
		}
		if err := e.Set("at_most", "1m"); err != nil {
			t.Fatal(err)
		}
		if _, most := e.DurationBounds(); most.Minutes() > 1 {
			t.Errorf("%s: at most a minute takes %s", mode, most)
		}
	}
}

// TestLeftBy: blocks of a cell that ended are left out, and with the last cell those of clean routers in its rounds.
func TestLeftBy(t *testing.T) {
	for _, mode := range []string{result.ModeDuet, result.ModeInterleaved} {
		e := quick(t, "blocks=20", "until=2", "aa_blocks=2", "mode="+mode)
		plan := e.Plan()
		u := &result.Until{Looks: []result.Look{{Blocks: 10}}}
		var cells []result.Cell
		for _, b := range plan {
			for _, cell := range b.Cells {
				if !b.AA && !b.Control && !slices.Contains(cells, cell) {
					cells = append(cells, cell)
				}
			}
		}
		count := func() (devices, clean int) {
			left := experiment.NotNeeded(plan, u)
			for _, b := range plan {
				for _, cell := range b.Cells {
					switch {
					case !left(b, cell):
					case b.Index < 10:
						t.Errorf("%s: a block before the look is left out", mode)
					case b.Control || b.AA:
						clean++
					default:
						devices++
					}
				}
			}
			return devices, clean
		}
		for i, cell := range cells {
			if devices, _ := count(); devices != 10*i {
				t.Errorf("%s: %d blocks are left out after %d cells", mode, devices, i)
			}
			u.Looks[0].Cells = append(u.Looks[0].Cells, result.Width{Dimensions: cell, Exact: true})
		}
		devices, clean := count()
		if devices != 10*len(cells) || (clean > 0) != (mode == result.ModeInterleaved) {
			t.Errorf("%s: %d blocks and %d of clean routers are left out after all cells", mode, devices, clean)
		}
	}
}
