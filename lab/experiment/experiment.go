// Package experiment turns an experiment file into a plan: TOML in, a validated
// Experiment, and from it the ordered blocks and cells the runner measures.
// Keys are strict: an unknown one is an error with the nearest known key.
package experiment

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// Kinds of pacing, and protocols. Kinds of client and of traffic are those of packages
// client and traffic; modes, directions and profiles, which records name too, those of
// package result.
const (
	PacingPaced = "paced" // spread evenly by the sender's pacing rate
	PacingBurst = "burst" // iperf3's own token bucket
	ProtocolTCP = "tcp"
	ProtocolUDP = "udp"
)

// Clean is the name of the router without a device under test. It is the other
// side of every pair; listed among the duts it stands for A/A blocks only.
const Clean = "clean"

// Experiment is a validated experiment file. Its zero value is not usable: it
// comes from Load, Parse or Builtin, with every default filled in.
type Experiment struct {
	Name        string // default: the file's name
	Description string
	Measure     string // name of a measure; default: the catalogue's first
	Topology    string // of the labs, one of the catalogue's; default: defaultTopology
	// result.ModeDuet (default), result.ModeSolo, which is the only one where a device is alone, or
	// result.ModeInterleaved
	Mode        string
	Seed        int       // of the order of labs in interleaved rounds; default 0
	DUTs        []string  // names of built-in devices or of Custom ones
	Clients     []int     // 1 to what the kind takes
	OfferedMbps []float64 // TCP or UDP payload, or frames, all clients together
	// MbpsPerClient are loads of one client: each makes a load of so much for every client.
	MbpsPerClient []float64
	OfferedKpps   []float64 // thousand frames a second, all clients together; each makes a load of each size
	// LoadsDividedBy is what the loads above were divided by for an emulated CPU, in the experiment that a run keeps; 1:
	// not to be divided; 0 (default): ForEmulatedCPU does.
	LoadsDividedBy float64
	// of frames: bytes without FCS, names of mixes, names of files without their folders; none of other traffic
	FrameSizes []string
	Directions []string // result.Up (default), result.Down, result.Both
	Profiles   []string // result.PerPacket (default), result.Bulk

	Blocks   int           // labs rebuilt and sides swapped, per group; default 6
	AABlocks int           // A/A blocks per clients, direction and profile; default 2
	Windows  int           // measured per cell and block; default 3
	Window   time.Duration // length of one; default 1s
	Warmup   time.Duration // load before a cell's first window, at least: see WarmupOf; default 500ms
	Redo     int           // how often a rejected trial is repeated at least; default 2. See MostAttempts
	// Until is how exact a cell's judged figure has to be, so that it is measured no more; Blocks is then the most.
	// Default 0: all blocks are measured.
	Until  Precision
	AtMost time.Duration // with Until: bound of the time that blocks take together; default 0: none
	// ProfileWindow is the length of one more window of each cell, in which perf
	// samples stacks; default 0: none.
	ProfileWindow time.Duration

	Client  Client
	Traffic Traffic
	Router  Router
	Link    Link
	Beside  Beside
	Backend Backend
	Slurm   Slurm
	Custom  map[string]CustomDUT // devices described in the file itself

	own       map[string]any       // values of the measure's own keys
	files     map[string]sizesFile // of FrameSizes, by name
	badDUTs   map[string]bool      // devices of which a key was refused
	badHosts  bool                 // a key of [backend.host.NAME] was refused
	sizesRead bool                 // files is of FrameSizes as they are set
	badSizes  []string             // what is wrong with others
	catalogue Catalogue
	origins   map[string]origin // where each key was set, for error messages
	file      string
}

// Client says how clients are simulated.
type Client struct {
	Kind string // one of client.Kinds; default the first
	// Churn is guests a second that lease, log in, log out and leave while the clients
	// send; default 0. The kind has to take guests.
	Churn float64
	Hosts int // machines that share the clients, 1 (default) to MaxClientHosts
}

// Router says on what the metered hosts run.
type Router struct {
	// Speed is the share of their CPU that metered hosts have, MinSpeed to less than 1; 0 (default): all
	// of it. Hosts that are measured at the same time share it.
	Speed float64
}

// Traffic says what the clients send.
type Traffic struct {
	Kind          string // one of traffic.Kinds; default the first
	Protocol      string // ProtocolTCP (default) or ProtocolUDP
	BurstSegments int    // segments sent back to back; default traffic.DefaultBurst
	Pacing        string // PacingPaced (default) or PacingBurst
	// ShortPerSecond connections a second are opened beside the load, each for one
	// answer of ShortBytes; default 0, and 16 KiB.
	ShortPerSecond float64
	ShortBytes     int
	Gaps           string // between frames: traffic.GapsScattered (default) or its like; empty of other traffic
	Seed           int    // of the frames' order and gaps
	// Frames are the sizes of a block's frames, one of FrameSizes; no key of the file. Nil: the block has none.
	Frames *frames.Source
}

// maxFileBytes bounds what Load reads: an experiment is a page of text.
const maxFileBytes = 1 << 20

//go:embed builtin/*.toml
var builtinFiles embed.FS

// Load reads and validates an experiment file. Of a bad file the error is
// strict.Problems, or a *strict.Error where it is no TOML.
func (c Catalogue) Load(path string) (*Experiment, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading experiment: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading experiment: %w", err)
	}
	if len(data) > maxFileBytes {
		return nil, &strict.Error{File: path, Line: 1, Problem: "larger than 1 MiB: not an experiment file"}
	}
	return c.Parse(path, data)
}

