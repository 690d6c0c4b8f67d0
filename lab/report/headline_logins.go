package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// largest has one cell a device: that with the most clients, at the highest rate. The
// device that lets in the most clients a second comes first.
func largest(cells []analysis.StormCell) []analysis.StormCell {
	hardness := func(c analysis.StormCell) float64 {
		if c.LoginRate == 0 {
			return math.Inf(1)
		}
		return float64(c.LoginRate)
	}
	at := map[string]int{}
	var out []analysis.StormCell
	for _, c := range cells {
		i, seen := at[c.DUT]
		switch {
		case !seen:
			at[c.DUT] = len(out)
			out = append(out, c)
		case c.Storms > 0 && (out[i].Storms == 0 || c.Clients > out[i].Clients || c.Clients == out[i].Clients && hardness(c) > hardness(out[i])):
			out[i] = c
		}
	}
	rank(out, func(c analysis.StormCell) analysis.Number { return -c.Login.PerSecond.Mean })
	return out
}

// Shapes of the marks of log-ins.
const (
	shapeAll  = "all"  // every client got in
	shapeSome = "some" // some were left out
)

// rankLogins has the devices by the log-ins they take a second, the fastest first.
func rankLogins(d *drawing) ranking {
	cells := largest(d.summary.Storms)
	load, where := inCommon(cells, stormSetting)
	r := ranking{
		Title: "Clients let in a second", Load: load, Order: "fastest first", ReachText: intervalText(d.summary),
		Key: []keyEntry{{shapeAll, "all clients got in"}, {shapeSome, "some were left out"}},
	}
	for _, c := range cells {
		row := ranked{
			DUT: c.DUT, Key: stormKey(c), Style: d.style(c.DUT).Class(), At: c.Login.PerSecond, Shape: shapeAll, Word: "all clients got in",
			Value: digits3(c.Login.PerSecond.Mean), Interval: bounds(c.Login.PerSecond, digits3), Note: joined("; ", where(c), loginNote(c)), Facts: loginFacts(c),
		}
		if c.Login.Failed() > 0 {
			row.Shape, row.Word = shapeSome, "some clients were left out"
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

// loginNote is what a reader must know of a device beside its log-ins a second.
func loginNote(c analysis.StormCell) string {
	var text string
	switch {
	case c.Storms == 0 && len(c.Rejects) > 0:
		return "no storm was accepted, mostly because: " + c.Rejects[0].Text
	case c.Storms == 0:
		return "no storm was accepted"
	case c.Login.Through == 0:
		text = "lets nobody in"
	case c.Login.Failed() > 0:
		text = "leaves " + failedShare(c) + " out"
	}
	if c.Died > 0 {
		text = joined("; ", text, "ended by itself in "+counted(c.Died, "storm"))
	}
	return text
}

// loginFacts is what else a reader asks of a device; what is not known is left out.
func loginFacts(c analysis.StormCell) []fact {
	if c.Storms == 0 {
		return nil
	}
	in := "all " + counted(c.Clients, "client")
	if c.Login.Failed() > 0 {
		in = fmt.Sprintf("%s of %s", grouped(fmt.Sprint(c.Login.Through)), counted(c.Login.Asked, "client"))
	}
	facts := []fact{{"Let in", in}}
	add := func(n analysis.Number, name, text string) {
		if n.Known() {
			facts = append(facts, fact{name, text})
		}
	}
	add(c.Login.P50Ms.Mean, "Wait", fmt.Sprintf("half up to %s, 99 %% up to %s", millis(c.Login.P50Ms.Mean), millis(c.Login.P99Ms.Mean)))
	add(c.Login.MaxMs.Mean, "The last waited", millis(c.Login.MaxMs.Mean))
	if c.Login.Retried > 0 {
		facts = append(facts, fact{"Had to try again", percent(analysis.Number(100 * float64(c.Login.Retried) / float64(c.Login.Asked)))})
	}
	add(c.Login.RouterMs.Mean, "Router CPU", millis(c.Login.RouterMs.Mean)+" a login")
	add(c.PSSKiBPerClient.Mean, "Memory", digits3(c.PSSKiBPerClient.Mean)+" KiB a client")
	return append(facts, fact{"Limit", limitText(c.Login)})
}

// loginLead says what becomes of the clients of the fastest and of the slowest device,
// for whoever reads one sentence only. The cells are ranked.
func loginLead(cells []analysis.StormCell) string {
	var accepted []analysis.StormCell
	for _, c := range cells {
		if c.Storms > 0 {
			accepted = append(accepted, c)
		}
	}
	if len(accepted) == 0 {
		return "No storm was accepted, so this run says nothing of the devices."
	}
	if n := len(accepted); n > 2 {
		accepted = []analysis.StormCell{accepted[0], accepted[n-1]}
	}
	all, each := inCommon(accepted, stormSetting)
	var parts []string
	for _, c := range accepted {
		text := fmt.Sprintf("%s lets in %s clients a second", c.DUT, digits3(c.Login.PerSecond.Mean))
		switch {
		case c.Login.Through == 0:
			text = c.DUT + " lets nobody in"
		case c.Login.Failed() > 0:
			text += " and leaves " + failedShare(c) + " out"
		}
		if where := each(c); where != "" {
			text += " (" + where + ")"
		}
		parts = append(parts, text)
	}
	if all != "" {
		all = "With " + all
	}
	return unbroken(joined(", ", all, strings.Join(parts, ", and ")) + ".")
}

// failedShare is how many of the clients of a cell were left out.
func failedShare(c analysis.StormCell) string {
	return percent(analysis.Number(100 * float64(c.Login.Failed()) / float64(c.Login.Asked)))
}
