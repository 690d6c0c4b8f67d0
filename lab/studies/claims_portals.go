package studies

import (
	"fmt"
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// Texts of the claims on how the study's two portals compare.
const (
	convergeText = "The difference between a portal that works through a TUN device and one that works through NFQUEUE shrinks with more clients (5.4.3, 6.1)."
	alikeText    = "With 100 clients the two kinds of portal cost the same (5.4.3, 6.1)."
)

// standIn is the portal compared with CoovaChilli where no run has one that
// works through NFQUEUE.
const standIn = "opennds"

// ownTun works through a TUN device as CoovaChilli does, and is otherwise the same
// gateway as the one that works through NFQUEUE.
const ownTun = "gateway-tun"

// convergence are the findings on two portals compared with each other: the
// study's pair; one gateway by either mechanism, where both were measured; and
// CoovaChilli beside openNDS where the study's second is not there.
func convergence(s study1) []analysis.Finding {
	x := s.clients
	if !x.measured() {
		lacking := []experiment{x}
		return []analysis.Finding{
			untested("portals-converge", convergeText, lacking),
			untested("portals-alike-with-100-clients", alikeText, lacking),
		}
	}
	tun, nfqueue := x.router(scenarios[1].DUT), x.router(scenarios[2].DUT)
	pairs := [][2]router{{tun, nfqueue}}
	if own := x.router(ownTun); own.measured() && nfqueue.measured() {
		pairs = append(pairs, [2]router{own, nfqueue})
	}
	if other := x.router(standIn); !nfqueue.measured() && tun.measured() && other.measured() {
		pairs = append(pairs, [2]router{tun, other})
	}
	var out []analysis.Finding
	for _, claim := range []struct {
		id, text string
		judge    func(a, b router) judgement
	}{
		{"portals-converge", convergeText, x.converge},
		{"portals-alike-with-100-clients", alikeText, x.alike},
	} {
		for _, p := range pairs {
			subject := p[0].DUT + " and " + p[1].DUT
			j := x.comparable(p[0], p[1], claim.judge)
			if p[0].DUT == ownTun {
				subject += " (one gateway, two mechanisms)"
			}
			if p[1].DUT == standIn {
				subject += " (works in the kernel, not the study's pair)"
			}
			out = append(out, finding(claim.id+"/"+p[0].DUT+"-"+p[1].DUT, claim.text, subject, j))
		}
	}
	return out
}

// comparable judges a pair, or says which of the two was not measured.
func (x experiment) comparable(a, b router, judge func(a, b router) judgement) judgement {
	for _, r := range []router{b, a} {
		if !r.measured() {
			j := x.unmeasured(r)
			j.here = r.DUT + " " + j.here
			if r.DUT == scenarios[2].DUT {
				j.expect = "The study's second portal is proprietary; gatewayd stands in for it, working the same way: " + j.expect
			}
			return j
		}
	}
	return judge(a, b)
}

// converge judges how far apart two portals are with the fewest and the most
// clients, as the factor between the dearer and the cheaper, of their overhead
// ratios. The claim holds when the upper bound with the most lies below the
// lower bound with the fewest, and does not when it is the other way round.
func (x experiment) converge(a, b router) judgement {
	fewest, most := x.Levels[0], x.Levels[len(x.Levels)-1]
	j := judgement{here: "no factors that count in " + runsOf(a, b), study: x.publishedApart(a, b, fewest, most)}
	for _, r := range []router{a, b} {
		if j.expect = x.blocked(r, fewest, most); j.expect != "" {
			return j
		}
	}
	before, after := apart(a.levels[fewest].Ratio, b.levels[fewest].Ratio), apart(a.levels[most].Ratio, b.levels[most].Ratio)
	j.here = fmt.Sprintf("one costs × %s the other with %s, × %s with %s; %s; %s",
		bracketed(before), x.at(fewest), bracketed(after), x.at(most), blocks(before, after), runsOf(a, b))
	switch {
	case after.Hi < before.Lo:
		j.holds = yes()
	case after.Lo > before.Hi:
		j.holds, j.expect = no(), otherPair(b)
	default:
		j.leaveOpen()
	}
	return j
}

// alike judges whether two portals cost the same with the most clients: the
// factor between them lies within δ, or wholly outside.
func (x experiment) alike(a, b router) judgement {
	most := x.Levels[len(x.Levels)-1]
	j := judgement{here: "no factor that counts in " + runsOf(a, b), study: x.publishedApart(a, b, most)}
	for _, r := range []router{a, b} {
		if j.expect = x.blocked(r, most); j.expect != "" {
			return j
		}
	}
	factor := quotient(a.levels[most].Ratio, b.levels[most].Ratio)
	j.here = fmt.Sprintf("%s costs × %s of %s with %s; %s; %s", a.DUT, bracketed(factor), b.DUT, x.at(most), blocks(factor), runsOf(a, b))
	switch within(factor, a.Delta) {
	case inside:
		j.holds = yes()
	case outside:
		j.holds, j.expect = no(), otherPair(b)
	default:
		j.leaveOpen()
	}
	return j
}

// otherPair says why two portals may compare otherwise here.
func otherPair(second router) string {
	if second.DUT == standIn {
		return "openNDS decides in the kernel, where the study's second portal takes every packet to user space."
	}
	return "The portal that works through NFQUEUE here is not the study's. " + asLab
}

// apart is the factor between the dearer and the cheaper of two figures: 1 or
// more. Where the interval of their quotient holds 1, so does its lower bound.
func apart(a, b analysis.Estimate) analysis.Estimate {
	q := quotient(a, b)
	log := func(n analysis.Number) float64 { return math.Log(float64(n)) }
	lo, hi := log(q.Lo), log(q.Hi)
	nearest, furthest := math.Min(math.Abs(lo), math.Abs(hi)), math.Max(math.Abs(lo), math.Abs(hi))
	if lo <= 0 && hi >= 0 {
		nearest = 0
	}
	exp := func(v float64) analysis.Number { return analysis.Number(math.Exp(v)) }
	return analysis.Estimate{Mean: exp(math.Abs(log(q.Mean))), Lo: exp(nearest), Hi: exp(furthest), N: q.N}
}

// publishedApart is how far apart the study's figures of the two are.
func (x experiment) publishedApart(a, b router, levels ...float64) string {
	var parts []string
	for _, at := range levels {
		p, ok := a.published(at)
		q, also := b.published(at)
		if ok && also {
			factor := apart(exact(analysis.Number(p.CPUNormalised)), exact(analysis.Number(q.CPUNormalised)))
			parts = append(parts, fmt.Sprintf("× %s with %s", digits(factor.Mean), x.at(at)))
		}
	}
	return listed(parts)
}

func runsOf(a, b router) string {
	if a.Run == b.Run {
		return "run " + a.Run
	}
	return "runs " + a.Run + " and " + b.Run
}
