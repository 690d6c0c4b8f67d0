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
	// without[i] is Beta fitted without cluster i. without is nil when one of these fits does not exist.
	without  [][]float64
	clusters int
	freedom  float64
}

// worstCondition is the largest condition number of scaled normal equations with a usable solution. Beyond it no digit
// of the solution can be trusted.
const worstCondition = 1e12

// LeastSquares fits the rows. ok is false when they do not determine β. between is the number of columns that do not
// change within a cluster. Each of them takes one degree of freedom from the intervals, as in a fit to cluster means.
func LeastSquares(rows []Row, between int) (f Fit, ok bool) {
	if len(rows) == 0 {
		return Fit{}, false
	}
	var clusters [][]Row
	for _, r := range rows {
		for len(clusters) <= r.Cluster {
			clusters = append(clusters, nil)
		}
		clusters[r.Cluster] = append(clusters[r.Cluster], r)
	}
	total := normalOf(rows)
	if f.Beta, ok = total.solve(); !ok {
		return Fit{}, false
	}
	f.clusters, f.freedom = len(clusters), float64(len(clusters)-between)
	for _, c := range clusters {
		beta, ok := total.less(normalOf(c)).solve()
		if !ok {
			f.without = nil
			break
		}
		f.without = append(f.without, beta)
	}
	return f, true
}

// Sample estimates any smooth function of the coefficients. Its standard error is the jackknife over clusters (J. W.
// Tukey, 1958; as CV3 in J. G. MacKinnon, M. Ø. Nielsen and M. D. Webb, J. Econometrics 232, 2023). Where all clusters
// have the same X, this is exactly the t-interval over one fit for each cluster. N counts the clusters.
func (f Fit) Sample(figure func(beta []float64) float64) Sample {
	s := Sample{Mean: figure(f.Beta), SE: math.NaN(), Freedom: f.freedom, N: f.clusters}
	if len(f.without) < 2 {
		return s
	}
	sum := 0.0
	for _, beta := range f.without {
		d := figure(beta) - s.Mean
		sum += d * d
	}
	n := float64(f.clusters)
	s.SE = math.Sqrt(sum * (n - 1) / n)
	return s
}

// normal has the normal equations of some rows.
type normal struct {
	xx *mat.SymDense // XᵀX
	xy *mat.VecDense // Xᵀy
}

func newNormal(width int) normal {
	return normal{mat.NewSymDense(width, nil), mat.NewVecDense(width, nil)}
}

// normalOf computes the normal equations of one or more rows.
func normalOf(rows []Row) normal {
	n := newNormal(len(rows[0].X))
	for _, r := range rows {
		x := mat.NewVecDense(len(r.X), r.X)
		n.xx.SymRankOne(n.xx, 1, x)
		n.xy.AddScaledVec(n.xy, r.Y, x)
	}
	return n
}

// less returns the equations without the rows of part.
func (n normal) less(part normal) normal {
	rest := newNormal(n.xy.Len())
	rest.xx.ScaleSym(-1, part.xx)
	rest.xx.AddSym(n.xx, rest.xx)
	rest.xy.SubVec(n.xy, part.xy)
	return rest
}

// scaled scales every column of X to unit length and returns the former lengths. ok is false when a column has only
// zeros.
func (n normal) scaled() (unit normal, lengths []float64, ok bool) {
	width := n.xy.Len()
	unit, lengths = newNormal(width), make([]float64, width)
	for j := range width {
		lengths[j] = math.Sqrt(n.xx.At(j, j))
		if !(lengths[j] > 0) || math.IsInf(lengths[j], 0) {
			return unit, nil, false
		}
		unit.xy.SetVec(j, n.xy.AtVec(j)/lengths[j])
		for i := range j + 1 {
			unit.xx.SetSym(i, j, n.xx.At(i, j)/lengths[i]/lengths[j])
		}
	}
	return unit, lengths, true
}

func (n normal) solve() (beta []float64, ok bool) {
	unit, lengths, ok := n.scaled()
	if !ok {
		return nil, false
	}
	var factors mat.Cholesky
	if !factors.Factorize(unit.xx) || factors.Cond() > worstCondition {
		return nil, false
	}
	var solution mat.VecDense
	if err := factors.SolveVecTo(&solution, unit.xy); err != nil {
		return nil, false
	}
	for i, length := range lengths {
		beta = append(beta, solution.AtVec(i)/length)
	}
	return beta, !slices.ContainsFunc(beta, func(b float64) bool { return !finite(b) })
}

// Condition returns the condition number of X with columns of unit length. It is infinite when X is singular. D. A.
// Belsley, E. Kuh and R. E. Welsch (Regression Diagnostics, 1980) call dependences weak at 5 to 10 and strong from 30
// on.
func Condition(rows []Row) float64 {
	if len(rows) == 0 {
		return math.Inf(1)
	}
	unit, _, ok := normalOf(rows).scaled()
	var eigen mat.EigenSym
	if !ok || !eigen.Factorize(unit.xx, false) {
		return math.Inf(1)
	}
	values := eigen.Values(nil) // ascending
	if !(values[0] > 0) {
		return math.Inf(1)
	}
	return math.Sqrt(values[len(values)-1] / values[0])
}
