package agent

import "testing"

func TestSpeedIn(t *testing.T) {
	for text, want := range map[string]float64{
		"Settings for eth0:\n\tPort: Twisted Pair\n\tSpeed: 1000Mb/s\n\tDuplex: Full\n":          1000,
		"Settings for eth1:\n\tSpeed: 100000Mb/s\n\tLanes: 4\n":                                  100000,
		"Settings for eth2:\n\tSpeed: Unknown!\n\tDuplex: Unknown! (255)\n\tLink detected: no\n": 0,
		"": 0,
	} {
		if got := speedIn(text); got != want {
			t.Errorf("%g of %q, want %g", got, text, want)
		}
	}
}

// TestLineMbps: the loopback interface is no card, so no rate is asked of its driver.
func TestLineMbps(t *testing.T) {
	if mbps, err := (&Agent{}).LineMbps(t.Context(), "lo"); mbps > 0 || err != nil {
		t.Errorf("%g, %v", mbps, err)
	}
	if _, err := (&Agent{}).LineMbps(t.Context(), "nosuch0"); err == nil {
		t.Error("an interface that is not there has a rate")
	}
}
