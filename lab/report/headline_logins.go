package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// largest has one cell a device: that with the most clients, at the highest rate. The
// device that lets in the most clients a second comes first.
func largest(cells []analysis.Cell) []analysis.Cell {
	hardness := func(c analysis.Cell) float64 {
		if c.Number(result.LoginRate) == 0 {
			return math.Inf(1)
		}
		return c.Number(result.LoginRate)
	}
	at := map[string]int{}
	var out []analysis.Cell
	for _, c := range cells {
		i, seen := at[c.DUT()]
		switch {
		case !seen:
			at[c.DUT()] = len(out)
			out = append(out, c)
		case c.Pairs > 0 && (out[i].Pairs == 0 || c.Int(result.Clients) > out[i].Int(result.Clients) || c.Int(result.Clients) == out[i].Int(result.Clients) && hardness(c) > hardness(out[i])):
			out[i] = c
		}
	}
	rank(out, func(c analysis.Cell) analysis.Number { return -c.Device("login_per_second").Mean })
	return out
}

// Shapes of the marks of log-ins.
const (
	shapeAll  = "all"  // every client got in
	shapeSome = "some" // some were left out
)

// rankLogins has the devices by the log-ins they take a second, the fastest first.
func rankLogins(d *drawing) ranking {
	cells := largest(d.summary.Cells)
	load, where := inCommon(cells, stormSetting)
	r := ranking{
		Title: "Clients let in a second", Load: load, Order: "fastest first", ReachText: intervalText(d.summary),
		Key: []keyEntry{{shapeAll, "all clients got in"}, {shapeSome, "some were left out"}},
	}
	for _, c := range cells {
		row := ranked{
			DUT: c.DUT(), Key: markKey(c.Cell), Style: d.style(c.DUT()).Class(), At: c.Device("login_per_second"), Shape: shapeAll, Word: "all clients got in",
			Value: digits3(c.Device("login_per_second").Mean), Interval: bounds(c.Device("login_per_second"), digits3), Note: words.Joined("; ", where(c), loginNote(c)), Facts: loginFacts(c),
		}
		if failed(c, logins.Login) > 0 {
			row.Shape, row.Word = shapeSome, "some clients were left out"
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

// loginNote is what a reader must know of a device beside its log-ins a second.
func loginNote(c analysis.Cell) string {
	var text string
	switch {
	case c.Pairs == 0 && len(c.Rejects) > 0:
		return "no storm was accepted, mostly because: " + c.Rejects[0].Text
	case c.Pairs == 0:
		return "no storm was accepted"
	case c.Counts[logins.Login+logins.Through] == 0:
		text = "lets nobody in"
	case failed(c, logins.Login) > 0:
		text = "leaves " + failedShare(c) + " out"
	}
	if c.Counts[logins.Died] > 0 {
		text = words.Joined("; ", text, "ended by itself in "+words.Counted(c.Counts[logins.Died], "storm"))
	}
	return text
}

// loginFacts is what else a reader asks of a device; what is not known is left out.
func loginFacts(c analysis.Cell) []fact {
	if c.Pairs == 0 {
		return nil
	}
	in := "all " + words.Counted(c.Int(result.Clients), "client")
	if failed(c, logins.Login) > 0 {
		in = fmt.Sprintf("%s of %s", words.Grouped(fmt.Sprint(c.Counts[logins.Login+logins.Through])), words.Counted(c.Counts[logins.Login+logins.Asked], "client"))
	}
	facts := []fact{{"Let in", in}}
	add := func(n analysis.Number, name, text string) {
		if n.Known() {
			facts = append(facts, fact{name, text})
		}
	}
	add(c.Device("login_p50_ms").Mean, "Wait", fmt.Sprintf("half up to %s, 99 %% up to %s", millis(c.Device("login_p50_ms").Mean), millis(c.Device("login_p99_ms").Mean)))
	add(c.Device("login_max_ms").Mean, "The last waited", millis(c.Device("login_max_ms").Mean))
	if c.Counts[logins.Login+logins.Retried] > 0 {
		facts = append(facts, fact{"Had to try again", percent(analysis.Number(100 * float64(c.Counts[logins.Login+logins.Retried]) / float64(c.Counts[logins.Login+logins.Asked])))})
	}
	add(c.Device("login_router_ms").Mean, "Router CPU", millis(c.Device("login_router_ms").Mean)+" a login")
	add(c.Device("pss_kib_per_client").Mean, "Memory", digits3(c.Device("pss_kib_per_client").Mean)+" KiB a client")
	return append(facts, fact{"Limit", limitText(c, logins.Login)})
}

// loginScreen is the picture of a run of login storms, and the sentence above it.
func loginScreen(d *drawing) (lead string, r ranking) {
	r = rankLogins(d)
	if len(r.Rows) > 0 {
		lead = loginLead(largest(d.summary.Cells))
	}
	return lead, r
}

// loginLead says what becomes of the clients of the fastest and of the slowest device,
// for whoever reads one sentence only. The cells are ranked.
func loginLead(cells []analysis.Cell) string {
	var accepted []analysis.Cell
	for _, c := range cells {
		if c.Pairs > 0 {
			accepted = append(accepted, c)
		}
	}
	if len(accepted) == 0 {
		return "No storm was accepted, so this run says nothing of the devices."
	}
	if n := len(accepted); n > 2 {
		accepted = []analysis.Cell{accepted[0], accepted[n-1]}
	}
	all, each := inCommon(accepted, stormSetting)
	var parts []string
	for _, c := range accepted {
		text := fmt.Sprintf("%s lets in %s clients a second", c.DUT(), digits3(c.Device("login_per_second").Mean))
		switch {
		case c.Counts[logins.Login+logins.Through] == 0:
			text = c.DUT() + " lets nobody in"
		case failed(c, logins.Login) > 0:
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
	return unbroken(words.Joined(", ", all, strings.Join(parts, ", and ")) + ".")
}

// failedShare is how many of the clients of a cell were left out.
func failedShare(c analysis.Cell) string {
	return percent(analysis.Number(100 * float64(failed(c, logins.Login)) / float64(c.Counts[logins.Login+logins.Asked])))
}
