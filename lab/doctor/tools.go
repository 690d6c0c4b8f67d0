package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// deviceKey begins the keys of devices' checks.
const deviceKey = "device."

// tool is a program that the lab or its devices start.
type tool struct {
	dut.Need
	users  []string // what starts it: "the lab", "opennds"
	needed bool     // the lab cannot run without it
}

// allTools lists every program that the lab and its devices start, sorted by name.
func allTools() ([]tool, error) {
	byName := map[string]*tool{}
	add := func(who string, needed bool, needs ...dut.Need) {
		for _, n := range needs {
			if n.Program == "" {
				continue
			}
			t := byName[n.Program]
			if t == nil {
				t = &tool{Need: n}
				byName[n.Program] = t
			}
			if !slices.Contains(t.users, who) {
				t.users = append(t.users, who)
			}
			t.needed = t.needed || needed
		}
	}
	for i, exp := range measure.Catalogue().Builtins() {
		add("the lab", i == 0, runner.Needs(exp)...)
	}
	for _, name := range dut.Names() {
		device, err := dut.New(name, 1, nil)
		if err != nil {
			return nil, err
		}
		add(name, false, device.Traits().Needs...)
	}
	add("kind = \"iperf3\"", false, dut.Need{Program: "iperf3", Package: "iperf3"})
	add("run --profile", false, dut.Need{Program: "perf", Package: "linux-perf"})
	add("this report", false, dut.Need{Program: "tc", Package: "iproute2"})
	var list []tool
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		list = append(list, *byName[name])
	}
	return list, nil
}

// tools checks which programs that the lab and its devices start are installed.
func (x examination) tools(ctx context.Context) ([]Check, error) {
	list, err := allTools()
	if err != nil {
		return nil, err
	}
	needs := make([]dut.Need, len(list))
	for i, t := range list {
		needs[i] = t.Need
	}
	found, err := x.host.Find(ctx, machine.Query{Needs: needs, Versions: true})
	if err != nil {
		return nil, err
	}
	checks := make([]Check, len(list))
	for i, t := range list {
		means := "for " + strings.Join(t.users, ", ")
		checks[i] = checkOf(
			"tool."+t.Program, t.Program, cmp.Or(strings.TrimSuffix(found[i].Version, "."), "here, says no version"), means, "")
		if found[i].Path == "" {
			_, do := missingPrograms(needs[i:i+1], found[i:i+1])
			checks[i] = Check{Key: checks[i].Key, State: Missing, Subject: t.Program, Found: "not on PATH; " + means, Remedy: do}
		}
		checks[i].Needed = t.needed
	}
	return checks, nil
}

// devices checks which devices can run on this machine. kernel has the checks of the kernel's features.
func (x examination) devices(ctx context.Context, kernel []Check) ([]Check, error) {
	var checks []Check
	for _, name := range dut.Names() {
		device, err := dut.New(name, 1, nil)
		if err != nil {
			return nil, err
		}
		traits, means := device.Traits(), "runs here: can be measured"
		if name == experiment.Clean {
			means = "the other side of every pair"
		}
		found, err := x.host.Find(ctx, machine.Query{Needs: traits.Needs})
		if err != nil {
			return nil, err
		}
		text, do := missingPrograms(traits.Needs, found)
		if text == "" {
			text, do = x.missingFeatures(name, traits.Needs, kernel)
		}
		check := checkOf(deviceKey+name, name, cmp.Or(text, traits.About), means, do)
		if text != "" {
			check.State, check.Means = Missing, ""
		}
		checks = append(checks, check)
	}
	return checks, nil
}

// missingFeatures lists the features that a device needs and the kernel lacks, and their remedies; both are empty when
// the kernel lacks none. It looks up features without a check in the kernel's configuration.
func (x examination) missingFeatures(name string, needs []dut.Need, kernel []Check) (text, do string) {
	var features []machine.Feature
	var names, steps []string
	refused := false
	for _, n := range needs {
		needed := n.KernelFeature()
		var tried, works bool
		for _, k := range kernel {
			if slices.Contains(needed.Alternatives(), machine.Feature(k.Subject)) {
				tried, works, refused = true, works || k.State == OK, refused || k.noPermission
			}
		}
		if needed == "" || slices.Contains(features, needed) || works || !tried && needed.Unset() == "" {
			continue
		}
		features, names = append(features, needed), append(names, string(needed))
		if tried {
			steps = append(steps, "see "+string(needed)+" above")
		} else {
			steps = append(steps, "a kernel with it: "+needed.Unset())
		}
	}
	if len(features) == 0 {
		return "", ""
	}
	if refused {
		return "not permitted here: " + strings.Join(names, ", "), strings.Join(steps, "; ")
	}
	if other := dut.OtherKernel(features...); other != "" {
		steps = append(steps,
			"or runs with --kernel "+other+": `"+dut.Command(other, "gateweigh run "+measure.All().For(name).Name, name)+"`")
	}
	return "the kernel lacks " + strings.Join(names, ", "), strings.Join(steps, "; ")
}

// missingPrograms lists the programs that are missing or do not start, and their remedies; both are empty when there
// are none.
func missingPrograms(needs []dut.Need, found []machine.Found) (text, do string) {
	var names, texts, packages, steps []string
	for i, n := range needs {
		switch {
		case n.Program == "":
			continue
		case found[i].Broken != "":
			texts = append(texts, fmt.Sprintf("%s does not start: %s", found[i].Path, found[i].Broken))
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
		texts = append([]string{"not on PATH: " + strings.Join(names, ", ")}, texts...)
	}
	return strings.Join(texts, "; "), strings.Join(steps, "; ")
}
