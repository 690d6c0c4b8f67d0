package experiment

import (
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// Catalogue lists what experiments can name. Experiments do not import the packages of measures, devices and
// topologies, so their caller hands it to them.
type Catalogue struct {
	DUTs []string // devices that need no table [dut.NAME]; nil: names of devices are not checked
	// Measures are what can be measured; the first is the default. Nil: keys and defaults of measures are not known, which
	// is enough to read the devices that a file describes.
	Measures []Measure
	// Topologies are the topologies that labs can have; nil: they are not checked.
	Topologies []Topology
	// Links returns a text that names the settings that a device needs on the links of its lab, empty for the usual ones.
	// Devices with the same text can be compared with the same clean router. Nil: all links are as usual.
	Links func(e *Experiment, dut string) string
}

// Topology is what an experiment has to know of a topology.
type Topology struct {
	Name     string
	Roles    []string // roles of its hosts
	Gateways bool     // traffic crosses two gateways with a link between them
}

// Measure is what an experiment has to know of what it measures.
type Measure struct {
	Name  string
	Alone bool    // a block has the device's lab only, without a clean router to compare with
	Clean bool    // with Alone: the clean router can be measured like a device
	Keys  []Field // keys of the measure's own, made by Key
	// Uses are shared keys that the measure uses. A shared key that any measure of the catalogue names here applies only
	// to the measures that name it. All other shared keys apply to every measure.
	Uses []string
	Why  string // why keys that only other measures use do not apply, as the end of a sentence
	// ComparesTimes is true when it compares times of several hosts, which takes a common clock.
	ComparesTimes bool
	// Delays is true when it records one-way delays of traffic = "frames", where the hosts have a common clock.
	Delays bool
	// Agentless is true when it can also measure a router without an agent.
	Agentless bool
	// Roles are the roles of hosts that it works with, so that a topology must have them.
	Roles []string

	// ApplyDefaults sets keys that are not set to the measure's own defaults. It may be called again. Nil: there are none.
	ApplyDefaults func(*Experiment)
	// Check reports what the measure cannot measure although each key is valid. Nil: it can measure all that.
	Check func(*Experiment, Report)
	// Settings lists the settings at which each device is measured.
	Settings func(*Experiment) []Setting
	// Reduce removes from a setting what makes no difference for a device; settings that become equal are measured once.
	// It returns false where the device cannot have the setting. Nil: every setting is for every device.
	Reduce func(e *Experiment, dut string, s Setting) (Setting, bool)
	// Together reports whether a block measures all devices at the same time. Such a block has the cells of all devices,
	// and the first of them as its device. Nil: never.
	Together func(*Experiment) bool
	// CPUs returns how many CPUs metered hosts have. Nil: one.
	CPUs func(*Experiment) int
	// Duration estimates how long all blocks of a group take.
	Duration func(*Experiment, Group) time.Duration
	// Bounds returns how long all blocks of a group take at least and at most, where that depends on what is measured.
	// Nil: it does not.
	Bounds func(*Experiment, Group) (least, most time.Duration)
	// Describe describes a plan in words.
	Describe func(*Experiment) Description
}

// together reports whether a block measures all devices at the same time.
func (m Measure) together(e *Experiment) bool { return m.Together != nil && m.Together(e) }

// reduce returns the setting for a device, and whether the device can have it.
func (m Measure) reduce(e *Experiment, dut string, s Setting) (Setting, bool) {
	fits := true
	if m.Reduce != nil {
		s, fits = m.Reduce(e, dut, s)
	}
	return s.withDevice(dut), fits
}

// Description is a plan in words.
type Description struct {
	Block    string // what a block is called
	Contents string // what a block consists of, such as " of 3 windows of 1 s"; may be empty
	Doing    string // what the clients do, such as "at 100 Mbit/s"
}

// Describe returns the experiment's plan in words.
func (e *Experiment) Describe() Description { return e.measure().Describe(e) }

// Setting is what all blocks of a group have in common besides the device: the dimensions in Cell, and the cells that
// each block measures.
type Setting struct {
	Cell  result.Cell
	Cells []result.Cell
}

// MeasureNames lists what can be measured, the default one first.
func (c Catalogue) MeasureNames() (names []string) {
	for _, m := range c.Measures {
		names = append(names, m.Name)
	}
	return names
}

// topologyNames lists the topologies.
func (c Catalogue) topologyNames() (names []string) {
	for _, t := range c.Topologies {
		names = append(names, t.Name)
	}
	return names
}

// measure returns the measure of that name; for an unknown name the default one.
func (c Catalogue) measure(name string) Measure {
	if len(c.Measures) == 0 {
		return Measure{}
	}
	return c.Measures[max(0, slices.Index(c.MeasureNames(), name))]
}

// fields returns all keys outside [dut.NAME], the shared ones and those of measures.
func (c Catalogue) fields() []Field {
	all := slices.Clone(shared)
	for _, m := range c.Measures {
		for _, f := range m.Keys {
			f.measure = m.Name
			all = append(all, f)
		}
	}
	return all
}

func (e *Experiment) fields() []Field  { return e.catalogue.fields() }
func (e *Experiment) measure() Measure { return e.catalogue.measure(e.Measure) }

// ComparesTimes reports whether the experiment's measure compares times of several hosts.
func (e *Experiment) ComparesTimes() bool { return e.measure().ComparesTimes }

// TimesBetweenHosts names the figures that compare times of several hosts; empty: the experiment has none.
func (e *Experiment) TimesBetweenHosts() string {
	switch m := e.measure(); {
	case m.ComparesTimes:
		return "Times between hosts"
	case m.Delays && traffic.KindOf(e.Traffic.Kind).Frames:
		return "One-way delays"
	}
	return ""
}

// CPUs returns how many CPUs metered hosts have.
func (e *Experiment) CPUs() int {
	if m := e.measure(); m.CPUs != nil {
		return m.CPUs(e)
	}
	return 1
}

// Applies reports whether a key has a meaning for the experiment's measure.
func (e *Experiment) Applies(key string) bool {
	m := e.measure()
	used := slices.Contains(m.Uses, key) ||
		!slices.ContainsFunc(e.catalogue.Measures, func(other Measure) bool { return slices.Contains(other.Uses, key) })
	return used && slices.ContainsFunc(e.fields(), func(f Field) bool {
		return f.key == key && (f.measure == "" || f.measure == m.Name)
	})
}

// IsSet reports whether the file or the command line sets a key.
func (e *Experiment) IsSet(key string) bool {
	_, set := e.origins[key]
	return set
}

// Value returns the value of a key, nil where the key does not apply.
func (e *Experiment) Value(key string) any {
	for _, f := range e.fields() {
		if f.key == key && e.Applies(key) {
			return f.get(e)
		}
	}
	return nil
}

// Key is a key of the file that belongs to one measure.
type Key[T any] struct {
	Name    string
	Parse   strict.Parser[T]
	Default T
	Meaning string // with its unit, for the reference
}

// Value returns the key's value in an experiment.
func (k Key[T]) Value(e *Experiment) T {
	if v, set := e.measureValues[k.Name]; set {
		return v.(T)
	}
	return k.Default
}

// Field returns the key in the form that Measure.Keys has.
func (k Key[T]) Field() Field {
	return Field{
		key: k.Name, meaning: k.Meaning,
		set: func(e *Experiment, v any) error {
			parsed, err := k.Parse(v)
			if err == nil {
				e.measureValues[k.Name] = parsed
			}
			return err
		},
		get: func(e *Experiment) any { return k.Value(e) },
	}
}

// Optional is Field for a key that Encode leaves out while it has no value.
func (k Key[T]) Optional() Field {
	f := k.Field()
	f.optional = true
	return f
}

// applyDefaults sets defaults that depend on other keys. It also adds the tables of shipped devices that duts names, so
// that the encoded experiment needs no other file. A second call changes nothing.
func (e *Experiment) applyDefaults() {
	m := e.measure()
	if !e.IsSet("mode") {
		e.Mode = result.ModeDuet
		if m.Alone {
			e.Mode = result.ModeSolo
		}
	}
	if !e.IsSet("windows") {
		e.Windows = defaultWindows
	}
	if e.Traffic.ShortPerSecond > 0 && e.Traffic.ShortBytes == 0 {
		e.Traffic.ShortBytes = defaultShort
	}
	if m.ApplyDefaults != nil {
		m.ApplyDefaults(e)
	}
	e.applyFrameDefaults()
	e.applyHosts()
	e.applyAgentless()
	for _, name := range e.DUTs {
		_, described := e.Custom[name]
		if d, shipped := ShippedDUT(name); shipped && !described {
			e.Custom[name] = d
		}
	}
}
