package inference

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Trends fits y on the columns by ordinary least squares. It returns one sample for each column, and the residuals of
// y. The caller has subtracted group means from y and the columns (the within estimator of panel data). absorbed is the
// number of these means. Each of them takes one degree of freedom. A column that never changes gets no estimate and
// does not disturb the others. N counts the values of y.
func Trends(y []float64, columns [][]float64, absorbed int) (samples []Sample, residuals []float64) {
	samples = slices.Repeat([]Sample{None()}, len(columns))
	var kept []int
	for i, column := range columns {
		if floats.Dot(column, column) > 1e-18*float64(len(column)) { // more than rounding errors
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

// Serial corrects a sample of Trends for values that are in the order of time and resemble their neighbours. If
// neighbouring residuals have a correlation r, only the share (1 - r) / (1 + r) of the values counts as independent (B.
// D. Santer et al., J. Geophys. Res. 105, 2000).
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

// inverseDiagonal returns the diagonal of the inverse of XᵀX. The inverse exists, because solve has succeeded.
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
