package analysis_test

import (
	"math"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// two is a run of two devices. a costs twice as much as b, and perClient more for each client, in % of a core. With a
// perClient below 0 it becomes cheaper, and costs less than b with 100 clients if perClient is -0.3.
func two(seed uint64, blocks int, perClient float64) analysistest.Spec {
	return analysistest.Spec{
		Seed: seed, Clients: []int{1, 10, 100}, Offered: []float64{300, 1000},
		DUTs: []analysistest.DUT{
			{Name: "a", Cost: analysistest.Cost{PerGbit: 40, PerClient: perClient}},
			{Name: "b", Cost: analysistest.Cost{PerGbit: 20}},
		},
		Blocks: blocks, Windows: 2, BlockSD: 0.03, WindowSD: 0.01, MachineSD: 0.05,
	}
}

// quotientOf finds the quotient of two devices at a load. holds, between and the run crowd are in summary_test.go and
// sweeps_test.go.
func quotientOf(t *testing.T, s analysis.Summary, a, b string, offered float64) analysis.Quotient {
	t.Helper()
	q, ok := s.Between(
		a, b, result.NewCell(result.OfferedMbps, offered, result.Direction, "up", result.Profile, "per-packet"))
	if !ok {
		t.Fatalf("no quotient of %s over %s at %g", a, b, offered)
	}
	return q
}

// TestQuotients: the quotient of two devices has a ratio for each number of clients, and for each but the first the
// widening of the distance between the two costs. It can be inverted.
func TestQuotients(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(two(2, 8, -0.3)), analysis.Options{})
	if len(s.Quotients) != 2 {
		t.Fatalf("%d quotients of two devices at two loads", len(s.Quotients))
	}
	q := quotientOf(t, s, "a", "b", 1000)
	if len(q.Levels) != 3 || q.Levels[0].Widening.Mean.Known() || q.Levels[2].Clients != 100 || q.Levels[2].Ratio.N != 8 ||
		q.Levels[2].Widening.N != 8 {
		t.Fatalf("%+v", q)
	}
	first, last := (40-0.3)/20., (40-30.)/20
	holds(t, "with 1 client", q.Levels[0].Ratio, first, 0.1)
	holds(t, "with 100 clients", q.Levels[2].Ratio, last, 0.03)
	// The cost of a over that of b falls from 1.985 to 0.5: b is then 2 times as expensive.
	holds(t, "widening", q.Levels[2].Widening, 1/last/first, 0.06)
	// turned is the inverted quotient.
	turned := quotientOf(t, s, "b", "a", 1000)
	holds(t, "turned", turned.Levels[2].Ratio, 1/last, 0.1)
	if turned.DUT != "b" || turned.Over != "a" || turned.Levels[2].Widening != q.Levels[2].Widening {
		t.Errorf("turned: %+v", turned)
	}
	if _, ok := s.Between(
		"a", "b", result.NewCell(result.OfferedMbps, 500, result.Direction, "up", result.Profile, "per-packet")); ok {
		t.Error("a quotient at a load that was not measured")
	}
}

// TestQuotientsAreOfRounds: effects on a whole round cancel. Blocks of rounds without both devices are compared as
// independent blocks.
func TestQuotientsAreOfRounds(t *testing.T) {
	spec := two(5, 6, 0)
	spec.BlockSD = 0.001
	run := analysistest.Run(spec)
	for i := range run.Trials { // each round is dearer than the one before, for both devices
		trial := &run.Trials[i]
		cost.SidesOf(*trial).DUT.NAPINs = int64(float64(cost.SidesOf(*trial).DUT.NAPINs) * math.Pow(1.3,
			float64(trial.Block)))
	}
	paired := quotientOf(t, (cost.Measure{}).Summarise(run, analysis.Options{}), "a", "b", 300).Levels[0].Ratio
	holds(t, "paired", paired, 2, 0.05)
	if paired.N != 6 || paired.Hi/paired.Lo > 1.05 {
		t.Errorf("paired: %+v", paired)
	}
	for i := range run.Trials { // no round in common: another sitting
		if trial := &run.Trials[i]; trial.Cell.Text(result.DUT) == "b" {
			trial.Sitting = 1
		}
	}
	apart := quotientOf(t, (cost.Measure{}).Summarise(run, analysis.Options{}), "a", "b", 300).Levels[0].Ratio
	if apart.N != 12 || !(apart.Hi/apart.Lo > 2) {
		t.Errorf("independent: %+v", apart)
	}
}

