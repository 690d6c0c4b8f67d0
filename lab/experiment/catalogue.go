package experiment

import (
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// Catalogue is what experiments may name.
type Catalogue struct {
	DUTs []string // devices that need no table; with none given names of devices are not checked
	// Measures are what can be measured, the default one first. With none given keys and defaults
	// of measures are not known: that is enough to read the devices of a file.
	Measures []Measure
	// Topologies are what labs can be built as; with none given they are not checked.
	Topologies []Topology
	// Links names how a device needs the links of its lab set, empty where it needs nothing special. Devices of one name
	// can be compared with the same clean router. Nil: none needs anything.
	Links func(e *Experiment, dut string) string
}

// Topology is what an experiment has to know of one.
type Topology struct {
	Name     string
	Roles    []string // of its hosts
	Gateways bool     // traffic crosses two, with a link between them
}

// Measure is what an experiment has to know of what it measures.
type Measure struct {
	Name  string
	Alone bool    // the device's lab stands alone, and no clean router beside it
	Clean bool    // the clean router is a device among others; without Alone it is not looked at
	Keys  []Field // keys of its own, made by Key
	// Uses are keys that other measures have no meaning for: those that some measure of the catalogue
	// names here have none with the measures that do not. All other keys have one with every measure.
	Uses []string
	Why  string // why keys that only others use have no meaning, as the end of a sentence
	// ComparesTimes is that it compares times of several hosts, which takes a common clock.
	ComparesTimes bool
	// Delays is that it records one-way delays of frames as traffic, where the hosts have a common clock.
	Delays bool
	// Closed is that it measures routers without an agent too.
	Closed bool
	// Roles are those of the hosts that it works with: a topology must have them.
	Roles []string

	// ApplyDefaults sets the measure's own defaults of keys that are not set. It may be called again. Nil: none.
	ApplyDefaults func(*Experiment)
	// Check reports what cannot be measured. Nil: whatever the keys allow can be.
	Check func(*Experiment, Report)
	// Settings lists the settings to measure each device at.
	Settings func(*Experiment) []Setting
	// Reduce leaves out of a setting what has no meaning for a device: settings that are alike then are
	// measured once. It reports false where the device cannot have the setting. Nil: all devices have all.
	Reduce func(e *Experiment, dut string, s Setting) (Setting, bool)
	// Together reports whether a block measures all devices at the same time; its cells are those of all, and its
	// device is the first. Nil: never.
	Together func(*Experiment) bool
	// CPUs is how many CPUs metered hosts have. Nil: one.
	CPUs func(*Experiment) int
	// Duration estimates how long all blocks of a group take.
	Duration func(*Experiment, Group) time.Duration
	// Bounds are what all blocks of a group take at least and at most, where that depends on what is measured. Nil: it
	// does not.
	Bounds func(*Experiment, Group) (least, most time.Duration)
	// Describe names in words what a plan consists of.
	Describe func(*Experiment) Description
}

// together reports whether a block measures all devices at the same time.
func (m Measure) together(e *Experiment) bool { return m.Together != nil && m.Together(e) }

// reduce is the setting with a device, and whether the device can have it.
func (m Measure) reduce(e *Experiment, dut string, s Setting) (Setting, bool) {
	fits := true
	if m.Reduce != nil {
		s, fits = m.Reduce(e, dut, s)
	}
	return s.of(dut), fits
}

// Description is a plan in words.
type Description struct {
	Block string // what a block is called
	Of    string // what makes one, such as " of 3 windows of 1 s"; may be empty
	Doing string // what the clients do, such as "at 100 Mbit/s"
}

// Describe is the experiment's plan in words.
func (e *Experiment) Describe() Description { return e.measure().Describe(e) }

// Setting is what is the same in all blocks of a group, without the device, and the cells that each
// of these blocks measures.
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

// topologyNames lists what labs can be built as.
func (c Catalogue) topologyNames() (names []string) {
	for _, t := range c.Topologies {
		names = append(names, t.Name)
	}
	return names
}

// measure is the one of that name, or else the default one.
func (c Catalogue) measure(name string) Measure {
	if len(c.Measures) == 0 {
		return Measure{}
	}
	return c.Measures[max(0, slices.Index(c.MeasureNames(), name))]
}

// fields are all keys outside [dut.NAME].
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

// CPUs is how many CPUs metered hosts have.
func (e *Experiment) CPUs() int {
	if m := e.measure(); m.CPUs != nil {
		return m.CPUs(e)
	}
	return 1
}

// Means reports whether a key has a meaning with the experiment's measure.
func (e *Experiment) Means(key string) bool {
	m := e.measure()
	used := slices.Contains(m.Uses, key) ||
		!slices.ContainsFunc(e.catalogue.Measures, func(other Measure) bool { return slices.Contains(other.Uses, key) })
	return used && slices.ContainsFunc(e.fields(), func(f Field) bool {
		return f.key == key && (f.measure == "" || f.measure == m.Name)
	})
}

// IsSet reports whether the file or the command line says something of a key.
func (e *Experiment) IsSet(key string) bool {
	_, set := e.origins[key]
	return set
}

// Value is the value of a key, nil where the key has no meaning.
func (e *Experiment) Value(key string) any {
	for _, f := range e.fields() {
		if f.key == key && e.Means(key) {
			return f.get(e)
		}
	}
	return nil
}

// Key is a key of the file that a measure has of its own.
type Key[T any] struct {
	Name    string
	Parse   strict.Parser[T]
	Default T
	Meaning string // with its unit, for the reference
}

// Of is its value in an experiment.
func (k Key[T]) Of(e *Experiment) T {
	if v, set := e.own[k.Name]; set {
		return v.(T)
	}
	return k.Default
}

// Field is the key for Measure.Keys.
func (k Key[T]) Field() Field {
	return Field{
		key: k.Name, meaning: k.Meaning,
		set: func(e *Experiment, v any) error {
			parsed, err := k.Parse(v)
			if err == nil {
				e.own[k.Name] = parsed
			}
			return err
		},
		get: func(e *Experiment) any { return k.Of(e) },
	}
}

// Optional is Field for a key that is not written while it has no value.
func (k Key[T]) Optional() Field {
	f := k.Field()
	f.optional = true
	return f
}

// applyDefaults fills in defaults that depend on other keys. It also fills in the tables of shipped devices that duts
// lists and the file does not describe, so that the encoded experiment stands alone. Twice is harmless.
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
	e.applyClosed()
	for _, name := range e.DUTs {
		_, described := e.Custom[name]
		if d, shipped := ShippedDUT(name); shipped && !described {
			e.Custom[name] = d
		}
	}
}
