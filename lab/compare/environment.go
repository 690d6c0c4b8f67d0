// What differs between two runs besides their figures: machine, versions, settings.

package compare

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/textfile"
)

// Difference is a property in which two runs differ.
type Difference struct {
	What string `json:"what"` // the property: "kernel"
	A    string `json:"a"`    // its value in the first run; empty: it has none
	B    string `json:"b"`    // its value in the second run
	// Machine is true for properties of the machine, because of which absolute figures cannot be compared.
	Machine bool `json:"machine"`
}

// environmentFields lists the properties of environments that are compared, in the order of their likely effect on
// figures.
var environmentFields = []struct {
	property string
	machine  bool
	value    func(result.Environment) string
}{
	{"CPU", true, func(e result.Environment) string { return e.CPUModel }},
	{"number of CPUs", true, func(e result.Environment) string { return number(e.CPUs) }},
	{"kernel", true, func(e result.Environment) string { return e.Kernel }},
	{"architecture", true, func(e result.Environment) string { return e.Arch }},
	{"virtualisation", true, func(e result.Environment) string { return e.Virtualisation }},
	{"virtual machine", true, machineOf},
	{"speed of the routers' CPU", true, func(e result.Environment) string { return speed(e.RouterSpeed) }},
	{"machines", true, machines},
	{"placement", true, func(e result.Environment) string { return e.Placement }},
	{"link settings", false, func(e result.Environment) string { return strings.Join(e.Offloads, "; ") }},
	{"gateweigh version", false, func(e result.Environment) string { return e.GateweighVersion }},
	{"gateweigh program (SHA-256)", false, func(e result.Environment) string { return shortHash(e.GateweighSHA256) }},
}

// machines describes the machines of a run on several machines, by host; empty for one machine.
func machines(e result.Environment) string {
	var list []string
	for _, host := range slices.Sorted(maps.Keys(e.Machines)) {
		list = append(list, host+" "+e.Machines[host].String())
	}
	return strings.Join(list, "; ")
}

// Differences lists the properties in which two runs differ, those of the machine first. same is true if no property of
// the machine differs.
func Differences(a, b result.Run) (list []Difference, same bool) {
	list, same = []Difference{}, true
	add := func(property, va, vb string, machine bool) {
		if va != vb {
			list = append(list, Difference{property, va, vb, machine})
			same = same && !machine
		}
	}
	for _, f := range environmentFields {
		add(f.property, f.value(a.Environment), f.value(b.Environment), f.machine)
	}
	if a, b := a.Environment.Governors, b.Environment.Governors; a != nil && b != nil {
		add("frequency governor", strings.Join(a, ", "), strings.Join(b, ", "), true)
	}
	ports := [2]map[string]string{}
	if a, b := a.Environment.Ports, b.Environment.Ports; a != nil && b != nil { // older runs do not tell
		ports = [2]map[string]string{result.PortSettings(a), result.PortSettings(b)}
	}
	for _, m := range []struct {
		kind string
		a, b map[string]string
	}{
		{"link of", ports[0], ports[1]},
		{"tool", a.Environment.Tools, b.Environment.Tools},
		{"sysctl", a.Environment.Sysctls, b.Environment.Sysctls},
		{"experiment", settings(a.Dir), settings(b.Dir)},
		{"frame sizes (SHA-256)", shortHashes(inputs(a.Dir)), shortHashes(inputs(b.Dir))},
	} {
		for _, key := range sortedKeys(m.a, m.b) {
			add(m.kind+" "+key, m.a[key], m.b[key], false)
		}
	}
	return list, same
}

// Apart lists the reasons why a table must not show figures of both runs in one row: the machines differ, so that
// absolute figures cannot be compared, or cells with the same name mean different things. It is empty when a table may.
func Apart(a, b result.Run) (reasons []Difference) {
	all, _ := Differences(a, b)
	for _, d := range all {
		if d.Machine {
			reasons = append(reasons, d)
		}
	}
	for _, name := range otherInputs(a, b) {
		reasons = append(reasons, Difference{What: "file of frame sizes " + name, A: "one", B: "another"})
	}
	sides := func(s *result.Sides) string {
		if s == nil {
			return ""
		}
		return s.Device + " against " + s.Clean
	}
	for _, d := range []Difference{
		{What: "measure", A: a.Environment.Measure, B: b.Environment.Measure},
		{What: "mode", A: a.Environment.Mode, B: b.Environment.Mode},
		{What: "labs that differ in more than the device", A: sides(a.Environment.Sides), B: sides(b.Environment.Sides)},
	} {
		if d.A != d.B {
			reasons = append(reasons, d)
		}
	}
	return reasons
}

// String is "kernel: 6.1.0, then 6.18.44".
func (d Difference) String() string {
	return result.OneLine(fmt.Sprintf("%s: %s, then %s", d.What, setting(d.A), setting(d.B)))
}

// sortedKeys returns the keys of both maps, each once, sorted.
func sortedKeys(a, b map[string]string) []string {
	keys := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// settings returns the keys of a run's experiment.toml with their values; keys in tables have dots. For a file that is
// missing or cannot be read it returns one setting, "file", that says so. A run without a folder has no settings.
func settings(dir string) map[string]string {
	if dir == "" {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(dir, result.ExperimentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{"file": result.ExperimentFile + " is missing"}
	}
	var tables map[string]any
	if err == nil {
		data, err = textfile.Decode(data)
	}
	if err == nil {
		err = toml.Unmarshal(data, &tables)
	}
	if err != nil {
		return map[string]string{"file": err.Error()}
	}
	out := map[string]string{}
	flatten(out, "", tables)
	return out
}

// flatten copies the settings of tables into out. A setting in a table gets a dotted key that begins with prefix.
func flatten(out map[string]string, prefix string, tables map[string]any) {
	for key, value := range tables {
		if table, ok := value.(map[string]any); ok {
			flatten(out, prefix+key+".", table)
			continue
		}
		out[prefix+key] = fmt.Sprint(value)
	}
}

// speed is the share of CPU time of the run's routers, as text.
func speed(share float64) string {
	if share == 0 {
		return "full"
	}
	return fmt.Sprintf("slowed to %.3g %%", 100*share)
}

// number formats a number; empty for 0, which means that it is not known.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// shortHashes returns the hashes with 12 characters each.
func shortHashes(hashes map[string]string) map[string]string {
	out := map[string]string{}
	for name, hash := range hashes {
		out[name] = shortHash(hash)
	}
	return out
}

func shortHash(hash string) string { return hash[:min(len(hash), 12)] }
