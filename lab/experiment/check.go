package experiment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Report notes one problem with a key's value.
type Report func(key, format string, args ...any)

// Check returns the problems that only show when keys are read together, and unknown names of devices. Parse has called
// it for a file; call it again after Set.
func (e *Experiment) Check() error {
	return e.check().Err()
}

// origin is where a key was set.
type origin struct {
	file string
	line int
}

// Blame returns an error that names a key with its file and line. It is for problems that only show when the experiment
// is to be run.
func (e *Experiment) Blame(key, problem string) *strict.Error { return e.problem(key, problem) }

func (e *Experiment) problem(key, text string) *strict.Error {
	place, ok := e.origins[key]
	if !ok {
		place = origin{e.file, 1} // the key is set nowhere
	}
	return &strict.Error{File: place.file, Line: place.line, Key: key, Problem: text}
}

func (e *Experiment) check() strict.Problems {
	var problems strict.Problems
	report := func(key, format string, args ...any) {
		problems = append(problems, e.problem(key, fmt.Sprintf(format, args...)))
	}
	for _, key := range []string{"duts", "clients"} {
		if !e.IsSet(key) && e.Applies(key) {
			report(key, "missing: an experiment needs it")
		}
	}
	e.checkMeaning(report)
	e.checkTopology(report)
	e.checkLink(report)
	e.checkBackend(report)
	if check := e.measure().Check; check != nil {
		check(e, report)
	}
	if e.Applies("traffic.kind") {
		e.checkTraffic(report)
		e.checkFrames(report)
		e.checkBeside(report)
		e.checkLoads(report)
	}
	e.checkClients(report)
	e.checkFamilies(report)
	e.checkGuests(report)
	e.checkSessions(report)
	e.checkDUTs(report)
	e.checkSize(report)
	e.checkUntil(report)
	for _, name := range e.CustomNames() {
		reportKey := func(key, format string, args ...any) { report(dutKey(name, key), format, args...) }
		e.Custom[name].checkFiles(reportKey)
		if !e.badDUTs[name] { // a refused key would also be reported as missing
			e.Custom[name].check(reportKey)
		}
	}
	if len(problems) == 0 && e.Applies("offered_mbps") { // these compute times from most other keys, which must be valid
		e.checkWarmups(report)
		e.checkDatagrams(report)
		e.checkVisits(report)
	}
	return problems
}

// checkMeaning refuses keys that are set and do not apply to the experiment's measure or mode.
func (e *Experiment) checkMeaning(report Report) {
	only := fmt.Sprintf("measure = %q", e.Measure)
	for _, f := range e.fields() {
		switch {
		case !e.IsSet(f.key) || e.Applies(f.key):
		case f.measure != "":
			report(f.key, "needs measure = %q", f.measure)
		default:
			report(f.key, "has no meaning with %s: %s", only, e.measure().Why)
		}
	}
	if e.measure().Alone && e.Mode != result.ModeSolo {
		report("mode", "%q does not go with %s: no clean router stands beside the device", e.Mode, only)
	}
	if e.Interleaved() && e.ProfileWindow > 0 {
		report("profile_window", "does not go with mode = %q: profiles compare two labs that stand at the same time", e.Mode)
	}
	if e.Seed != 0 && e.Mode != result.ModeInterleaved {
		report("seed", "needs mode = %q: other orders have no chance in them", result.ModeInterleaved)
	}
}

// checkTopology refuses a topology that lacks roles which the experiment's measure works with.
func (e *Experiment) checkTopology(report Report) {
	m := e.measure()
	missing := func(t Topology) []string {
		return slices.DeleteFunc(slices.Clone(m.Roles), func(role string) bool { return slices.Contains(t.Roles, role) })
	}
	var fit []string
	for _, t := range e.catalogue.Topologies {
		if len(missing(t)) == 0 {
			fit = append(fit, t.Name)
		}
	}
	for _, t := range e.catalogue.Topologies {
		if t.Name == e.Topology && len(missing(t)) > 0 {
			report("topology", "%q has no %s, and measure = %q works with one: choose %s", t.Name,
				strings.Join(missing(t), " and no "), m.Name, strict.Choice(fit))
		}
	}
}

// checkClients refuses more clients than their kind has; fewer are possible where clients send.
func (e *Experiment) checkClients(report Report) {
	measured := ""
	mostOf := func(k client.Kind) int { return k.MaxSending }
	m := e.measure()
	if m.Alone || m.Name == "" {
		measured = fmt.Sprintf(" with measure = %q", e.Measure)
	}
	if measured != "" && !slices.Contains(m.Uses, "traffic.kind") { // clients send nothing
		mostOf = func(k client.Kind) int {
			if !k.Leases {
				return client.MaxClients() // the measure's own check refuses them, because they cannot log in
			}
			return k.MaxClients
		}
	}
	device := Side{Client: e.Client.Kind, Clients: e.mostClients()}
	clean, blamed := e.cleanSide(device), "clients"
	if e.Beside.Clients > 0 {
		blamed = "beside.clients"
	}
	fits := func(key string, s Side) bool {
		most := mostOf(client.KindOf(s.Client))
		if s.Clients <= most {
			return true
		}
		report(key, "%d: clients of kind %q go up to %d%s; those of kind %q to %d", s.Clients, s.Client, most, measured,
			client.LargestKind(), client.MaxClients())
		return false
	}
	if fits("clients", device) {
		fits(blamed, clean)
	}
}

