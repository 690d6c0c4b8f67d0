package inference

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Row is one observation of a least-squares fit, Y ≈ X·β. Rows of one cluster
// may depend on each other, rows of different clusters may not. For a fit of
// relative errors, X and Y are divided by the size of Y.
type Row struct {
	X       []float64
	Y       float64
	Cluster int // counts from 0 without gaps
}

// Fit is a least-squares fit over clusters of rows.
type Fit struct {
	Beta []float64
	// without[i] is Beta with cluster i left out; the whole is nil when one of
	// these cannot be fitted.
	without  [][]float64
	clusters int
	freedom  float64
}

// worstCondition is that of a matrix of scaled normal equations beyond which
// the solution has no digits to trust.
const worstCondition = 1e12

// LeastSquares fits the rows; ok is false when they do not determine β.
// between is the number of columns that do not change within a cluster: each
// costs the intervals a degree of freedom, as in a fit to cluster means.
func LeastSquares(rows []Row, between int) (f Fit, ok bool) {
	if len(rows) == 0 {
		return Fit{}, false
	}
	width := len(rows[0].X)
	var clusters []normal
	total := newNormal(width)
	for _, r := range rows {
		for len(clusters) <= r.Cluster {
			clusters = append(clusters, newNormal(width))
		}
		clusters[r.Cluster].add(r)
		total.add(r)
	}
	if f.Beta, ok = total.solve(); !ok {
		return Fit{}, false
	}
	f.clusters, f.freedom = len(clusters), float64(len(clusters)-between)
	for _, c := range clusters {
		beta, ok := total.less(c).solve()
		if !ok {
			f.without = nil
			break
		}
		f.without = append(f.without, beta)
	}
	return f, true
}

// Sample is the estimate of any smooth function of the coefficients. Its
// standard error is the jackknife over clusters (J. W. Tukey, 1958; as CV3 in
// J. G. MacKinnon, M. Ø. Nielsen and M. D. Webb, J. Econometrics 232, 2023).
// Where all clusters have the same X it is exactly the t-interval over one fit
// a cluster. N counts the clusters.
func (f Fit) Sample(of func(beta []float64) float64) Sample {
	s := Sample{Mean: of(f.Beta), SE: math.NaN(), Freedom: f.freedom, N: f.clusters}
	if len(f.without) < 2 {
		return s
	}
	sum := 0.0
	for _, beta := range f.without {
		d := of(beta) - s.Mean
		sum += d * d
	}
	n := float64(f.clusters)
	s.SE = math.Sqrt(sum * (n - 1) / n)
	return s
}

// normal are the normal equations of some rows: XᵀX in row order, and Xᵀy.
type normal struct {
	width  int
	xx, xy []float64
}

func newNormal(width int) normal {
	return normal{width, make([]float64, width*width), make([]float64, width)}
}

func (n normal) add(r Row) {
	for i, a := range r.X {
		for j, b := range r.X {
			n.xx[i*n.width+j] += a * b
		}
		n.xy[i] += a * r.Y
	}
}

// less is n without the rows of part.
func (n normal) less(part normal) normal {
	rest := normal{n.width, slices.Clone(n.xx), slices.Clone(n.xy)}
	for i, v := range part.xx {
		rest.xx[i] -= v
	}
	for i, v := range part.xy {
		rest.xy[i] -= v
	}
	return rest
}

// scaled is XᵀX with every column of X brought to unit length, and the
// lengths; ok is false when a column is nothing but zeros.
func (n normal) scaled() (xx *mat.SymDense, lengths []float64, ok bool) {
	lengths = make([]float64, n.width)
	for i := range lengths {
		lengths[i] = math.Sqrt(n.xx[i*n.width+i])
		if !(lengths[i] > 0) || math.IsInf(lengths[i], 0) {
			return nil, nil, false
		}
	}
	xx = mat.NewSymDense(n.width, nil)
	for i := range n.width {
		for j := i; j < n.width; j++ {
			xx.SetSym(i, j, n.xx[i*n.width+j]/lengths[i]/lengths[j])
		}
	}
	return xx, lengths, true
}

func (n normal) solve() (beta []float64, ok bool) {
	xx, lengths, ok := n.scaled()
	if !ok {
		return nil, false
	}
	var factors mat.Cholesky
	if !factors.Factorize(xx) || factors.Cond() > worstCondition {
		return nil, false
	}
	right := mat.NewVecDense(n.width, nil)
	for i, v := range n.xy {
		right.SetVec(i, v/lengths[i])
	}
	solution := mat.NewVecDense(n.width, nil)
	if err := factors.SolveVecTo(solution, right); err != nil {
		return nil, false
	}
	for i := range n.width {
		beta = append(beta, solution.AtVec(i)/lengths[i])
	}
	return beta, !slices.ContainsFunc(beta, func(b float64) bool { return !finite(b) })
}

// Condition is the condition number of X with columns of unit length, infinite
// when it is singular. D. A. Belsley, E. Kuh and R. E. Welsch (Regression
// Diagnostics, 1980) call dependences weak at 5 to 10 and strong from 30 on.
func Condition(rows []Row) float64 {
	if len(rows) == 0 {
		return math.Inf(1)
	}
	total := newNormal(len(rows[0].X))
	for _, r := range rows {
		total.add(r)
	}
	xx, _, ok := total.scaled()
	if !ok {
		return math.Inf(1)
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(xx, false) {
		return math.Inf(1)
	}
	values := eigen.Values(nil) // ascending
	if !(values[0] > 0) {
		return math.Inf(1)
	}
	return math.Sqrt(values[len(values)-1] / values[0])
}
