package bench

import (
	"math"
	"slices"
	"testing"
)

// noiseWindows are what windows of a cell said of a ratio, quiet and noisy.
type noiseWindows struct {
	what         string
	n            Noise
	cores        float64 // of the clean router
	quiet, noisy float64
	// unsure is the half width of the interval of noisy over quiet by chance alone, on the logarithm.
	unsure float64
}

func (w noiseWindows) moved() float64 { return math.Abs(math.Log(w.quiet / w.noisy)) }

// beyond is by how much a ratio moved beyond a law's bound; not above 0: it is within.
func (w noiseWindows) beyond(l noiseModel) float64 {
	return w.moved() - l.bias(w.n, math.Log(w.noisy), w.cores)
}

// withNeighbours is the table of docs/validation.md: windows by the share that a neighbour took, 1 to 5, 5 to 12 and
// more per cent. The law of neighbours is fitted to it.
func withNeighbours() (list []noiseWindows) {
	const light, full = 0.024, 0.142 // cores of a clean router at 100 Mbit/s, at 1 Gbit/s
	for _, c := range []struct {
		what  string
		cores float64
		quiet float64
		noisy [3]float64 // 0: no such windows
	}{
		{"two clean routers at 1 Gbit/s", full, 1, [3]float64{0.995, 0, 1.007}},
		{"allowlist at 1 Gbit/s", full, 1.28, [3]float64{1.273, 1.271, 1.274}},
		{"gateway-ebpf at 1 Gbit/s", full, 0.78, [3]float64{0.792, 0.779, 0.803}},
		{"openNDS at 1 Gbit/s", full, 2.58, [3]float64{2.56, 2.48, 2.41}},
		{"gateway-ebpf at 100 Mbit/s", light, 0.85, [3]float64{0.860, 0.963, 1.002}},
		{"openNDS at 100 Mbit/s", light, 2.47, [3]float64{2.23, 1.91, 1.62}},
		{"gateway-nfqueue at 100 Mbit/s", light, 13.1, [3]float64{10.4, 8.3, 8.9}},
	} {
		for i, steal := range []float64{0.03, 0.085, 0.16} {
			cores := c.cores
			if cores == light && i > 0 {
				cores = 0.033 // it rose
			}
			if c.noisy[i] > 0 {
				list = append(list, noiseWindows{c.what, Noise{Steal: steal}, cores, c.quiet, c.noisy[i], 0.02})
			}
		}
	}
	return list
}

// withOtherPrograms were measured after the law of programs was made: a CPU-bound program on each CPU, and real-time
// ones that take a tenth or a fifth (docs/validation.md). What programs had is the run's share, also of devices that
// left them no CPU.
func withOtherPrograms() (list []noiseWindows) {
	for _, c := range []struct {
		what          string
		cores         float64
		quiet, lo, hi float64
		noisy         [4]float64 // beside burn 10, burn 20 in two slices, a program on each CPU
	}{
		{"allowlist at 100 Mbit/s", 0.02, 1.26, 1.23, 1.29, [4]float64{1.27, 1.25, 1.23, 1.28}},
		{"allowlist at 1 Gbit/s", 0.14, 1.25, 1.21, 1.29, [4]float64{1.24, 1.25, 1.25, 1.26}},
		{"gateway-ebpf at 100 Mbit/s", 0.02, 0.87, 0.80, 0.95, [4]float64{0.80, 0.83, 0.84, 0.79}},
		{"gateway-ebpf at 1 Gbit/s", 0.14, 0.76, 0.72, 0.80, [4]float64{0.77, 0.73, 0.76, 0.74}},
		{"gateway-nfqueue at 100 Mbit/s", 0.02, 11.7, 10.9, 12.5, [4]float64{11.1, 10.9, 9.72, 8.37}},
		{"gateway-tun at 100 Mbit/s", 0.02, 6.78, 5.50, 8.35, [4]float64{6.77, 6.39, 5.50, 5.26}},
		{"gateway-nfqueue at 1 Gbit/s", 0.14, 8.78, 8.30, 9.30, [4]float64{8.00, 8.61, 7.91, 9.33}},
		{"gateway-tun at 1 Gbit/s", 0.14, 6.30, 5.37, 7.41, [4]float64{6.56, 6.19, 4.92, 7.54}},
		{"openNDS at 100 Mbit/s", 0.02, 2.28, 2.24, 2.33, [4]float64{2.21, 2.33, 2.16, 2.21}},
		{"openNDS at 1 Gbit/s", 0.14, 2.44, 2.34, 2.54, [4]float64{2.25, 2.49, 2.41, 2.37}},
	} {
		unsure := math.Sqrt2 * math.Log(c.hi/c.lo) / 2 // of two means with the quiet run's spread
		for i, others := range []float64{0.1, 0.2, 0.2, 0.9} {
			list = append(list, noiseWindows{c.what, Noise{Others: others}, c.cores, c.quiet, c.noisy[i], unsure})
		}
	}
	return list
}

