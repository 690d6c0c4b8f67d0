package words

import (
	"testing"
	"time"
)

// TestLasting: durations are written with their two largest units, and rounded to what these show.
func TestLasting(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 1234 * time.Microsecond: "1.23 ms", 250 * time.Millisecond: "250 ms", time.Second: "1 s",
		1500 * time.Millisecond: "1.5 s",
		9949 * time.Millisecond: "9.9 s", 9960 * time.Millisecond: "10 s", 999700 * time.Microsecond: "1 s",
		59*time.Second + 600*time.Millisecond: "1 min",
		61 * time.Second:                      "1 min 1 s", 10*time.Minute - time.Second/4: "10 min",
		13 * time.Minute:            "13 min",
		time.Hour - time.Second:     "1 h",
		3*time.Hour + 5*time.Minute: "3 h 5 min", 50 * time.Hour: "50 h", -90 * time.Second: "-1 min 30 s",
	} {
		if got := Lasting(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
