package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// deviceKey begins the keys of devices' lines.
const deviceKey = "device."

// tool is a program and all that start it.
type tool struct {
	dut.Need
	users  []string // "the lab", "opennds"
	needed bool     // the lab itself cannot run without it
}

// allTools lists every program that the lab and its devices start, by name.
func allTools() ([]tool, error) {
	var list []tool
	add := func(who string, needed bool, n dut.Need) {
		i := slices.IndexFunc(list, func(t tool) bool { return t.Program == n.Program })
		if i < 0 {
			list, i = append(list, tool{Need: n}), len(list)
		}
		if !slices.Contains(list[i].users, who) {
			list[i].users = append(list[i].users, who)
		}
		list[i].needed = list[i].needed || needed
	}
	for i, e := range measure.Catalogue().Builtins() {
		for _, n := range runner.Needs(e) {
			add("the lab", i == 0, n)
		}
	}
	for _, name := range dut.Names() {
		d, err := dut.New(name, 1, nil)
		if err != nil {
			return nil, err
		}
		for _, n := range d.Traits().Needs {
			add(name, false, n)
		}
	}
	add("kind = \"iperf3\"", false, dut.Need{Program: "iperf3", Package: "iperf3"})
	add("run --profile", false, dut.Need{Program: "perf", Package: "linux-perf"})
	add("this report", false, dut.Need{Program: "tc", Package: "iproute2"})
	slices.SortFunc(list, func(a, b tool) int { return strings.Compare(a.Program, b.Program) })
	return list, nil
}

func (x examination) tools(ctx context.Context) ([]Line, error) {
	list, err := allTools()
	if err != nil {
		return nil, err
	}
	needs := make([]dut.Need, len(list))
	for i, t := range list {
		needs[i] = t.Need
	}
	found, err := x.asked.Find(ctx, machine.Query{Needs: needs, Versions: true})
	if err != nil {
		return nil, err
	}
	var lines []Line
	for i, t := range list {
		l := Line{Key: "tool." + t.Program, State: OK, What: t.Program, Needed: t.needed, Means: "for " + strings.Join(t.users, ", ")}
		if found[i].Path == "" {
			l.State, l.Found, l.Means = Missing, "not on PATH; "+l.Means, ""
			l.Do = t.Advice
			if t.Package != "" {
				l.Do = "sudo apt-get install " + t.Package
			}
		} else {
			l.Found = cmp.Or(strings.TrimSuffix(found[i].Version, "."), "here, says no version")
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// devices tells which devices can run here. kernel are the lines of the kernel's features.
func (x examination) devices(ctx context.Context, kernel []Line) ([]Line, error) {
	var lines []Line
	for _, name := range dut.Names() {
		d, err := dut.New(name, 1, nil)
		if err != nil {
			return nil, err
		}
		l := Line{Key: deviceKey + name, State: OK, What: name, Found: d.Traits().About, Means: "can be measured"}
		if name == experiment.Clean {
			l.Means = "the other side of every pair"
		}
		needs := d.Traits().Needs
		found, err := x.asked.Find(ctx, machine.Query{Needs: needs})
		if err != nil {
			return nil, err
		}
		if text, do := absent(needs, found); text != "" {
			l.State, l.Found, l.Means, l.Do = Missing, text, "", do
		}
		for _, n := range needs {
			i := slices.IndexFunc(kernel, func(k Line) bool { return k.What == string(n.KernelFeature()) && k.State != OK })
			if l.State == OK && i >= 0 {
				l.State, l.Found, l.Means, l.Do = Missing, "the kernel lacks "+kernel[i].What, "", "see "+kernel[i].What+" above"
			}
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// absent tells which programs are missing or do not start, and what to do about all of
// them; both are empty when there are none.
func absent(needs []dut.Need, found []machine.Found) (text, do string) {
	var names, broken, packages, steps []string
	for i, n := range needs {
		switch {
		case found[i].Broken != "":
			broken = append(broken, fmt.Sprintf("%s does not start: %s", found[i].Path, found[i].Broken))
		case found[i].Path != "":
			continue
		default:
			names = append(names, n.Program)
		}
		if n.Package != "" {
			packages = append(packages, n.Package)
		} else if !slices.Contains(steps, n.Advice) {
			steps = append(steps, n.Advice)
		}
	}
	slices.Sort(packages)
	if len(packages) > 0 {
		steps = append([]string{"sudo apt-get install " + strings.Join(slices.Compact(packages), " ")}, steps...)
	}
	if len(names) > 0 {
		broken = append([]string{"not on PATH: " + strings.Join(names, ", ")}, broken...)
	}
	return strings.Join(broken, "; "), strings.Join(steps, "; ")
}
