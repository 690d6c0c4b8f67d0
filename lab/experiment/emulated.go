package experiment

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// EmulatedDivisor is what loads are divided by for an emulated CPU (a virtual machine without KVM). Such a CPU carries
// some tens of Mbit/s where the machine's real one carries a thousand.
const EmulatedDivisor = 20

// longerTime is a key whose time is multiplied by a factor for an emulated CPU. At a twentieth of the load a short time
// has so few bursts that one more or less matters, and the emulator stops a lab for some tens of milliseconds at times.
type longerTime struct {
	key, name string
	factor    time.Duration
}

var longerTimes = []longerTime{{"window", "windows", 2}, {"interval", "samples", 4}}

// loadKey is a key that says how much is sent in a second, with its least value.
type loadKey struct {
	key   string
	least float64
}

var loadKeys = []loadKey{
	{"offered_mbps", MinOfferedMbps}, {"mbps_per_client", 0}, {"offered_kpps", minKpps}, {"max_kpps", 1},
	{"link.mbps", minLinkMbps}, {"traffic.short_per_second", minPerSecond},
	{"link_mbps", MinOfferedMbps}, {"file_mb", 0.01},
}

// ForEmulatedCPU adapts the experiment to an emulated CPU: it divides the loads by EmulatedDivisor and makes windows
// longer. It returns what it changed, in words; empty: nothing. Keys in given, which the user set for this run, stay as
// they are, and where one of them is a load, all loads stay. An experiment with LoadsDividedBy stays too. It never
// changes numbers of clients, logins and guests a second, and sizes.
func (e *Experiment) ForEmulatedCPU(given []string) (string, error) {
	isGiven := func(key string) bool { return slices.Contains(given, key) }
	if e.LoadsDividedBy > 0 || slices.ContainsFunc(loadKeys, func(l loadKey) bool { return isGiven(l.key) }) {
		return "", nil
	}
	divided := false
	for _, f := range e.fields() {
		i := slices.IndexFunc(loadKeys, func(l loadKey) bool { return l.key == f.key })
		if i < 0 || !e.Applies(f.key) {
			continue
		}
		scaled, found := loadKeys[i].divide(f.get(e))
		if !found {
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
		i := slices.IndexFunc(longerTimes, func(l longerTime) bool { return l.key == f.key })
		if i < 0 || !e.Applies(f.key) || isGiven(f.key) {
			continue
		}
		length := f.get(e).(time.Duration) * longerTimes[i].factor
		if length > maxWindow {
			continue
		}
		if err := f.set(e, length.String()); err != nil {
			return "", fmt.Errorf("%s for an emulated CPU: %w", f.key, err)
		}
		message += fmt.Sprintf(", %s of %s", longerTimes[i].name, length)
	}
	message += ": emulated CPU"
	e.applyDefaults()
	return message, e.Check()
}

// divide returns a load, or a list of loads, divided by EmulatedDivisor; false where value has no load.
func (l loadKey) divide(value any) (any, bool) {
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

// LoadKey returns the first key of the experiment that says how much is sent in a second; empty: there is none.
func (e *Experiment) LoadKey() string {
	for _, l := range loadKeys {
		if _, found := l.divide(e.Value(l.key)); found {
			return l.key
		}
	}
	return ""
}
