package experiment

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// EmulatedDivisor is what loads are divided by for an emulated CPU, which carries some tens of Mbit/s where the real
// one below it carries a thousand.
const EmulatedDivisor = 20

// lengthened is a key of a time that is longer there by a factor: at a twentieth of the load it has so few bursts that
// each of them counts, and the emulator holds a lab up for some tens of milliseconds.
type lengthened struct {
	key, what string
	by        time.Duration
}

var lengths = []lengthened{{"window", "windows", 2}, {"interval", "samples", 4}}

// load is a key that says how much is sent in a second, with the least it may say.
type load struct {
	key   string
	least float64
}

var loads = []load{
	{"offered_mbps", MinOfferedMbps}, {"mbps_per_client", 0}, {"offered_kpps", minKpps}, {"max_kpps", 1},
	{"link.mbps", minLinkMbps}, {"traffic.short_per_second", minPerSecond},
	{"link_mbps", MinOfferedMbps}, {"file_mb", 0.01},
}

// ForEmulatedCPU makes the experiment one for an emulated CPU: it divides the loads by EmulatedDivisor and makes
// windows longer, and returns what it did in words, empty where it did nothing. Keys that the user gave for this run
// stay; when one is a load, all loads do. An experiment whose loads were divided before, or are not to be
// (LoadsDividedBy), stays as it is. Numbers of clients, logins and guests a second, and sizes stay in any case.
func (e *Experiment) ForEmulatedCPU(given []string) (string, error) {
	isGiven := func(key string) bool { return slices.Contains(given, key) }
	if e.LoadsDividedBy > 0 || slices.ContainsFunc(loads, func(l load) bool { return isGiven(l.key) }) {
		return "", nil
	}
	divided := false
	for _, f := range e.fields() {
		i := slices.IndexFunc(loads, func(l load) bool { return l.key == f.key })
		if i < 0 || !e.Means(f.key) {
			continue
		}
		scaled, is := loads[i].divided(f.get(e))
		if !is {
			continue
		}
		if err := f.set(e, scaled); err != nil {
			return "", fmt.Errorf("%s for an emulated CPU: %w", f.key, err)
		}
		divided = true
	}
	if !divided {
		return "", nil
	}
	e.LoadsDividedBy = EmulatedDivisor
	message := fmt.Sprintf("loads ÷ %d", EmulatedDivisor)
	for _, f := range e.fields() {
		i := slices.IndexFunc(lengths, func(l lengthened) bool { return l.key == f.key })
		if i < 0 || !e.Means(f.key) || isGiven(f.key) {
			continue
		}
		length := f.get(e).(time.Duration) * lengths[i].by
		if length > maxWindow {
			continue
		}
		if err := f.set(e, length.String()); err != nil {
			return "", fmt.Errorf("%s for an emulated CPU: %w", f.key, err)
		}
		message += fmt.Sprintf(", %s of %s", lengths[i].what, length)
	}
	message += ": emulated CPU"
	e.applyDefaults()
	return message, e.Check()
}

// divided divides a load or a list of them; false: there is none.
func (l load) divided(value any) (any, bool) {
	one := func(x float64) float64 {
		if x == 0 { // a link without a limit
			return 0
		}
		x /= EmulatedDivisor
		digits := math.Pow(10, 2-math.Floor(math.Log10(x)))
		return max(l.least, math.Round(x*digits)/digits)
	}
	switch v := value.(type) {
	case float64:
		return one(v), v > 0
	case []float64:
		var list []any
		for _, x := range v {
			if y := one(x); !slices.Contains(list, any(y)) {
				list = append(list, y)
			}
		}
		return list, len(list) > 0
	}
	return nil, false
}

// LoadKey is the first key of the experiment that says how much is sent in a second; empty: none does.
func (e *Experiment) LoadKey() string {
	for _, l := range loads {
		if _, has := l.divided(e.Value(l.key)); has {
			return l.key
		}
	}
	return ""
}
