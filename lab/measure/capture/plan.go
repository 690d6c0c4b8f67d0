package capture

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Bounds and defaults of the measure's keys. A value beyond a bound is taken for a typing mistake.
const (
	maxFrames      = 1_000_000_000
	maxSnap        = 262_144   // bytes; tcpdump's limit
	maxBufferKiB   = 2<<20 - 1 // KiB
	maxPrograms    = 64
	maxBackground  = 90 // percent
	leastFrames    = 10 // of a window
	defaultBurst   = 8  // frames
	defaultWindow  = 2 * time.Second
	maxTrial       = 10 * time.Minute
	withoutFilter  = "none"
	defaultRouters = "gateway-capture"
	topologyTap    = "tap"
)

// parameter is a key that lists values of one setting of the capturing. If the key is set, the setting is a dimension
// of the cells.
type parameter struct {
	key       string
	dimension result.Dimension
	field     experiment.Field
	values    func(*experiment.Experiment) []any
	device    bool // a setting of the capture programs; otherwise of their host
}

// newParameter returns a parameter whose values are parsed by item.
func newParameter[T comparable](
	key string, d result.Dimension, item strict.Parser[T], device bool, meaning string) parameter {
	k := experiment.Key[[]T]{Name: key, Parse: experiment.List(item), Meaning: meaning}
	return parameter{key, d, k.Optional(), func(e *experiment.Experiment) (list []any) {
		for _, v := range k.Value(e) {
			list = append(list, v)
		}
		return list
	}, device}
}

// parameters are in the order of their loops: the last one changes fastest.
var parameters = []parameter{
	newParameter("cpus", CPUs, strict.Integer(1, 2), true,
		"with 2, the programs have a CPU that the polling threads do not use"),
	newParameter("background_pct", result.BackgroundPct, strict.Within(0, maxBackground, "percent of the host's CPU"),
		false,
		"share of the capture host's CPU that other work of ordinary priority asks for, per cent"),
	newParameter("programs", Programs, strict.Integer(1, maxPrograms), true,
		"programs that capture the same frames at the same time"),
	newParameter("works", Work, strict.Word(dut.WorkNone, dut.WorkCopy, dut.WorkGzip), true,
		"what a program does with each frame"),
	newParameter("filters", Filter, strict.Word(filterNames()...), true,
		"what programs look for: `udp`, or an expression with 40 addresses; all frames of the lab match"),
	newParameter("buffers_kib", BufferKiB, strict.Integer(0, maxBufferKiB), true,
		"the kernel's buffer for each program, KiB; 0: the program's own"),
	newParameter("snap_lengths", SnapLength, strict.Integer(0, maxSnap), true,
		"bytes that are kept of each frame; 0: all"),
}

// filterNames lists the values that the key filters may have: "none" and the names of dut.Filters.
func filterNames() []string {
	return append([]string{withoutFilter}, slices.Sorted(maps.Keys(dut.Filters))...)
}

// Keys that add no dimension to the cells.
var (
	count = experiment.Key[int]{Name: "frames", Parse: strict.Integer(0, maxFrames),
		Meaning: "frames of a window, an exact number; 0: as many as are due in `window`"}
	masquerade = experiment.Key[bool]{Name: "masquerade", Parse: strict.Boolean,
		Meaning: "`gateway-capture`: the router also gives the frames its own address, as home gateways do"}
	together = experiment.Key[bool]{Name: "together", Parse: strict.Boolean,
		Meaning: "`tap`: each device has a host of its own, and all see the same frames at the same time"}
	varyAlone = experiment.Key[bool]{Name: "vary_alone", Parse: strict.Boolean,
		Meaning: "at most one of the lists has another value than its first at a time, instead of every combination"}
)

// Measure is the measure "capture".
type Measure struct{}

// Records lists the measure's one kind of records: trials.
func (Measure) Records() []result.Kind {
	return []result.Kind{{Name: KindCapture, New: func() any { return new(Trial) }}}
}

