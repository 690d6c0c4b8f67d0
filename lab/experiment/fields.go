package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
	"github.com/gateweigh/gateweigh/textfile"
)

// Bounds of what an experiment may ask for: beyond them it is a typing mistake.
const (
	MaxSessions = 200_000
	// MaxAmongSessions is the largest number of clients of a device with a number of sessions (CustomDUT.Sessions). The
	// sessions of clients that never send have the addresses after theirs.
	MaxAmongSessions = 4000
	MaxClientHosts   = 3
	maxChurn         = 1000
	maxShortRate     = 50_000
	maxDivisor       = 1000
	defaultShort     = 16 << 10
	minPerSecond     = 0.1
	MinOfferedMbps   = 0.1
	MaxOfferedMbps   = 100_000
	MaxBlocks        = 1_000
	MinWindow        = 200 * time.Millisecond // shorter ones drown in the 4 ms of a scheduler tick
	maxWindow        = 10 * time.Minute
	defaultWindows   = 3
	// MinSpeed is the least speed of a router. The thread that takes the rest of the CPU's time begins and ends every
	// 100 µs; below a tenth, these switches would take much of what is left.
	MinSpeed = 0.1
	// DefaultProfileWindow is long enough for a few hundred samples of a clean router that uses a tenth of a core.
	DefaultProfileWindow = 10 * time.Second
	maxPlanBlocks        = 20_000
)

// Field is one key of the file outside [dut.NAME].
type Field = fieldOf[Experiment]

// fieldOf is one key of the file, with functions that set and get its value in an E: an experiment, a device or a host.
type fieldOf[E any] struct {
	key      string
	set      func(*E, any) error
	get      func(*E) any
	optional bool   // Encode leaves it out while it has no value
	measure  string // the measure that it belongs to; empty: it is shared
	meaning  string // with its unit, for the reference
}

// shared has every key outside [dut.NAME] that belongs to no single measure. The file, the command line, the reference
// and the suggestions for unknown keys all use this list and the measures' keys.
var shared = slices.Concat(general, linkFields, backendFields, slurmFields)

