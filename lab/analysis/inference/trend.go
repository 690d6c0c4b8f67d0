package inference

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Trends fits y on the columns by ordinary least squares and returns a sample a
// column. Means have been taken out of y and of the columns before: absorbed
// says how many, and each costs a degree of freedom (the within estimator of
// panel data). Columns that never change get no estimate and do not disturb
// the others. N counts the values of y.
func Trends(y []float64, columns [][]float64, absorbed int) []Sample {
	out := make([]Sample, len(columns))
	var kept []int
	for i, column := range columns {
		out[i] = None()
		if varies(column) {
			kept = append(kept, i)
		}
	}
	if len(kept) == 0 {
		return out
	}
	total := newNormal(len(kept))
	for row := range y {
		total.add(Row{X: pick(columns, kept, row), Y: y[row]})
	}
	freedom := float64(len(y) - len(kept) - absorbed)
	beta, ok := total.solve()
	if !ok {
		return out
	}
	rss := 0.0
	for row := range y {
		residual := y[row]
		for i, x := range pick(columns, kept, row) {
			residual -= beta[i] * x
		}
		rss += residual * residual
	}
	for i, variance := range total.inverseDiagonal() {
		s := Sample{Mean: beta[i], SE: math.NaN(), Freedom: freedom, N: len(y)}
		if freedom > 0 {
			s.SE = math.Sqrt(rss / freedom * variance)
		}
		out[kept[i]] = s
	}
	return out
}

// varies reports whether a column without its means holds more than rounding.
func varies(column []float64) bool {
	sum := 0.0
	for _, v := range column {
		sum += v * v
	}
	return sum > 1e-18*float64(len(column))
}

func pick(columns [][]float64, kept []int, row int) []float64 {
	x := make([]float64, 0, len(kept))
	for _, c := range kept {
		x = append(x, columns[c][row])
	}
	return x
}

// inverseDiagonal is the diagonal of the inverse of XᵀX, which solve has found
// to exist.
func (n normal) inverseDiagonal() []float64 {
	xx, lengths, _ := n.scaled()
	var factors mat.Cholesky
	factors.Factorize(xx)
	var inverse mat.SymDense
	if err := factors.InverseTo(&inverse); err != nil {
		return nil
	}
	out := make([]float64, n.width)
	for i := range out {
		out[i] = inverse.At(i, i) / lengths[i] / lengths[i]
	}
	return out
}
