package report

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// ceilingColumns are the terminal's table of ceilings.
var ceilingColumns = []column[analysis.Ceiling]{
	{head: "ceiling", left: true, value: func(l analysis.Ceiling) string { return result.OneLine(routerName(l.DUT)) }},
	{head: "profile", left: true, once: true, value: func(l analysis.Ceiling) string { return result.OneLine(l.Profile) }},
	{head: "direction", left: true, once: true, value: func(l analysis.Ceiling) string { return result.OneLine(l.Direction) }},
	{head: "clients", once: true, value: func(l analysis.Ceiling) string { return fmt.Sprint(l.Clients) }},
	{head: "carries", value: carriesText},
	{head: "router CPU", drop: 2, value: func(l analysis.Ceiling) string { return percent(l.CPUCorePct) }},
	{head: "fails at", value: func(l analysis.Ceiling) string { return rate(l.FailsMbps) }},
	{head: "by", left: true, value: func(l analysis.Ceiling) string { return failureWord(l.Why) }},
	{head: "delivers at most", drop: 1, value: func(l analysis.Ceiling) string { return rate(l.MostMbps) }},
}

// carriesText is the load a router carries. Where none failed it may be more.
func carriesText(l analysis.Ceiling) string {
	if l.CarriesMbps.Known() && !l.FailsMbps.Known() {
		return "≥ " + rate(l.CarriesMbps)
	}
	return rate(l.CarriesMbps)
}

// failureWord says how it shows that a load is not carried.
func failureWord(flag string) string {
	switch flag {
	case result.FlagSaturated:
		return "shortfall"
	case result.FlagLossy:
		return "loss"
	}
	return ""
}

// ceilingsReading says what the table of ceilings holds.
const ceilingsReading = "Ceilings: carried is a load that is delivered in full, with at most 1 % of its segments sent again, or of its datagrams lost, alone on the machine; " +
	"the ceiling lies between that and the load at which it fails."

// ceilingsGrid is one row a router, clients, direction and profile.
func ceilingsGrid(list []analysis.Ceiling) grid {
	g := grid{Caption: "What each carries without loss, alone on the machine", Sortable: true, Head: []gridHead{
		{Name: "Router", Text: true}, {Name: "Direction", Text: true}, {Name: "Profile", Text: true}, {Name: "Clients"},
		{Name: "Carries", Unit: "Mbit/s"}, {Name: "Router CPU there", Unit: "% of a core"}, {Name: "Fails at", Unit: "Mbit/s"}, {Name: "By", Text: true},
		{Name: "Delivers at most", Unit: "Mbit/s"},
	}}
	for _, l := range list {
		carries := numberCell(l.CarriesMbps, digits4)
		if l.CarriesMbps.Known() && !l.FailsMbps.Known() {
			carries.Main = "≥ " + carries.Main
		}
		g.Rows = append(g.Rows, gridRow{Key: fmt.Sprintf("%s|%s|%s|%d", l.DUT, l.Direction, l.Profile, l.Clients), Cells: []gridCell{
			{Main: routerName(l.DUT), Sort: l.DUT, Text: true, Header: true}, textCell(l.Direction), textCell(l.Profile), countCell(l.Clients),
			carries, numberCell(l.CPUCorePct, digits3), numberCell(l.FailsMbps, digits4), textCell(failureWord(l.Why)), numberCell(l.MostMbps, digits4),
		}})
	}
	return g
}