var general = []Field{
	field("name", name, func(e *Experiment) *string { return &e.Name }).
		means("part of the run folder's name; default: the file's name"),
	field("description", text, func(e *Experiment) *string { return &e.Description }).
		means("one line for reports"),
	catalogued("measure", Catalogue.MeasureNames, func(e *Experiment) *string { return &e.Measure }).
		means("what is measured"),
	catalogued("topology", Catalogue.topologyNames, func(e *Experiment) *string { return &e.Topology }).
		means("the hosts and links of each lab"),
	field("mode", strict.Word(result.ModeDuet, result.ModeSolo, result.ModeInterleaved),
		func(e *Experiment) *string { return &e.Mode }).
		means("`duet`: device and clean router at the same time; `solo`: both stand, loaded in turns; `interleaved`: one " +
			"lab stands at a time, in rounds of all devices and a clean router"),
	optional("seed", strict.Integer(0, maxSeed), func(e *Experiment) *int { return &e.Seed }).
		means("of the order of labs in the rounds of `mode = \"interleaved\"`; the same seed, the same order"),
	field("duts", List(name), func(e *Experiment) *[]string { return &e.DUTs }).
		means("devices: those of `gateweigh list`, or `[dut.NAME]` of this file; `clean` alone means A/A blocks only"),
	field("clients", List(strict.Integer(1, client.MaxClients())), func(e *Experiment) *[]int { return &e.Clients }).
		means("numbers of clients; how many a kind takes is checked: 250 of `macvlan` and `veth`"),
	optional("offered_mbps", List(strict.Within(MinOfferedMbps, MaxOfferedMbps, "a number of Mbit/s")),
		func(e *Experiment) *[]float64 { return &e.OfferedMbps }).
		means("loads, Mbit/s: payload of all clients together, shared evenly; with `traffic.kind = " +
			"\"frames\"` whole frames"),
	optional("mbps_per_client", List(share), func(e *Experiment) *[]float64 { return &e.MbpsPerClient }).
		means("loads of one client, Mbit/s: each adds one load of so much for every client"),
	optional("offered_kpps", List(strict.Within(minKpps, maxKpps, "a number of thousand frames a second")),
		func(e *Experiment) *[]float64 { return &e.OfferedKpps }).
		means("loads, thousand frames a second, at each of `frame_sizes`; needs `traffic.kind = \"frames\"`"),
	optional("loads_divided_by", strict.Within(1, maxDivisor, "what the loads were divided by,"),
		func(e *Experiment) *float64 { return &e.LoadsDividedBy }).
		means("what the loads of this file were divided by for an emulated CPU; 1: they are not to be divided"),
	optional("frame_sizes", List(frameSize), func(e *Experiment) *[]string { return &e.FrameSizes }).
		means("sizes of frames without FCS (RFC 2544's 64 are 60): bytes, a mix (`imix` is 7:4:1 of " +
			"60, 590, 1514), or a file"),
	field("directions", List(strict.Word(result.Up, result.Down, result.Both)),
		func(e *Experiment) *[]string { return &e.Directions }).
		means("`up`: clients send; `down`: the server sends; `both`: half of the load each way, two streams a client"),
	field("profiles", List(strict.Word(result.PerPacket, result.Bulk)),
		func(e *Experiment) *[]string { return &e.Profiles }).
		means("`per-packet`: the router handles each packet alone; `bulk`: receive aggregation on"),
	field("blocks", strict.Integer(1, MaxBlocks), func(e *Experiment) *int { return &e.Blocks }).
		means("how often the labs are rebuilt for each device and setting; even numbers put the " +
			"device in each lab equally often"),
	field("aa_blocks", strict.Integer(0, MaxBlocks), func(e *Experiment) *int { return &e.AABlocks }).
		means("blocks of two clean routers for each setting: the noise floor"),
	optional("until", precision, func(e *Experiment) *Precision { return &e.Until }).
		means("half-width of the interval of the judged figure with which a cell is exact enough, `\"±2 %\"`, and measured " +
			"no " +
			"more; `blocks` is then the most"),
	optional("at_most", Duration(minAtMost, maxAtMost), func(e *Experiment) *time.Duration { return &e.AtMost }).
		means("with `until`: when blocks have taken so long together, the run ends"),
	field("windows", strict.Integer(1, 1_000), func(e *Experiment) *int { return &e.Windows }).
		means("measurements of each load in a block"),
	field("window", Duration(MinWindow, maxWindow), func(e *Experiment) *time.Duration { return &e.Window }).
		means("length of one"),
	field("warmup", Duration(0, maxWindow), func(e *Experiment) *time.Duration { return &e.Warmup }).
		means("load before the first window, at least; a turn of all streams where that is longer"),
	field("redo", strict.Integer(0, 10), func(e *Experiment) *int { return &e.Redo }).
		means("how often a rejected trial is repeated at least, and a noisy one at most; 0: never"),
	field("profile_window", Duration(0, maxWindow), func(e *Experiment) *time.Duration { return &e.ProfileWindow }).
		means("length of one more window of each cell, in which perf records stacks"),
	field("client.kind", strict.Word(client.Kinds(nil)...), func(e *Experiment) *string { return &e.Client.Kind }).
		means("`macvlan`: own namespace, MAC and lease; `veth`: static addresses; `persona`: own MAC " +
			"and lease in one namespace, for thousands; `pppoe`: a persona in a PPPoE session, " +
			"beside personas at the clean router"),
	optional("client.churn", PerSecond(maxChurn, "0 for none", "guests a second"),
		func(e *Experiment) *float64 { return &e.Client.Churn }).
		means("guests a second that lease, log in, stay for two seconds, log out and leave while the " +
			"clients send; kind `persona`"),
	field("client.hosts", strict.Integer(1, MaxClientHosts), func(e *Experiment) *int { return &e.Client.Hosts }).
		means("client hosts that share the clients, behind one switch"),
	familyField,
	field("traffic.kind", strict.Word(traffic.Kinds(nil)...), func(e *Experiment) *string { return &e.Traffic.Kind }).
		means("`streams`: the lab's paced generator; `iperf3`: for clients with a namespace each; " +
			"`frames`: exact frames at an exact rate, whatever arrives"),
	field("traffic.protocol", strict.Word(ProtocolTCP, ProtocolUDP),
		func(e *Experiment) *string { return &e.Traffic.Protocol }).
		means("`udp`: datagrams of 1472 bytes (with iperf3 1448); not with profile `bulk`, nor with short connections"),
	field("traffic.burst_segments", strict.Integer(1, client.InitialWindow),
		func(e *Experiment) *int { return &e.Traffic.BurstSegments }).
		means("segments, datagrams or frames sent back to back"),
	field("traffic.pacing", strict.Word(PacingPaced, PacingBurst),
		func(e *Experiment) *string { return &e.Traffic.Pacing }).
		means("iperf3 uploads over TCP: `paced` by the kernel, `burst` by iperf3's timer"),
	optional("traffic.gaps", strict.Word(traffic.GapsScattered, traffic.GapsConstant, traffic.GapsPoisson,
		traffic.GapsCaptured), func(e *Experiment) *string { return &e.Traffic.Gaps }).
		means("frames: `constant`: bursts at equal distances; `scattered`: each at a random place of " +
			"its interval; `poisson`: exponential gaps; `captured`: those of the capture that " +
			"`frame_sizes` names"),
	optional("traffic.seed", strict.Integer(0, maxSeed), func(e *Experiment) *int { return &e.Traffic.Seed }).
		means("frames: of the order of sizes and of the gaps; the same seed, the same sequence"),
	optional("traffic.short_per_second", PerSecond(maxShortRate, "0 for none", "connections a second"),
		func(e *Experiment) *float64 { return &e.Traffic.ShortPerSecond }).
		means("connections a second opened beside the load, each for one answer"),
	optional("traffic.short_bytes", strict.Integer(1, short.MostBytes),
		func(e *Experiment) *int { return &e.Traffic.ShortBytes }).
		means("bytes of such an answer"),
	optional("router.speed", speed, func(e *Experiment) *float64 { return &e.Router.Speed }).
		means("share of its CPU that the router has"),
	optional("beside.client", strict.Word(client.Kinds(nil)...), func(e *Experiment) *string { return &e.Beside.Client }).
		means("the clean router's lab beside a device: kind of its clients; default: the device's"),
	optional("beside.traffic", strict.Word(traffic.Kinds(nil)...),
		func(e *Experiment) *string { return &e.Beside.Traffic }).
		means("kind of its traffic; default: the device's"),
	optional("beside.clients", strict.Integer(1, client.MaxClients()),
		func(e *Experiment) *int { return &e.Beside.Clients }).
		means("number of its clients, which carry the same total load; default: the device's"),
}