// Parse is Load on bytes; file is the name errors carry and the default of the
// experiment's own name.
func (c Catalogue) Parse(file string, data []byte) (*Experiment, error) {
	entries, bad := read(file, data)
	if bad != nil {
		return nil, bad
	}
	e := newExperiment(c, file)
	problems := e.apply(file, entries)
	e.applyDefaults()
	if err := append(problems, e.check()...).Err(); err != nil {
		return nil, err
	}
	return e, nil
}

// Builtin returns one of the experiments that ship with the lab. An unknown
// name is an error that lists the known ones.
func (c Catalogue) Builtin(name string) (*Experiment, error) {
	data, err := builtinFiles.ReadFile("builtin/" + name + ".toml")
	if err != nil {
		known := builtinNames()
		return nil, fmt.Errorf(
			"unknown experiment %q%s; known are %s", name, near.Suggestion(name, known), strings.Join(known, ", "))
	}
	return c.Parse(name+".toml", data)
}

// Builtins returns all shipped experiments, the default one ("quick") first.
func (c Catalogue) Builtins() []*Experiment {
	var all []*Experiment
	for _, name := range builtinNames() {
		e, err := c.Builtin(name)
		if err != nil {
			panic(fmt.Sprintf("embedded experiment: %v", err)) // a test loads each of them
		}
		all = append(all, e)
	}
	return all
}

// builtinNames lists the embedded files, "quick" first, the others by name.
func builtinNames() []string {
	files, err := builtinFiles.ReadDir("builtin")
	if err != nil {
		panic(fmt.Sprintf("embedded experiments: %v", err)) // the folder is compiled in
	}
	names := []string{"quick"}
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".toml"); name != "quick" {
			names = append(names, name)
		}
	}
	return names
}

// ShippedDUT returns a device described in an embedded experiment of the same name,
// so that any experiment may list it in its duts without repeating the table.
func ShippedDUT(name string) (CustomDUT, bool) {
	if !slices.Contains(shipped(), name) {
		return CustomDUT{}, false
	}
	return described(name)
}

// described reads the embedded experiment of a name for the device that it may describe.
func described(name string) (CustomDUT, bool) {
	data, err := builtinFiles.ReadFile("builtin/" + name + ".toml")
	if err != nil {
		return CustomDUT{}, false
	}
	entries, bad := read(name+".toml", data)
	if bad != nil {
		return CustomDUT{}, false
	}
	e := newExperiment(Catalogue{}, name)
	e.apply(name+".toml", entries)
	d, ok := e.Custom[name]
	return d, ok
}

// ShippedDUTs names the devices that are described in TOML but ship with the
// lab: usable in any experiment without a table of their own.
func ShippedDUTs() []string { return slices.Clone(shipped()) }

// shipped reads all embedded experiments once: each check of an experiment asks for these names.
var shipped = sync.OnceValue(func() (names []string) {
	for _, name := range builtinNames() {
		if _, ok := described(name); ok {
			names = append(names, name)
		}
	}
	return names
})

// defaultTopology is study 1's network: clients, a router, a server.
const defaultTopology = "portal"

// newExperiment holds every default; file sets the default name.
func newExperiment(c Catalogue, file string) *Experiment {
	return &Experiment{
		Name:       notInNames.ReplaceAllString(strings.TrimSuffix(filepath.Base(file), ".toml"), "-"),
		Measure:    c.measure("").Name,
		Topology:   defaultTopology,
		Directions: []string{result.Up},
		Profiles:   []string{result.PerPacket},
		Blocks:     6,
		AABlocks:   2,
		Window:     time.Second,
		Warmup:     500 * time.Millisecond,
		Redo:       2,
		Client:     Client{Kind: client.Kinds(nil)[0], Hosts: 1},
		Traffic: Traffic{
			Kind: traffic.Kinds(nil)[0], Protocol: ProtocolTCP, BurstSegments: traffic.DefaultBurst, Pacing: PacingPaced},
		Custom:    map[string]CustomDUT{},
		badDUTs:   map[string]bool{},
		own:       map[string]any{},
		files:     map[string]sizesFile{},
		catalogue: c,
		origins:   map[string]origin{},
		file:      file,
	}
}

// notInNames is what a name cannot hold.
var notInNames = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// Encode writes the experiment as TOML: every key that has a meaning with its measure, with
// defaults spelt out and shipped devices included. Parse reads it back to the same experiment.
func (e *Experiment) Encode() []byte {
	var b bytes.Buffer
	write := func(v any) {
		enc := toml.NewEncoder(&b)
		enc.Indent = ""
		if err := enc.Encode(v); err != nil {
			panic(fmt.Sprintf("encoding experiment %s: %v", e.Name, err)) // only values that were decoded before
		}
	}
	for _, table := range append([]string{""}, tables...) {
		head := table != ""
		for _, f := range e.fields() {
			in, name, inTable := strings.Cut(f.key, ".")
			if !inTable {
				in, name = "", f.key
			}
			v := f.get(e)
			if f.key == "frame_sizes" && len(e.files) > 0 {
				v = e.encodedSizes()
			}
			if in != table || !e.Means(f.key) || f.optional && reflect.ValueOf(v).IsZero() {
				continue
			}
			if head {
				fmt.Fprintf(&b, "\n[%s]\n", table)
				head = false
			}
			write(map[string]any{name: v})
		}
	}
	for _, host := range slices.Sorted(maps.Keys(e.Backend.Hosts)) {
		fmt.Fprintf(&b, "\n[%s]\n", HostKey(host, ""))
		write(e.Backend.Hosts[host])
	}
	if len(e.Custom) > 0 {
		b.WriteString("\n")
		write(map[string]any{"dut": e.Custom})
	}
	return b.Bytes()
}

// CustomNames lists the devices described in TOML, by name.
func (e *Experiment) CustomNames() []string {
	return slices.Sorted(maps.Keys(e.Custom))
}
