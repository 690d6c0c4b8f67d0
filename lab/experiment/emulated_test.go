package experiment_test

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestForEmulatedCPU: loads and windows follow an emulated CPU once, unless they were given for this run; the
// experiment that is kept says so and reads back the same.
func TestForEmulatedCPU(t *testing.T) {
	const file = "duts = [\"clean\"]\nclients = [5]\noffered_mbps = [1, 100, 1000]\nmbps_per_client = [7]\nwindow = " +
		"\"1s\"\n"
	for name, c := range map[string]struct {
		given  []string
		also   string
		loads  []float64
		window time.Duration
	}{
		"as shipped":       {nil, "", []float64{0.1, 5, 50}, 2 * time.Second},
		"a window given":   {[]string{"window"}, "", []float64{0.1, 5, 50}, time.Second},
		"a load given":     {[]string{"offered_mbps"}, "", []float64{1, 100, 1000}, time.Second},
		"divided before":   {nil, "loads_divided_by = 20\n", []float64{1, 100, 1000}, time.Second},
		"not to be at all": {nil, "loads_divided_by = 1\n", []float64{1, 100, 1000}, time.Second},
	} {
		e, err := known.Parse("x.toml", []byte(c.also+file))
		if err != nil {
			t.Fatal(err)
		}
		text, err := e.ForEmulatedCPU(c.given)
		if err != nil || !slices.Equal(e.OfferedMbps, c.loads) || e.Window != c.window ||
			(text == "") != (c.loads[2] == 1000) {
			t.Errorf("%s: %v, %q, loads %v, windows of %s", name, err, text, e.OfferedMbps, e.Window)
		}
		if strings.Contains(text, "÷ 20") && (e.LoadsDividedBy != 20 || e.MbpsPerClient[0] != 0.35) {
			t.Errorf("%s: divided by %g, %v a client", name, e.LoadsDividedBy, e.MbpsPerClient)
		}
		back, err := known.Parse("x.toml", e.Encode())
		if err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, e.Encode())
		}
		if again, err := back.ForEmulatedCPU(nil); text != "" && (again != "" || err != nil || back.Window != c.window) {
			t.Errorf("%s: divided twice: %q, %v", name, again, err)
		}
	}
}