// ClientKeys are keys for the Uses of measures that have clients.
var ClientKeys = []string{"clients", "client.kind", "client.churn", "client.hosts"}

// FamilyKey is a key for the Uses of measures that can do with IPv6; analysis.Family is among their dimensions.
const FamilyKey = "family"

// tables are the keys that contain other keys.
var tables = []string{"client", "traffic", "router", "link", "beside", "backend", "slurm", "dut"}

// Keys lists every key outside [dut.NAME], in the order of the documentation: those that measures
// share, and then their own.
func (c Catalogue) Keys() []string { return keysOf(c.fields()) }

func keysOf[E any](fields []fieldOf[E]) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// field makes a key from its parser and a function that returns the pointer to its value.
func field[E, T any](key string, parse strict.Parser[T], pointer func(*E) *T) fieldOf[E] {
	return fieldOf[E]{
		key: key,
		set: func(e *E, v any) error {
			parsed, err := parse(v)
			if err == nil {
				*pointer(e) = parsed
			}
			return err
		},
		get: func(e *E) any { return *pointer(e) },
	}
}

// means returns the key with a meaning, for the reference.
func (f fieldOf[E]) means(meaning string) fieldOf[E] {
	f.meaning = meaning
	return f
}

// optional is field for a key that need not have a value.
func optional[T any](key string, parse strict.Parser[T], pointer func(*Experiment) *T) Field {
	f := field(key, parse, pointer)
	f.optional = true
	return f
}

