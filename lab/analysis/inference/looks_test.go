package inference

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestLooks(t *testing.T) {
	for most, want := range map[int][]int{
		10: {10}, 12: {10, 12}, 16: {10, 16}, 60: {10, 16, 24, 36, 54, 60}, 200: {10, 16, 24, 36, 54, 82, 124, 186, 200},
	} {
		if got := Looks(most); !slices.Equal(got, want) {
			t.Errorf("at most %d values: looks at %d, want %d", most, got, want)
		}
	}
}

// source draws values of mean 0 and deviation 1; drift is by how many deviations the mean moves in 100 values.
type source struct {
	name  string
	drift float64
	draw  func(r *rand.Rand) float64
	// least and most are the bounds of the coverage, %.
	least, most float64
}

var sources = []source{
	{"normal", 0, (*rand.Rand).NormFloat64, 94, 96},
	{"heavy tails, t of 3 degrees of freedom", 0, heavy, 94.5, 97.5},
	{"drift of two deviations in 100 values", 2, (*rand.Rand).NormFloat64, 94, 100},
	// The interval of a fixed number of values holds such a mean in 92 % of samples of 10.
	{"skewed, log-normal 0.5", 0, skewed, 89.5, 96.5},
}

func heavy(r *rand.Rand) float64 {
	var squares float64
	for range 3 {
		x := r.NormFloat64()
		squares += x * x
	}
	return r.NormFloat64() / math.Sqrt(squares)
}

var skewedSD = math.Sqrt((math.Exp(0.25) - 1) * math.Exp(0.25))

func skewed(r *rand.Rand) float64 {
	return (math.Exp(0.5*r.NormFloat64()) - math.Exp(0.125)) / skewedSD
}

// noises are deviations of a value, in half-widths that are enough: from samples that end at the first look to samples
// that end with all their values.
var noises = []float64{0.5, 1.5, 2, 2.5, 3.5, 6, 12}

// coverage is how often, %, the interval of a sample that ends at a look holds its mean, and the values of a sample. Of
// a mean that drifts it is the mean while the sample was drawn.
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
