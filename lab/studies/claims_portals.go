package studies

import (
	"fmt"
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
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

// pair is two portals that are compared with each other.
type pair struct{ first, second string }

// id is the last part of a finding's on the pair.
func (p pair) id() string { return p.first + "-" + p.second }

// has reports whether a device is one of the pair.
func (p pair) has(dut string) bool { return p.first == dut || p.second == dut }

// subject names the pair, with what is to be known of it.
func (p pair) subject() string {
	subject := p.first + " and " + p.second
	switch {
	case p.first == ownTun:
		return subject + " (one gateway, two mechanisms)"
	case p.second == standIn:
		return subject + " (works in the kernel, not the study's pair)"
	}
	return subject
}

// pairs are the study's pair; one gateway by either mechanism, where both were
// measured; and CoovaChilli beside openNDS where the study's second is not there.
func (s study1) pairs() []pair {
	tun, nfqueue := scenarios[1].DUT, scenarios[2].DUT
	measured := func(dut string) bool { return s.clientsOf(dut).router(dut).measured() }
	out := []pair{{tun, nfqueue}}
	if measured(ownTun) && measured(nfqueue) {
		out = append(out, pair{ownTun, nfqueue})
	}
	if !measured(nfqueue) && measured(tun) && measured(standIn) {
		out = append(out, pair{tun, standIn})
	}
	return out
}

// pairClaims are the claims on how two portals compare.
var pairClaims = []struct {
	id, text string
	judge    func(study1, pair) judgement
}{
	{"portals-converge", convergeText, study1.converge},
	{"portals-alike-with-100-clients", alikeText, study1.alike},
}

// convergence are the findings on two portals compared with each other.
func convergence(s study1) []analysis.Finding {
	var out []analysis.Finding
	for _, claim := range pairClaims {
		if !s.measuredClients() {
			out = append(out, untested(claim.id, claim.text, []experiment{s.clients}))
			continue
		}
		for _, p := range s.pairs() {
			out = append(out, finding(claim.id+"/"+p.id(), claim.text, p.subject(), claim.judge(s, p)))
		}
	}
	return out
}

// compared is a pair at the place where a claim on it is judged.
type compared struct {
	experiment
	pair
	quotient analysis.Quotient
	delta    float64
	run      string
	note     string // see elsewhere
}

// compare finds where a claim that needs some levels is judged of a pair. Where it
// cannot be, the judgement says why, and ok is false.
func (s study1) compare(p pair, levels []float64) (c compared, j judgement, ok bool) {
	for _, dut := range []string{p.second, p.first} {
		if x := s.clientsOf(dut); !x.router(dut).measured() {
			j := x.unmeasured(x.router(dut))
			j.here = dut + " " + j.here
			if dut == scenarios[2].DUT {
				j.expect = "The study's second portal is proprietary; gatewayd stands in for it, working the same way: " + j.expect
			}
			return compared{}, j, false
		}
	}
	x, ok := s.judgedAt(levels, p.first, p.second)
	if !ok {
		return compared{}, s.notTogether(p, levels), false
	}
	a, b := x.router(p.first), x.router(p.second)
	c = compared{experiment: x, pair: p, delta: a.Delta, run: "run " + a.Run, note: s.elsewhere(x, levels, p.first, p.second)}
	setting := result.NewCell(result.OfferedMbps, x.Load, result.Direction, upload, result.Profile, a.Profile)
	if c.quotient, ok = x.of.Between(p.first, p.second, setting); !ok || a.Profile != b.Profile {
		return compared{}, judgement{here: "measured in different profiles in " + c.run, expect: x.together(a, b)}, false
	}
	return c, judgement{}, true
}

// notTogether is the judgement on a pair that carried the levels in no run
// together: what kept it from that in the first run that has both.
func (s study1) notTogether(p pair, levels []float64) judgement {
	for _, x := range s.places {
		a, b := x.router(p.first), x.router(p.second)
		if !a.measured() || !b.measured() {
			continue
		}
		j := judgement{here: "no factors that count in run " + a.Run}
		for _, r := range []router{a, b} {
			if limited, _ := x.short(r, levels); len(limited) > 0 {
				j.expect = fmt.Sprintf("%s could not carry the load %s %s, and CPU of traffic that was not carried is not known. %s",
					opening(r.Name), x.by(), listed(limited), x.together(a, b))
				return j
			}
			if j.expect = x.blocked(r, levels...); j.expect != "" {
				return j
			}
		}
	}
	x := s.clients
	return judgement{here: "not measured in the same run", expect: x.together(router{DUT: p.first}, router{DUT: p.second})}
}

// together is how to measure two devices in one run.
func (x experiment) together(a, b router) string {
	text := fmt.Sprintf("`gateweigh run %s --set duts=%s,%s` measures both", x.Run, a.DUT, b.DUT)
	if load := x.lightLoad(a, b); load > 0 {
		text = fmt.Sprintf("`gateweigh run %s --set duts=%s,%s --set offered_mbps=%g` has a load both can carry", x.Run, a.DUT, b.DUT, load)
	}
	return text + "; `gateweigh report RUN --with RUN2` takes both runs together."
}

// with is the quotient with a number of clients.
func (c compared) with(clients float64) analysis.QuotientLevel {
	for _, l := range c.quotient.Levels {
		if float64(l.Clients) == clients {
			return l
		}
	}
	return analysis.QuotientLevel{Ratio: nothing(), Widening: nothing()}
}

// converge judges whether what two portals cost comes nearer to each other from
// the fewest clients to the most, by how the distance from 1 of the quotient of
// their overhead ratios changes. The claim holds when it shrinks by more than δ,
// over all of the interval, and does not when it shrinks by less, or grows.
func (s study1) converge(p pair) judgement {
	fewest, most := s.clients.Levels[0], s.clients.Levels[len(s.clients.Levels)-1]
	study := s.clients.publishedApart(p, fewest, most)
	c, j, ok := s.compare(p, []float64{fewest, most})
	j.study = study
	if !ok {
		return j
	}
	before, after := c.with(fewest).Ratio, c.with(most).Ratio
	change := c.with(most).Widening
	j.here = fmt.Sprintf("%s costs × %s of %s with %s, × %s with %s; the factor between the dearer and the cheaper becomes × %s as large; %s; %s%s",
		p.first, bracketed(before), p.second, c.at(fewest), bracketed(after), c.at(most), bracketed(change), blocks(before, after, change), c.run, c.note)
	j.figure = fmt.Sprintf("× %s, then × %s: factor between them × %s", bracketed(before), bracketed(after), bracketed(change))
	j.detail = fmt.Sprintf("%s; %s over %s; 1 and %s, %s", blocks(before, after, change), p.first, p.second, c.at(most), c.held())
	shrunk := analysis.Number(1 / (1 + c.delta))
	switch {
	case !change.HasInterval():
		j.leaveOpen()
	case change.Hi < shrunk:
		j.holds = yes()
	case change.Lo >= shrunk:
		j.holds, j.expect = no(), notNearer(p, before, change, c.delta)
	default:
		j.leaveOpen()
	}
	return j
}

// notNearer says why two portals do not converge here.
func notNearer(p pair, before, change analysis.Estimate, delta float64) string {
	if within(before, delta) == inside && change.Lo <= 1 {
		return "They cost the same with 1 client already, so there is no difference that could shrink."
	}
	if p.second == standIn {
		return otherPair(p)
	}
	return otherPair(p) + " Both take every packet to user space, whatever the number of clients: what they differ by is paid for each packet."
}

// alike judges whether two portals cost the same with the most clients: the
// quotient of their overhead ratios lies within δ, or wholly outside.
func (s study1) alike(p pair) judgement {
	most := s.clients.Levels[len(s.clients.Levels)-1]
	study := s.clients.publishedApart(p, most)
	c, j, ok := s.compare(p, []float64{most})
	j.study = study
	if !ok {
		return j
	}
	factor := c.with(most).Ratio
	j.here = fmt.Sprintf("%s costs × %s of %s with %s; %s; %s%s", p.first, bracketed(factor), p.second, c.at(most), blocks(factor), c.run, c.note)
	switch within(factor, c.delta) {
	case inside:
		j.holds = yes()
	case outside:
		j.holds, j.expect = no(), otherPair(p)
	default:
		j.leaveOpen()
	}
	return j
}

// otherPair says why two portals may compare otherwise here.
func otherPair(p pair) string {
	switch {
	case p.second == standIn:
		return "openNDS decides in the kernel, where the study's second portal takes every packet to user space."
	case p.first == ownTun:
		return "Both are one gateway here, so what they differ by is the mechanism; in the study it was also two programs. " + asLab
	}
	return "The portal that works through NFQUEUE here is not the study's. " + asLab
}

// publishedApart is the factor between the dearer and the cheaper of the pair in
// the study.
func (x experiment) publishedApart(pair pair, levels ...float64) string {
	a, b := x.router(pair.first), x.router(pair.second)
	var parts []string
	for _, at := range levels {
		p, ok := a.published(at)
		q, also := b.published(at)
		if ok && also {
			factor := math.Exp(math.Abs(math.Log(p.CPUNormalised / q.CPUNormalised)))
			parts = append(parts, fmt.Sprintf("× %s with %s", digits(analysis.Number(factor)), x.at(at)))
		}
	}
	return listed(parts)
}