// catalogued is field for a key that takes one of the names that known returns for the catalogue, or any name where
// that is none.
func catalogued(key string, known func(Catalogue) []string, pointer func(*Experiment) *string) Field {
	f := field(key, name, pointer)
	f.set = func(e *Experiment, v any) error {
		parse := name
		if names := known(e.catalogue); len(names) > 0 {
			parse = strict.Word(names...)
		}
		return field(key, parse, pointer).set(e, v)
	}
	return f
}

// read lists the keys of a file, which may be UTF-16. It turns Windows' ends of lines into \n, because a shell could
// not run scripts of devices with the others.
func read(file string, data []byte) ([]strict.Entry, *strict.Error) {
	data, err := textfile.Decode(data)
	if err != nil {
		return nil, &strict.Error{File: file, Line: 1, Problem: err.Error()}
	}
	return strict.Read(file, bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), allKeys)
}

// allKeys tells, in errors, where all keys are listed.
const allKeys = "docs/reference/experiment-keys.md lists all"

// apply sets every entry and returns all problems.
func (e *Experiment) apply(file string, entries []strict.Entry) strict.Problems {
	return strict.Assign(file, entries, func(en strict.Entry) (descend bool, err error) {
		if en.Row > 0 {
			return false, nil // no key takes an array of tables, which was refused as a whole
		}
		e.origins[en.Key()] = origin{file, en.Line}
		return e.assign(en.Path, en.Value)
	})
}

// assign sets one key. descend is false when the keys below it are not to be set, because the key is unknown or its
// value was read as a whole.
func (e *Experiment) assign(key toml.Key, value any) (descend bool, err error) {
	dotted := key.String()
	_, isTable := value.(map[string]any)
	for _, f := range e.fields() {
		if f.key == dotted {
			return false, f.set(e, value)
		}
	}
	switch {
	case slices.Contains(tables, dotted) && !isTable:
		return false, fmt.Errorf("must be a table: [%s]%s", dotted, near.Suggestion(dotted, e.catalogue.Keys()))
	case slices.Contains(tables, dotted):
		return true, nil
	case len(key) > 1 && key[0] == "backend" && key[1] == "host":
		return e.assignHost(key[2:], value)
	case key[0] == "dut":
		return e.assignDUT(key[1:], value)
	}
	if dotted == "experiments" {
		return false, errors.New("unknown key: a file with it is a campaign's: gateweigh campaign start FILE")
	}
	meant := near.Suggestion(dotted, append(e.catalogue.Keys(), tables...))
	if meant == "" {
		meant = ": " + allKeys
	}
	return false, fmt.Errorf("unknown key%s", meant)
}

// Set sets one key from the command line: Set("clients", "1,10"). Items of a list are separated by commas, keys in
// tables are dotted. It checks the value as in a file. Call Check once all keys are set, to check them together.
func (e *Experiment) Set(key, value string) error {
	place := origin{file: "--set"}
	path := toml.Key(strings.Split(key, "."))
	if _, err := e.assign(path, strict.Argument(value)); err != nil {
		return &strict.Error{File: place.file, Key: key, Problem: err.Error()}
	}
	e.origins[path.String()] = place
	e.sizesRead = e.sizesRead && path.String() != "frame_sizes"
	e.applyDefaults()
	return nil
}
