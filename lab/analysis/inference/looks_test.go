package inference

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestLooks: looks (checks whether an interval is narrow enough) happen at few, fixed numbers of values.
func TestLooks(t *testing.T) {
	for most, want := range map[int][]int{
		10: {10}, 12: {10, 12}, 16: {10, 16}, 60: {10, 16, 24, 36, 54, 60}, 200: {10, 16, 24, 36, 54, 82, 124, 186, 200},
	} {
		if got := Looks(most); !slices.Equal(got, want) {
			t.Errorf("at most %d values: looks at %d, want %d", most, got, want)
		}
	}
}

// source is a distribution of values with mean 0 and standard deviation 1. drift is the number of standard deviations
// by which the mean moves in 100 values.
type source struct {
	name  string
	drift float64
	draw  func(r *rand.Rand) float64
	// least and most are the bounds that the test requires of the coverage, %.
	least, most float64
}

var sources = []source{
	{"normal", 0, (*rand.Rand).NormFloat64, 94, 96},
	{"heavy tails, t of 3 degrees of freedom", 0, heavy, 94.5, 97.5},
	{"drift of two deviations in 100 values", 2, (*rand.Rand).NormFloat64, 94, 100},
	// Here even an interval of a fixed number of values, 10, contains the mean in 92 % of samples only.
	{"skewed, log-normal 0.5", 0, skewed, 89.5, 96.5},
}

// heavy draws from Student's t-distribution with 3 degrees of freedom, scaled to a standard deviation of 1.
func heavy(r *rand.Rand) float64 {
	var squares float64
	for range 3 {
		x := r.NormFloat64()
		squares += x * x
	}
	return r.NormFloat64() / math.Sqrt(squares)
}

// skewedSD is the standard deviation of the log-normal distribution that skewed scales.
var skewedSD = math.Sqrt((math.Exp(0.25) - 1) * math.Exp(0.25))

// skewed draws from a log-normal distribution, shifted to mean 0 and scaled to a standard deviation of 1.
func skewed(r *rand.Rand) float64 {
	return (math.Exp(0.5*r.NormFloat64()) - math.Exp(0.125)) / skewedSD
}

// noises are standard deviations of a value. The unit is the half-width at which an interval is narrow enough. With the
// first ones, samples end at the first look; with the last ones, after all their values.
var noises = []float64{0.5, 1.5, 2, 2.5, 3.5, 6, 12}

// coverage simulates samples of at most most values that end at a look. held is the share of samples, %, whose interval
// contains the true mean; values is their mean number of values. If the mean drifts, the true mean is its average over
// the sample.
func (src source) coverage(noise float64, most, samples int) (held, values float64) {
	r := rand.New(rand.NewPCG(1, math.Float64bits(noise)))
	looks, used := Looks(most), LookConfidence(0.95)
	for range samples {
		var sum, squares float64
		n := 0
		for _, look := range looks {
			for ; n < look; n++ {
				x := noise * (src.draw(r) + src.drift*float64(n)/100)
				sum, squares = sum+x, squares+x*x
			}
			mean, count := sum/float64(n), float64(n)
			s := Sample{Mean: mean, SE: math.Sqrt((squares - sum*mean) / (count - 1) / count), Freedom: count - 1, N: n}
			lo, hi := s.Interval(used)
			if hi-lo > 2 && look < most {
				continue
			}
			if truth := noise * src.drift * (count - 1) / 200; lo <= truth && truth <= hi {
				held++
			}
			break
		}
		values += float64(n)
	}
	return 100 * held / float64(samples), values / float64(samples)
}

// TestCoverageOfLooks shows the coverage of intervals of 95 % over 10,000 samples, for several levels of noise and
// bounds of the number of values; with -v as a table.
func TestCoverageOfLooks(t *testing.T) {
	const samples = 10_000
	var table strings.Builder
	fmt.Fprintf(&table, "Coverage of 95 %% intervals, %% (mean number of values), over %d samples\n%-56s", samples,
		"noise, in half-widths that are enough:")
	for _, noise := range noises {
		fmt.Fprintf(&table, "%11g", noise)
	}
	for _, src := range sources {
		for _, most := range []int{16, 60, 200} {
			fmt.Fprintf(&table, "\n%-56s", fmt.Sprintf("%s, at most %d", src.name, most))
			for _, noise := range noises {
				held, values := src.coverage(noise, most, samples)
				fmt.Fprintf(&table, "%11s", fmt.Sprintf("%.1f (%.0f)", held, values))
				if held < src.least || held > src.most {
					t.Errorf("%s, noise %g, at most %d values: the interval holds the mean in %.1f %%, want %g to %g", src.name, noise,
						most, held, src.least, src.most)
				}
			}
		}
	}
	t.Log("\n" + table.String())
}