// Rules returns the rules of experiments that measure capturing.
func (Measure) Rules() experiment.Measure {
	keys := []experiment.Field{count.Field(), masquerade.Field(), together.Field(), varyAlone.Field()}
	for _, p := range parameters {
		keys = append(keys, p.field)
	}
	return experiment.Measure{
		Name: Name, Alone: true, Roles: []string{string(backend.RoleGenerator)}, Keys: keys,
		Uses: []string{"offered_mbps", "offered_kpps", "frame_sizes", "windows", "window", "traffic.kind",
			"traffic.burst_segments", "traffic.gaps", "traffic.seed", experiment.FamilyKey},
		Why:           "one generator sends frames, and nobody logs in or compares with a clean router",
		ApplyDefaults: applyDefaults, Check: check, Settings: settings, Reduce: reduce, Together: together.Value,
		CPUs:     mostCPUs,
		Duration: duration, Describe: description,
	}
}

// applyDefaults sets one client that sends frames, and the measure's defaults for keys that are not set.
func applyDefaults(e *experiment.Experiment) {
	e.Clients, e.Client.Kind = []int{1}, client.KindVeth
	if !e.IsSet("traffic.kind") {
		e.Traffic.Kind = traffic.KindFrames
	}
	if !e.IsSet("topology") {
		e.Topology = defaultRouters
	}
	if !e.IsSet("window") {
		e.Window = defaultWindow
	}
	if !e.IsSet("traffic.burst_segments") {
		e.Traffic.BurstSegments = defaultBurst
	}
}

// check reports settings that do not go together, each by its key.
func check(e *experiment.Experiment, report experiment.Report) {
	if !e.IsSet("offered_mbps") && !e.IsSet("offered_kpps") {
		report("offered_mbps", "missing: an experiment needs it")
	}
	if !traffic.KindOf(e.Traffic.Kind).Frames {
		report("traffic.kind", "%q does not go with measure = %q: it needs %q", e.Traffic.Kind, Name, traffic.KindFrames)
		return
	}
	tapped := e.Topology == topologyTap
	if masquerade.Value(e) && tapped {
		report("masquerade", "does not go with topology = %q: nothing is routed there", e.Topology)
	}
	if masquerade.Value(e) && e.HasIPv6() {
		report("masquerade", "does not go with IPv6: home gateways give IPv6 frames no address of their own")
	}
	if names, _ := e.Value("filters").([]string); e.HasIPv6() && slices.Contains(names, dut.FilterOfIPv4) {
		report("filters", "%q does not go with IPv6: its expression begins with \"ip\", and no frame would pass",
			dut.FilterOfIPv4)
	}
	if together.Value(e) && !tapped {
		report("together", "needs topology = %q: elsewhere one host captures", topologyTap)
	}
	if together.Value(e) && len(e.DUTs) > topology.MaxCaptureHosts {
		report("duts", "%d devices together: a splitter leads to %d hosts at most", len(e.DUTs), topology.MaxCaptureHosts)
	}
	if n := count.Value(e); n > 0 && n < leastFrames {
		report("frames", "%d: a trial has at least %d", n, leastFrames)
	}
	e.EachLoad(1, func(size string, loads []float64) {
		for _, mbps := range loads {
			n, length := framesAndTime(e, size, mbps)
			if n < leastFrames && count.Value(e) == 0 {
				report("window",
					"%s: at %g Mbit/s, frames of %s make %d in it, and a trial has at least %d: choose a longer window, or frames",
					e.Window, mbps, size, n, leastFrames)
			}
			if length > maxTrial {
				report("frames", "%d: at %g Mbit/s, frames of %s take %s, and a trial lasts %s at most", n, mbps, size,
					length.Round(time.Second), maxTrial)
			}
		}
	})
}

// framesAndTime returns the number of frames of a trial and the time in which they are due. The size is a name of the
// key frame_sizes. The load mbps counts the bytes of frames without FCS.
func framesAndTime(e *experiment.Experiment, size string, mbps float64) (int64, time.Duration) {
	sizes, err := e.SizesOf(size)
	if err != nil {
		return leastFrames, 0 // the parser of frame_sizes has reported it
	}
	perSecond := mbps * 1e6 / 8 / sizes.MeanBytes()
	if n := count.Value(e); n > 0 {
		return int64(n), time.Duration(float64(n) / perSecond * float64(time.Second))
	}
	return int64(perSecond * e.Window.Seconds()), e.Window
}