// checkLoads refuses loads of one client that make too small or too large a load for all clients together.
func (e *Experiment) checkLoads(report Report) {
	for _, n := range e.Clients {
		for _, share := range e.MbpsPerClient {
			if total := share * float64(n); total < MinOfferedMbps || total > MaxOfferedMbps {
				report("mbps_per_client", "%g with %s makes %g Mbit/s together: want %g to %d", share, words.Counted(n, "client"),
					total, MinOfferedMbps, MaxOfferedMbps)
				return
			}
		}
	}
}

// checkTraffic refuses what the chosen kind of traffic cannot do.
func (e *Experiment) checkTraffic(report Report) {
	if e.Traffic.Protocol == ProtocolUDP && slices.Contains(e.Profiles, result.Bulk) {
		needs := fmt.Sprintf("traffic.protocol = %q", ProtocolTCP)
		if traffic.KindOf(e.Traffic.Kind).Frames {
			needs = fmt.Sprintf("another traffic.kind than %q", e.Traffic.Kind)
		}
		report("profiles", "%q needs %s: GRO does not merge datagrams that are forwarded", result.Bulk, needs)
	}
	if e.Traffic.Protocol == ProtocolUDP && e.Traffic.ShortPerSecond > 0 {
		report("traffic.short_per_second", "needs protocol = %q: such connections are TCP's", ProtocolTCP)
	}
	if e.Traffic.ShortBytes > 0 && e.Traffic.ShortPerSecond == 0 {
		report("traffic.short_bytes", "needs traffic.short_per_second: without it there are no such connections")
	}
	if mbps := e.Traffic.ShortPerSecond * float64(e.Traffic.ShortBytes) * 8 / 1e6; mbps > MaxOfferedMbps {
		report("traffic.short_bytes", "%d: %g such connections a second are %.0f Mbit/s: want at most %d",
			e.Traffic.ShortBytes, e.Traffic.ShortPerSecond, mbps, MaxOfferedMbps)
	}
	kind := traffic.KindOf(e.Traffic.Kind)
	if e.Traffic.ShortPerSecond > 0 && !kind.Counts {
		report("traffic.short_per_second", "needs kind = %s: what %s delivers is counted at the router's link, with all else",
			strict.Choice(traffic.Kinds(func(k traffic.Kind) bool { return k.Counts })), kind.Name)
	}
	if slices.Contains(e.Directions, result.Both) && !kind.Both {
		report("directions", "%q needs kind = %s", result.Both,
			strict.Choice(traffic.Kinds(func(k traffic.Kind) bool { return k.Both })))
	}
	if e.Traffic.Pacing != PacingPaced && !kind.Timer && !traffic.KindOf(e.Beside.Traffic).Timer {
		report("traffic.pacing", "%q needs kind = %s: %s are always paced",
			e.Traffic.Pacing, strict.Choice(traffic.Kinds(func(k traffic.Kind) bool { return k.Timer })), kind.Name)
	}
}

// checkDUTs refuses unknown names in duts, and tables [dut.NAME] with a built-in device's name.
func (e *Experiment) checkDUTs(report Report) {
	known := e.catalogue.DUTs
	shipped := ShippedDUTs()
	for _, name := range e.CustomNames() {
		builtin := name == Clean || slices.Contains(known, name)
		if builtin && !slices.Contains(shipped, name) {
			report(dutKey(name, ""), "is built in: choose another name")
		}
	}
	if !e.measure().Alone && len(e.DUTs) == 1 && e.DUTs[0] == Clean && e.AABlocks == 0 {
		report("duts", "nothing to measure: %q alone means A/A blocks, and aa_blocks is 0", Clean)
	}
	if len(known) == 0 {
		return
	}
	names := slices.Concat(known, shipped, e.CustomNames(), []string{Clean})
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range e.DUTs {
		if name == AsIs && e.Backend.missingAddress() != "" {
			continue // checkHosts reports it
		}
		if name == AsIs && !e.Backend.AgentlessRouter() {
			report("duts", "%q is a router without an agent: give [backend.host.router] lan_address and wan_address",
				name)
		} else if name != AsIs && !slices.Contains(names, name) {
			report("duts", "unknown device %q%s; describe it in [dut.%s], or name one of %s", name, near.Suggestion(name, names),
				name,
				strings.Join(names, ", "))
		}
	}
}

// checkSize refuses plans so large that they can only be a mistake.
func (e *Experiment) checkSize(report Report) {
	blocks := len(e.DUTs) * e.Blocks
	if !e.measure().Alone {
		blocks += e.AABlocks
	}
	if n := len(e.settings()) * blocks; n > maxPlanBlocks {
		report("blocks", "the plan would have %d blocks, more than %d", n, maxPlanBlocks)
	}
}
