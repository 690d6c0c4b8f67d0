// Package experiment reads an experiment file (TOML), checks it, and makes the plan that the runner carries out: blocks
// in their order. An unknown key is an error that suggests the nearest known one.
//
// Words of its files: a device (DUT) is the gateway under test. A clean router only forwards; it is the other side of
// each comparison. A lab is one network of clients, router and server. A pair is a window, one measurement, of the
// device and one of the clean router. In mode duet both run at the same time in two labs. A block is one building of
// the labs with all windows measured in it; in an A/A block both sides are clean routers, which shows the noise. A cell
// is one combination of an experiment's lists, such as device, clients and load; each is a dimension. A measure is the
// question that an experiment asks. A guest is a client that comes and goes during a measurement.
package experiment

import (
	"bytes"
	"embed"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/textfile"
)

// Kinds of pacing, and protocols. Package client has the kinds of client, traffic those of traffic, and result modes,
// directions and packet profiles, because records have them too.
const (
	PacingPaced = "paced" // spread evenly by the sender's pacing rate
	PacingBurst = "burst" // iperf3's own token bucket
	ProtocolTCP = "tcp"
	ProtocolUDP = "udp"
)

// Clean is the name of the clean router. As the only one of duts it asks for A/A blocks only.
const Clean = "clean"

// Experiment is an experiment file with every default filled in. Load, Parse and Builtin make one; the zero value is
// not usable.
type Experiment struct {
	Name        string // default: the file's name
	Description string
	Measure     string // name of a measure; default: the catalogue's first
	Topology    string // of the labs, one of the catalogue's; default: defaultTopology
	// Mode is result.ModeDuet (default), result.ModeSolo or result.ModeInterleaved. Measures without a clean router have
	// ModeSolo only.
	Mode        string
	Seed        int       // of the order of labs in interleaved rounds; default 0
	DUTs        []string  // names of built-in devices or of Custom ones
	Clients     []int     // 1 to what the kind takes
	OfferedMbps []float64 // TCP or UDP payload, or frames, all clients together
	// MbpsPerClient are loads of one client: each adds a load of that size times the number of clients.
	MbpsPerClient []float64
	OfferedKpps   []float64 // thousand frames a second, all clients together; each is a load at each of FrameSizes
	// LoadsDividedBy is what the loads above have been divided by for an emulated CPU. 1: they must not be divided; 0
	// (default): they have not been.
	LoadsDividedBy float64
	// FrameSizes are, for traffic of frames, bytes without FCS, names of mixes, or names of files without their folders.
	FrameSizes []string
	// Families of the clients and their traffic; default nil: IPv4, in cells without the dimension.
	Families   []client.Family
	Directions []string // result.Up (default), result.Down, result.Both
	Profiles   []string // result.PerPacket (default), result.Bulk

	Blocks   int           // of each group, a device at one setting; default 6
	AABlocks int           // A/A blocks of each setting; default 2
	Windows  int           // of each cell in a block; default 3
	Window   time.Duration // length of a window; default 1s
	Warmup   time.Duration // least time under load before a cell's first window: see WarmupOf; default 500ms
	Redo     int           // how often a rejected trial is repeated at least (see MaxAttempts); default 2
	// Until ends the measuring of a cell once the interval of its figure is this narrow; Blocks is then the most. Default
	// 0: all blocks are measured.
	Until  Precision
	AtMost time.Duration // with Until: the longest time that blocks take together; default 0: no limit
	// ProfileWindow is the length of an additional window of each cell, in which perf samples stacks; default 0: none.
	ProfileWindow time.Duration

	Client  Client
	Traffic Traffic
	Router  Router
	Link    Link
	Beside  Beside
	Backend Backend
	Slurm   Slurm
	Custom  map[string]CustomDUT // devices described in the file itself

	measureValues map[string]any       // values of the measure's own keys
	files         map[string]sizesFile // the files that FrameSizes names, by name
	badDUTs       map[string]bool      // devices with a key that was refused
	badHosts      bool                 // a key of [backend.host.NAME] was refused
	sizesRead     bool                 // files and badSizes fit FrameSizes as it is now
	badSizes      []string             // what is wrong with files of FrameSizes that cannot be used
	catalogue     Catalogue
	origins       map[string]origin // where each key was set, for error messages
	file          string
}

