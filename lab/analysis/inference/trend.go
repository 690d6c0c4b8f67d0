package inference

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Trends fits y on the columns by ordinary least squares and returns a sample a
// column, and what the fit leaves of y. Means have been taken out of y and of
// the columns before: absorbed says how many, and each costs a degree of freedom
// (the within estimator of panel data). Columns that never change get no
// estimate and do not disturb the others. N counts the values of y.
func Trends(y []float64, columns [][]float64, absorbed int) (samples []Sample, residuals []float64) {
	samples = slices.Repeat([]Sample{None()}, len(columns))
	var kept []int
	for i, column := range columns {
		if floats.Dot(column, column) > 1e-18*float64(len(column)) { // more than rounding
			kept = append(kept, i)
		}
	}
	if len(kept) == 0 {
		return samples, nil
	}
	rows := make([]Row, len(y))
	for index := range y {
		rows[index].Y = y[index]
		for _, c := range kept {
			rows[index].X = append(rows[index].X, columns[c][index])
		}
	}
	total := normalOf(rows)
	beta, ok := total.solve()
	if !ok {
		return samples, nil
	}
	for _, r := range rows {
		residuals = append(residuals, r.Y-floats.Dot(beta, r.X))
	}
	freedom := float64(len(y) - len(kept) - absorbed)
	for i, variance := range total.inverseDiagonal() {
		s := Sample{Mean: beta[i], SE: math.NaN(), Freedom: freedom, N: len(y)}
		if freedom > 0 {
			s.SE = math.Sqrt(floats.Dot(residuals, residuals) / freedom * variance)
		}
		samples[kept[i]] = s
	}
	return samples, residuals
}

// Serial is a sample of Trends whose values stand in the order of time and are
// like their neighbours: with residuals correlated by r from one to the next,
// only the share (1 - r) / (1 + r) of them counts as independent (B. D. Santer
// et al., J. Geophys. Res. 105, 2000).
func (s Sample) Serial(residuals []float64) Sample {
	product, squares, previous := 0.0, 0.0, 0.0
	for _, r := range residuals {
		product, squares, previous = product+r*previous, squares+r*r, r
	}
	if r := product / squares; r > 0 {
		share := (1 - r) / (1 + r)
		s.SE, s.Freedom = s.SE/math.Sqrt(share), s.Freedom*share
	}
	return s
}

// inverseDiagonal is the diagonal of the inverse of XᵀX, which solve has found
// to exist.
func (n normal) inverseDiagonal() []float64 {
	unit, lengths, _ := n.scaled()
	var factors mat.Cholesky
	factors.Factorize(unit.xx)
	var inverse mat.SymDense
	if err := factors.InverseTo(&inverse); err != nil {
		return nil
	}
	out := make([]float64, len(lengths))
	for i, length := range lengths {
		out[i] = inverse.At(i, i) / length / length
	}
	return out
}
