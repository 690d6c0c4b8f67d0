package experiment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// Check verifies what several keys say together, and the names of devices:
// known are the built-in ones; with none given names are not checked. Parse has
// done it for a file; call it again after Set.
func (e *Experiment) Check(known []string) error {
	if problems := e.check(known); len(problems) > 0 {
		return join(problems)
	}
	return nil
}

// Blame makes an error of a problem with a key's value that only shows when the
// experiment is to be run.
func (e *Experiment) Blame(key, problem string) error {
	at, ok := e.origins[key]
	if !ok {
		at = origin{e.file, 1}
	}
	return &Error{File: at.file, Line: at.line, Key: key, Problem: problem}
}

func (e *Experiment) check(known []string) []*Error {
	var problems []*Error
	report := func(key, format string, args ...any) {
		at, ok := e.origins[key]
		if !ok {
			at = origin{e.file, 1} // set nowhere: the file as a whole is at fault
		}
		problems = append(problems, &Error{File: at.file, Line: at.line, Key: key, Problem: fmt.Sprintf(format, args...)})
	}
	needed := []string{"duts", "clients"}
	if e.Measure == result.MeasureLogins {
		e.checkLogins(report)
	} else {
		if _, set := e.origins["mbps_per_client"]; !set {
			needed = append(needed, "offered_mbps")
		}
		e.checkCost(report)
		e.checkTraffic(report)
		e.checkBeside(report)
		e.checkLoads(report)
	}
	for _, key := range needed {
		if _, set := e.origins[key]; !set {
			report(key, "missing: an experiment needs it")
		}
	}
	e.checkClients(report)
	e.checkGuests(report)
	e.checkSessions(report)
	e.checkDUTs(known, report)
	e.checkSize(report)
	for _, name := range e.CustomNames() {
		d := e.Custom[name]
		d.check(func(key, problem string) { report(dutKey(name, key), "%s", problem) })
	}
	if len(problems) == 0 && e.Measure == result.MeasureCost { // it follows from most other keys
		e.checkTurns(report)
		e.checkDatagrams(report)
	}
	return problems
}

// checkClients refuses more clients than there can be of their kind, and for what
// is measured of them.
func (e *Experiment) checkClients(report func(key, format string, args ...any)) {
	measured := ""
	mostOf := func(k client.Kind) int { return k.MostSending }
	if e.Measure == result.MeasureLogins {
		measured = fmt.Sprintf(" with measure = %q", result.MeasureLogins)
		mostOf = func(k client.Kind) int {
			if !k.Leases {
				return client.Most() // checkLogins refuses them
			}
			return k.Most
		}
	}
	device := Side{Client: e.Client.Kind, Clients: slices.Max(slices.Concat(e.Clients, []int{0}))}
	clean, blamed := e.besideOf(device), "clients"
	if e.Beside.Clients > 0 {
		blamed = "beside.clients"
	}
	fits := func(key string, s Side) bool {
		most := mostOf(client.KindOf(s.Client))
		if s.Clients <= most {
			return true
		}
		report(key, "%d: clients of kind %q go up to %d%s; those of kind %q to %d", s.Clients, s.Client, most, measured, client.Largest(), client.Most())
		return false
	}
	if fits("clients", device) {
		fits(blamed, clean)
	}
}

// checkLoads refuses loads by the client that make none the lab can offer.
func (e *Experiment) checkLoads(report func(key, format string, args ...any)) {
	for _, n := range e.Clients {
		for _, share := range e.MbpsPerClient {
			if total := share * float64(n); total < MinOfferedMbps || total > MaxOfferedMbps {
				report("mbps_per_client", "%g with %d clients makes %g Mbit/s together: want %g to %d", share, n, total, MinOfferedMbps, MaxOfferedMbps)
				return
			}
		}
	}
}

// checkTraffic refuses what the chosen generator cannot do.
func (e *Experiment) checkTraffic(report func(key, format string, args ...any)) {
	if e.Traffic.Protocol == ProtocolUDP && slices.Contains(e.Profiles, result.Bulk) {
		report("profiles", "%q needs protocol = %q: links gather no datagrams that are forwarded", result.Bulk, ProtocolTCP)
	}
	if e.Traffic.Protocol == ProtocolUDP && e.Traffic.ShortPerSecond > 0 {
		report("traffic.short_per_second", "needs protocol = %q: such connections are TCP's", ProtocolTCP)
	}
	if e.Traffic.ShortBytes > 0 && e.Traffic.ShortPerSecond == 0 {
		report("traffic.short_bytes", "needs traffic.short_per_second: without it there are no such connections")
	}
	if mbps := e.Traffic.ShortPerSecond * float64(e.Traffic.ShortBytes) * 8 / 1e6; mbps > MaxOfferedMbps {
		report("traffic.short_bytes", "%d: %g such connections a second are %.0f Mbit/s: want at most %d", e.Traffic.ShortBytes, e.Traffic.ShortPerSecond, mbps, MaxOfferedMbps)
	}
	kind := traffic.KindOf(e.Traffic.Kind)
	if e.Traffic.ShortPerSecond > 0 && !kind.Counts {
		report("traffic.short_per_second", "needs kind = %s: what %s delivers is counted at the router's link, with all else",
			quoted(traffic.Kinds(func(k traffic.Kind) bool { return k.Counts })), kind.Name)
	}
	if slices.Contains(e.Directions, result.Both) && !kind.Both {
		report("directions", "%q needs kind = %s", result.Both, quoted(traffic.Kinds(func(k traffic.Kind) bool { return k.Both })))
	}
	if e.Traffic.Pacing != PacingPaced && !kind.Timer && !traffic.KindOf(e.Beside.Traffic).Timer {
		report("traffic.pacing", "%q needs kind = %s: %s are always paced",
			e.Traffic.Pacing, quoted(traffic.Kinds(func(k traffic.Kind) bool { return k.Timer })), kind.Name)
	}
}

// quoted lists names of kinds.
func quoted(names []string) string { return `"` + strings.Join(names, `" or "`) + `"` }

// checkDUTs resolves the names in duts and guards the names of tables.
func (e *Experiment) checkDUTs(known []string, report func(key, format string, args ...any)) {
	shipped := ShippedDUTs()
	for _, name := range e.CustomNames() {
		builtin := name == Clean || slices.Contains(known, name)
		if builtin && !slices.Contains(shipped, name) {
			report(dutKey(name, ""), "is built in: choose another name")
		}
	}
	if e.Measure == result.MeasureCost && len(e.DUTs) == 1 && e.DUTs[0] == Clean && e.AABlocks == 0 {
		report("duts", "nothing to measure: %q alone means A/A blocks, and aa_blocks is 0", Clean)
	}
	if len(known) == 0 {
		return
	}
	names := slices.Concat(known, shipped, e.CustomNames(), []string{Clean})
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range e.DUTs {
		if !slices.Contains(names, name) {
			report("duts", "unknown device %q: known are %s, or describe it in [dut.%s]%s", name, strings.Join(names, ", "), name, hint(name, names))
		}
	}
}

// checkSize refuses plans nobody can mean.
func (e *Experiment) checkSize(report func(key, format string, args ...any)) {
	groups := len(e.Clients) * len(e.Directions) * len(e.Profiles)
	n := groups * (len(e.DUTs)*e.Blocks + e.AABlocks)
	if e.Measure == result.MeasureLogins {
		n = len(e.Clients) * len(e.LoginRates) * len(e.DUTs) * e.Blocks
	}
	if n > maxPlanBlocks {
		report("blocks", "the plan would have %d blocks, more than %d", n, maxPlanBlocks)
	}
}