// Client tells how clients are simulated.
type Client struct {
	Kind string // one of client.Kinds; default the first
	// Churn is the number of guests a second that lease, log in, log out and leave while the clients send; default 0. The
	// kind must support guests.
	Churn float64
	Hosts int // machines that share the clients, 1 (default) to MaxClientHosts
}

// Router tells how fast the metered hosts are.
type Router struct {
	// Speed is the share of their CPU that metered hosts have, from MinSpeed to less than 1; 0 (default): all of it. Hosts
	// that are measured at the same time have that share together.
	Speed float64
}

// Traffic tells what the clients send.
type Traffic struct {
	Kind          string // one of traffic.Kinds; default the first
	Protocol      string // ProtocolTCP (default) or ProtocolUDP
	BurstSegments int    // segments sent back to back; default traffic.DefaultBurst
	Pacing        string // PacingPaced (default) or PacingBurst
	// ShortPerSecond is the number of connections a second that are opened beside the load (default 0), each for one
	// answer of ShortBytes (default 16 KiB).
	ShortPerSecond float64
	ShortBytes     int
	Gaps           string // between frames: traffic.GapsScattered (default) or its like; empty of other traffic
	Seed           int    // of the frames' order and gaps
	// Frames has the sizes of a block's frames, which are one of FrameSizes. It is no key of the file. Nil: the block
	// sends other traffic.
	Frames *frames.Source
}

// maxFileBytes is the largest file that Load reads; an experiment is a page of text.
const maxFileBytes = 1 << 20

//go:embed builtin/*.toml
var builtinFiles embed.FS

// Load reads and checks an experiment file. The error for a file with mistakes is strict.Problems, or a *strict.Error
// where it is no TOML.
func (c Catalogue) Load(path string) (*Experiment, error) {
	data, err := textfile.ReadOnce(path, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("reading experiment: %w", err)
	}
	return c.Parse(path, data)
}

// Parse is Load for a file's content. Errors name file, which is also the default of the experiment's name.
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

// Builtin returns the built-in experiment of that name. The error for an unknown name lists the known ones.
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

// ShippedDUT returns the device that the built-in experiment of the same name describes. Any experiment can name it in
// duts without the table [dut.NAME].
func ShippedDUT(name string) (CustomDUT, bool) {
	if !slices.Contains(shipped(), name) {
		return CustomDUT{}, false
	}
	return readShipped(name)
}

// readShipped returns the device that the built-in experiment of the same name describes; false where it describes
// none.
func readShipped(name string) (CustomDUT, bool) {
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

// ShippedDUTs lists the devices that built-in experiments describe: see ShippedDUT.
func ShippedDUTs() []string { return slices.Clone(shipped()) }

// shipped is ShippedDUTs; it reads the embedded experiments only once, because every check of an experiment needs it.
var shipped = sync.OnceValue(func() (names []string) {
	for _, name := range builtinNames() {
		if _, ok := readShipped(name); ok {
			names = append(names, name)
		}
	}
	return names
})

// defaultTopology is study 1's network: clients, a router, a server.
const defaultTopology = "portal"

// newExperiment returns an experiment with every default that does not depend on other keys.
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
		Custom:        map[string]CustomDUT{},
		badDUTs:       map[string]bool{},
		measureValues: map[string]any{},
		files:         map[string]sizesFile{},
		catalogue:     c,
		origins:       map[string]origin{},
		file:          file,
	}
}

// notInNames matches characters that names cannot have.
var notInNames = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// Encode returns the experiment as TOML, with every key that applies to its measure, defaults included, and with the
// shipped devices that it names. Parse makes the same experiment of it.
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
			if in != table || !e.Applies(f.key) || f.optional && reflect.ValueOf(v).IsZero() {
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