// TestQuotientsOfARealRun: measured has the log ratios, by number of clients, of three blocks of a real run of
// portal-clients at 300 Mbit/s. The quotients must be those computed with the t-quantile of scipy.
func TestQuotientsOfARealRun(t *testing.T) {
	measured := map[string]map[int][]float64{
		"gateway-tun":     {1: {1.8563, 1.8106, 1.8477}, 100: {1.9560, 2.0115, 1.9528}},
		"gateway-nfqueue": {1: {2.2788, 2.2313, 2.2306}, 100: {2.3579, 2.3426, 2.3597}},
	}
	run := analysistest.Run(analysistest.Spec{
		Seed: 1, Clients: []int{1, 100}, Offered: []float64{300}, Blocks: 3, Windows: 2,
		DUTs: []analysistest.DUT{{Name: "gateway-tun", Ratio: 1}, {Name: "gateway-nfqueue", Ratio: 1}},
	})
	for i := range run.Trials {
		trial := &run.Trials[i]
		cost.SidesOf(*trial).DUT.NAPINs = int64(float64(cost.SidesOf(*trial).Clean.NAPINs) * math.Exp(
			measured[trial.Cell.Text(result.DUT)][trial.Cell.Int(result.Clients)][trial.Block]))
	}
	q := quotientOf(t, (cost.Measure{}).Summarise(run, analysis.Options{}), "gateway-tun", "gateway-nfqueue", 300)
	for _, tt := range []struct {
		what string
		got  analysis.Estimate
		want [3]float64
	}{
		{"with 1 client", q.Levels[0].Ratio, [3]float64{0.66451, 0.62861, 0.70247}},
		{"with 100 clients", q.Levels[1].Ratio, [3]float64{0.68388, 0.61553, 0.75983}},
		{"widening", q.Levels[1].Widening, [3]float64{0.97168, 0.84289, 1.12013}},
	} {
		for i, got := range []analysis.Number{tt.got.Mean, tt.got.Lo, tt.got.Hi} {
			between(t, tt.what, got, tt.want[i]-2e-5, tt.want[i]+2e-5)
		}
	}
}

// TestQuotientsOfOneBlock: quotients of one block have no intervals.
func TestQuotientsOfOneBlock(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(two(3, 1, 0)), analysis.Options{})
	level := quotientOf(t, s, "a", "b", 300).Levels[2]
	if !level.Ratio.Mean.Known() || level.Ratio.HasInterval() || level.Widening.HasInterval() || level.Ratio.N != 1 {
		t.Errorf("%+v", level)
	}
}

// TestCoverageOfWidening: at least 95 % of the intervals contain the true widening. With more clients, the costs of the
// two devices stay apart, come together, cross, or part.
func TestCoverageOfWidening(t *testing.T) {
	const runs = 400
	for name, perClient := range map[string]float64{"stay apart": 0, "come together": -0.2, "cross": -0.3, "part": 0.2} {
		held := 0
		for seed := range runs {
			spec := two(uint64(seed), 4, perClient)
			spec.Clients, spec.Offered, spec.Windows = []int{1, 100}, []float64{1000}, 1
			s := (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{})
			w := quotientOf(t, s, "a", "b", 1000).Levels[1].Widening
			apart := func(clients float64) float64 { return math.Abs(math.Log((40 + perClient*clients) / 20)) }
			truth := analysis.Number(math.Exp(apart(100) - apart(1)))
			if w.Lo <= truth && truth <= w.Hi {
				held++
			}
		}
		t.Logf("%s: %d of %d intervals hold the truth", name, held, runs)
		if held < runs*92/100 { // 95 % less 3 standard deviations
			t.Errorf("%s: %d of %d intervals hold the truth", name, held, runs)
		}
	}
}

// TestSpans: the rise over several levels is the sum of the steps between them.
func TestSpans(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(crowd), analysis.Options{})
	sweep := sweepOf(t, s, "portal", result.Clients)
	if len(sweep.Spans) != 3 {
		t.Fatalf("spans %+v", sweep.Spans)
	}
	product := 1.0
	for _, inc := range sweep.Increments[1:] {
		product *= 1 + float64(inc.RatioPct.Mean)/100
	}
	span := sweep.Spans[2]
	if span.From != 10 || span.To != 100 || math.Abs(float64(span.RatioPct.Mean)/100+1-product) > 1e-9 {
		t.Errorf("%+v, the steps within make %g", span, product)
	}
	holds(t, "CPU from 10 to 100 clients", span.RelativePct, 100*(30./21-1), 6)
	if clean := sweepOf(t, s, analysis.Clean, result.Clients); clean.Spans[2].RatioPct.Mean.Known() ||
		!clean.Spans[2].RelativePct.HasInterval() {
		t.Errorf("clean: %+v", clean.Spans[2])
	}
}