// fitNoise is the least law of neighbours that contains what windows say, as far as they show one of the constants: the
// rise of both routers of devices that cost several times a clean one, and the rest of devices near 1.
func fitNoise(list []noiseWindows) noiseModel {
	l := fittedNoise
	l.lightShift = 0
	least := func(constant *float64, of func(noiseWindows) bool) {
		*constant = 0
		for _, w := range list {
			for *constant < 10 && of(w) && w.beyond(l) > 0 {
				*constant += 0.001
			}
		}
	}
	for range 3 { // each bears on the other
		least(&l.stolenCores, func(w noiseWindows) bool { return w.quiet > 2 })
		least(&l.lightShift, func(w noiseWindows) bool { return w.quiet < 2 && w.cores < l.lightCores })
	}
	return l
}

// TestBias compares the constants with the runs to which they were fitted: they are large enough, and no more than a
// fifth too large.
func TestBias(t *testing.T) {
	list := withNeighbours()
	for _, w := range list {
		if over := w.beyond(fittedNoise); over > w.unsure {
			t.Errorf("%s, %+v: the ratio moved by %.3f, %.3f beyond the bound", w.what, w.n, w.moved(), over)
		}
	}
	l := fitNoise(list)
	for name, c := range map[string][2]float64{
		"stolenCores": {fittedNoise.stolenCores, l.stolenCores}, "lightShift": {fittedNoise.lightShift, l.lightShift}} {
		if reserve := c[0] / c[1]; !(reserve >= 1 && reserve <= 1.2) {
			t.Errorf("%s is %g, the most that was seen %.3f", name, c[0], c[1])
		}
	}
	if b := (Noise{}).Bias(math.Log(3), 0.02); b != 0 {
		t.Errorf("without noise the bound is %g", b)
	}
	if b := (Noise{Steal: 0.5, Others: 1}).Bias(math.Log(0.5), 0.01); math.IsNaN(b) || math.IsInf(b, 0) {
		t.Errorf("of much noise it is %g", b)
	}
}

// notContained are those windows of a list that a law, fitted to all others with the reserve that the constants have,
// does not contain.
func notContained(list []noiseWindows, fit func([]noiseWindows) noiseModel) (out []noiseWindows) {
	whole := fit(list)
	for i, w := range list {
		l := fit(slices.Delete(slices.Clone(list), i, i+1))
		l.stolenCores *= fittedNoise.stolenCores / max(whole.stolenCores, 1e-9)
		l.lightShift *= fittedNoise.lightShift / max(whole.lightShift, 1e-9)
		if w.beyond(l) > w.unsure {
			out = append(out, w)
		}
	}
	return out
}

// TestBiasForeseesWindows: the law contains windows that it was not fitted to, each of those beside neighbours in turn
// and all of those beside programs. Laws of another form do not: the test can fail.
func TestBiasForeseesWindows(t *testing.T) {
	list := withNeighbours()
	for _, w := range notContained(list, fitNoise) {
		t.Errorf("%s, %+v: fitted to all others the bound does not contain that %g became %g", w.what, w.n, w.quiet, w.noisy)
	}
	for form, other := range map[string]func(noiseModel) noiseModel{
		"without a rise":            func(l noiseModel) noiseModel { l.stolenCores = 0; return l },
		"nothing more near 1":       func(l noiseModel) noiseModel { l.lightShift = 0; return l },
		"a rise of a tenth at most": func(l noiseModel) noiseModel { l.mostStolen = 0.1; return l },
	} {
		if len(notContained(list, func(list []noiseWindows) noiseModel { return other(fitNoise(list)) })) == 0 {
			t.Errorf("a law %s contains all windows as well: this test shows nothing", form)
		}
	}
	used := 0.0 // the most of a bound
	for _, w := range withOtherPrograms() {
		used = max(used, w.moved()/fittedNoise.bias(w.n, math.Log(w.noisy), w.cores)-w.unsure)
		if over := w.beyond(fittedNoise); over > w.unsure {
			t.Errorf("%s, %+v: %g became %g, %.3f beyond the bound (± %.3f)", w.what, w.n, w.quiet, w.noisy, over, w.unsure)
		}
	}
	if used < 0.5 {
		t.Errorf("no ratio used more than %.2f of its bound beside programs", used)
	}
}

// TestTwoTicksAreNoNoise: two ticks of the clock are no noise, whatever share of a short window they are.
func TestTwoTicksAreNoNoise(t *testing.T) {
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
