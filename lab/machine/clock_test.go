// A test of what chronyc says of the machine's clock.

package machine

import (
	"strings"
	"testing"
	"time"
)

// TestTracking reads reports of chronyc 4.3.
func TestTracking(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  Clock
		fault string
	}{
		{"7F000001,127.0.0.1,11,1795869814.733172338,-0.000001642,-0.000000181,0.000000193,0.436,-0.114,10.395,0.000006965," +
			"0.000012051,0.1,Normal\n", Clock{Bound: 17176 * time.Nanosecond, Reference: "127.0.0.1", Stratum: 11}, ""},
		{"7F7F0101,,10,1795869814.330514524,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,0.000000000,0.000000000," +
			"0.0,Normal\n", Clock{Reference: "7F7F0101", Stratum: 10, Unsynchronised: true}, ""},
		{"00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,1.000000000,1.000000000,0.0," +
			"Not synchronised\n", Clock{}, "follows no clock yet"},
		{"506 Cannot talk to daemon\n", Clock{}, "not understood"},
		{strings.Repeat("x,", 13) + "Normal\n", Clock{}, "not understood"},
	} {
		got, err := parseTracking(c.text)
		if c.fault == "" && (err != nil || got != c.want) || c.fault != "" &&
			(err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%q: %+v, %v: want %+v, %q", c.text, got, err, c.want, c.fault)
		}
	}
}