// settings lists all combinations of frame sizes and parameters. A setting has a cell for each load: a block measures
// them all. With vary_alone, at most one parameter differs from its first value.
func settings(e *experiment.Experiment) (list []experiment.Setting) {
	e.EachLoad(1, func(size string, loads []float64) {
		cells := []result.Cell{result.NewCell(result.FrameSize, size)}
		for _, p := range parameters {
			var more []result.Cell
			for _, c := range cells {
				for _, v := range p.values(e) {
					more = append(more, c.With(p.dimension, v))
				}
			}
			if len(more) > 0 {
				cells = more
			}
		}
		if varyAlone.Value(e) {
			first := cells[0]
			cells = slices.DeleteFunc(cells, func(c result.Cell) bool { return differences(c, first) > 1 })
		}
		for _, c := range cells {
			s := experiment.Setting{Cell: c}
			for _, mbps := range loads {
				s.Cells = append(s.Cells, c.With(result.OfferedMbps, mbps))
			}
			list = append(list, s)
		}
	})
	return list
}

// differences counts the dimensions in which two cells of the same dimensions differ.
func differences(a, b result.Cell) (n int) {
	for _, v := range a.Values() {
		if other, _ := b.Value(v.Dimension); other != v {
			n++
		}
	}
	return n
}

// reduce removes dimensions of capture programs from the setting of a device that captures nothing. It returns false
// for a setting that the device refuses: the setting is then left out.
func reduce(_ *experiment.Experiment, device string, s experiment.Setting) (experiment.Setting, bool) {
	if !dut.CapturesNothing(device) {
		_, err := dut.NewCapture(device, captureSettings(s.Cell))
		return s, err == nil || !dut.Captures(device)
	}
	var removed []result.Dimension
	for _, p := range parameters {
		if p.device {
			removed = append(removed, p.dimension)
		}
	}
	s.Cell, s.Cells = s.Cell.Without(removed...), slices.Clone(s.Cells)
	for i, c := range s.Cells {
		s.Cells[i] = c.Without(removed...)
	}
	return s, true
}

// mostCPUs returns the highest number of CPUs that any setting gives to frames and capture programs.
func mostCPUs(e *experiment.Experiment) int {
	n := 1
	for _, s := range settings(e) {
		n = max(n, s.Cell.Int(CPUs))
	}
	return n
}

// captureSettings returns the settings of capture programs in a cell.
func captureSettings(c result.Cell) dut.Capture {
	filter := c.Text(Filter)
	if filter == withoutFilter {
		filter = ""
	}
	return dut.Capture{
		Snap: c.Int(SnapLength), BufferKiB: c.Int(BufferKiB), Filter: filter, Work: c.Text(Work),
		Programs: c.Int(Programs),
	}
}

// Time besides the windows, for the estimate before a run.
const (
	labOverhead   = time.Second            // to build and remove a lab
	trialOverhead = 900 * time.Millisecond // to start and stop the device, and to wait for the last frames
)

// duration estimates how long the blocks of a group take if no trial is rejected.
func duration(e *experiment.Experiment, g experiment.Group) time.Duration {
	block := labOverhead
	devices := map[string]bool{}
	for _, c := range g.Cells {
		devices[c.Text(result.DUT)] = true
		_, length := framesAndTime(e, c.Text(result.FrameSize), c.Number(result.OfferedMbps))
		block += time.Duration(e.Windows) * (length + trialOverhead)
	}
	return time.Duration(g.Blocks) * block / time.Duration(max(len(devices), 1))
}

// description returns the texts that describe an experiment before it runs.
func description(e *experiment.Experiment) experiment.Description {
	extent := fmt.Sprintf(" of %s of %g s", words.Counted(e.Windows, "window"), e.Window.Seconds())
	if n := count.Value(e); n > 0 {
		extent = fmt.Sprintf(" of %s of %s", words.Counted(e.Windows, "window"), words.Counted(int(n), "frame"))
	}
	return experiment.Description{
		Block: "block", Contents: extent, Doing: "frames of " + words.Listed(e.FrameSizes) + " captured at " + loadsOf(e)}
}

// loadsOf renders the loads of an experiment with their units.
func loadsOf(e *experiment.Experiment) string {
	var loads []string
	if len(e.OfferedMbps) > 0 {
		loads = append(loads, experiment.Series(e.OfferedMbps)+" Mbit/s")
	}
	if len(e.OfferedKpps) > 0 {
		loads = append(loads, experiment.Series(e.OfferedKpps)+" thousand frames a second")
	}
	return words.Listed(loads)
}
