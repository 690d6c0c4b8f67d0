package experiment

import (
	"fmt"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
)

// Bounds of what an experiment may ask for: beyond them it is a typing mistake.
const (
	MaxSessions = 200_000
	// MaxAmongSessions is how many clients there can be where a device is filled with
	// sessions: those that never send have the addresses beyond.
	MaxAmongSessions = 4000
	MaxClientHosts   = 3
	maxChurn         = 1000
	maxShortRate     = 50_000
	defaultShort     = 16 << 10
	minLoginRate     = 0.1
	MaxLoginRate     = 10_000
	MinOfferedMbps   = 0.1
	MaxOfferedMbps   = 100_000
	MaxBlocks        = 1_000
	MinWindow        = 200 * time.Millisecond // shorter ones drown in the 4 ms of a scheduler tick
	maxWindow        = 10 * time.Minute
	defaultWindows   = 3
	// DefaultProfileWindow makes a few hundred samples of a clean router that
	// uses a tenth of a core.
	DefaultProfileWindow = 10 * time.Second
	maxPlanBlocks        = 20_000
)

// field is one key of the file and how its value gets into the experiment.
type field struct {
	key string
	set func(*Experiment, any) error
}

// fields is every key outside [dut.NAME]. It is the only list of them: the file,
// the command line and the suggestions for unknown keys all read it.
var fields = []field{
	{"name", into(name, func(e *Experiment) *string { return &e.Name })},
	{"description", into(text, func(e *Experiment) *string { return &e.Description })},
	{"measure", into(word(result.MeasureCost, result.MeasureLogins), func(e *Experiment) *string { return &e.Measure })},
	{"mode", into(word(result.ModeDuet, result.ModeSolo), func(e *Experiment) *string { return &e.Mode })},
	{"duts", into(list(name), func(e *Experiment) *[]string { return &e.DUTs })},
	{"clients", into(list(integer(1, client.Most())), func(e *Experiment) *[]int { return &e.Clients })},
	{"offered_mbps", into(list(rate), func(e *Experiment) *[]float64 { return &e.OfferedMbps })},
	{"mbps_per_client", into(list(share), func(e *Experiment) *[]float64 { return &e.MbpsPerClient })},
	{"directions", into(list(word(result.Up, result.Down, result.Both)), func(e *Experiment) *[]string { return &e.Directions })},
	{"profiles", into(list(word(result.PerPacket, result.Bulk)), func(e *Experiment) *[]string { return &e.Profiles })},
	{"login_rates", into(list(loginRate), func(e *Experiment) *[]float64 { return &e.LoginRates })},
	{"blocks", into(integer(1, MaxBlocks), func(e *Experiment) *int { return &e.Blocks })},
	{"aa_blocks", into(integer(0, MaxBlocks), func(e *Experiment) *int { return &e.AABlocks })},
	{"windows", into(integer(1, 1_000), func(e *Experiment) *int { return &e.Windows })},
	{"window", into(duration(MinWindow, maxWindow), func(e *Experiment) *time.Duration { return &e.Window })},
	{"warmup", into(duration(0, maxWindow), func(e *Experiment) *time.Duration { return &e.Warmup })},
	{"redo", into(integer(0, 10), func(e *Experiment) *int { return &e.Redo })},
	{"profile_window", into(duration(0, maxWindow), func(e *Experiment) *time.Duration { return &e.ProfileWindow })},
	{"client.kind", into(word(client.Kinds(nil)...), func(e *Experiment) *string { return &e.Client.Kind })},
	{"client.churn", into(churn, func(e *Experiment) *float64 { return &e.Client.Churn })},
	{"client.hosts", into(integer(1, MaxClientHosts), func(e *Experiment) *int { return &e.Client.Hosts })},
	{"traffic.kind", into(word(traffic.Kinds(nil)...), func(e *Experiment) *string { return &e.Traffic.Kind })},
	{"traffic.protocol", into(word(ProtocolTCP, ProtocolUDP), func(e *Experiment) *string { return &e.Traffic.Protocol })},
	{"traffic.burst_segments", into(integer(1, client.InitialWindow), func(e *Experiment) *int { return &e.Traffic.BurstSegments })},
	{"traffic.short_per_second", into(shortRate, func(e *Experiment) *float64 { return &e.Traffic.ShortPerSecond })},
	{"traffic.short_bytes", into(integer(1, short.MostBytes), func(e *Experiment) *int { return &e.Traffic.ShortBytes })},
	{"traffic.pacing", into(word(PacingPaced, PacingBurst), func(e *Experiment) *string { return &e.Traffic.Pacing })},
	{"beside.client", into(word(client.Kinds(nil)...), func(e *Experiment) *string { return &e.Beside.Client })},
	{"beside.traffic", into(word(traffic.Kinds(nil)...), func(e *Experiment) *string { return &e.Beside.Traffic })},
	{"beside.clients", into(integer(1, client.Most()), func(e *Experiment) *int { return &e.Beside.Clients })},
}

// tables are the keys that hold other keys.
var tables = []string{"client", "traffic", "beside", "dut"}

// Keys lists every key outside [dut.NAME], in the order of the documentation.
func Keys() []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// into makes a setter of a parser and the place its result goes to.
func into[T any](parse parser[T], place func(*Experiment) *T) func(*Experiment, any) error {
	return func(e *Experiment, v any) error {
		parsed, err := parse(v)
		if err == nil {
			*place(e) = parsed
		}
		return err
	}
}

// apply sets every entry and returns the problems met, all of them.
func (e *Experiment) apply(entries []entry) []*Error {
	var problems []*Error
	var skip string // an unknown table: its keys need no messages of their own
	for _, en := range entries {
		key := en.key.String()
		if skip != "" && strings.HasPrefix(key, skip) {
			continue
		}
		e.origins[key] = en.origin
		descend, err := e.assign(en.key, en.value)
		if err != nil {
			problems = append(problems, &Error{File: en.file, Line: en.line, Key: key, Problem: err.Error()})
		}
		if !descend {
			skip = key + "."
		}
	}
	return problems
}

// assign sets one key. descend is false when the keys below it are of no
// interest: it is unknown, or it was taken as a whole.
func (e *Experiment) assign(key toml.Key, value any) (descend bool, err error) {
	dotted := key.String()
	_, isTable := value.(map[string]any)
	for _, f := range fields {
		if f.key == dotted {
			return false, f.set(e, value)
		}
	}
	for _, t := range tables {
		if t == dotted {
			if !isTable {
				return false, fmt.Errorf("must be a table: [%s]", dotted)
			}
			return true, nil
		}
	}
	if key[0] == "dut" {
		return e.assignDUT(key[1:], value)
	}
	return false, fmt.Errorf("unknown key%s", hint(dotted, append(Keys(), tables...)))
}

// Set overrides one key from the command line: Set("clients", "1,10"). Lists are
// separated by commas, keys in tables are dotted. It checks the value as in a
// file; call Check when all overrides are set, for what two keys say together.
func (e *Experiment) Set(key, value string) error {
	at := origin{file: "--set"}
	path := toml.Key(strings.Split(key, "."))
	if _, err := e.assign(path, argument(value)); err != nil {
		return &Error{File: at.file, Key: key, Problem: err.Error()}
	}
	e.origins[path.String()] = at
	e.settle()
	e.adoptBuiltinDUTs()
	return nil
}
