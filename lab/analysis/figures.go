package analysis

import "math"

// over divides; a denominator of nothing gives no figure.
func over(a, b float64) float64 {
	if !(b > 0) {
		return math.NaN()
	}
	return finite(a / b)
}

// positive treats zero as "not measured", for figures that cannot be zero.
func positive(v float64) float64 {
	if !(v > 0) {
		return math.NaN()
	}
	return v
}

func finite(v float64) float64 {
	if math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}
