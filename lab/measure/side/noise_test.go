package side

import (
	"math"
	"testing"
)

// TestBias holds the bound against what was measured beside neighbours and busy programs: ratios of quiet and of noisy windows,
// and the clean router's CPU, cores.
func TestBias(t *testing.T) {
	for _, c := range []struct {
		what         string
		n            Noise
		cores        float64
		quiet, noisy float64
	}{
		{"openNDS at 100 Mbit/s", Noise{Steal: 0.03}, 0.024, 2.47, 2.23},
		{"openNDS at 100 Mbit/s", Noise{Steal: 0.085}, 0.033, 2.47, 1.91},
		{"gateway-nfqueue at 100 Mbit/s", Noise{Steal: 0.085}, 0.033, 13.1, 8.3},
		{"allowlist at 1 Gbit/s", Noise{Steal: 0.085}, 0.142, 1.28, 1.271},
		{"openNDS at 1 Gbit/s", Noise{Steal: 0.16}, 0.142, 2.57, 2.41},
		{"gateway-ebpf at 1 Gbit/s", Noise{Steal: 0.16}, 0.142, 0.788, 0.803},
		{"gateway-ebpf at 100 Mbit/s", Noise{Steal: 0.085}, 0.033, 0.85, 0.963},
		{"gateway-ebpf at 100 Mbit/s", Noise{Steal: 0.16}, 0.033, 0.85, 1.002},
		{"gateway-tun at 100 Mbit/s", Noise{Others: 0.9}, 0.013, 6.1, 4.93},
		{"openNDS at 1 Gbit/s", Noise{Others: 0.7}, 0.132, 2.37, 2.14},
	} {
		bound := c.n.Bias(math.Log(c.noisy), c.cores)
		if moved := math.Abs(math.Log(c.quiet / c.noisy)); moved > bound {
			t.Errorf("%s, %+v: the ratio moved by %.3f, the bound is %.3f", c.what, c.n, moved, bound)
		}
		if bound > 4*math.Abs(math.Log(c.quiet/c.noisy))+0.05 {
			t.Errorf("%s, %+v: a bound of %.3f says nothing", c.what, c.n, bound)
		}
	}
	if b := (Noise{}).Bias(math.Log(3), 0.02); b != 0 {
		t.Errorf("without noise the bound is %g", b)
	}
	if b := (Noise{Steal: 0.5, Others: 1}).Bias(math.Log(0.5), 0.01); math.IsNaN(b) || math.IsInf(b, 0) {
		t.Errorf("of much noise it is %g", b)
	}
}

// TestBeyondQuiet: two ticks of the clock are no noise, whatever share of a short window they are.
func TestBeyondQuiet(t *testing.T) {
	for _, c := range []struct {
		n       Noise
		seconds float64
		noisy   bool
	}{
		{Noise{Steal: 0.009}, 1, false}, {Noise{Steal: 0.02}, 0.35, false}, {Noise{Steal: 0.05}, 0.35, true},
		{Noise{Steal: 0.02}, 1, true}, {Noise{Others: 0.2}, 1, true},
	} {
		if got := c.n.BeyondQuiet(c.seconds, 2) > 0; got != c.noisy {
			t.Errorf("%+v in %g s: noisy %v", c.n, c.seconds, got)
		}
	}
}
