package runner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Kinds of hosts, for Need.On.
const (
	onRouter = "router" // every metered host
	onClient = string(backend.RoleClient)
	onServer = string(backend.RoleServer)
)

// Needs are the programs the lab itself starts for an experiment, besides those
// of its devices, each with the hosts that it runs on.
func Needs(e *experiment.Experiment) []dut.Need {
	list := []dut.Need{{Program: "ethtool", Package: "ethtool", Why: "the links' offloads"}}
	if !e.Applies("clients") {
		list = append(list,
			dut.Need{Program: "ip", Package: "iproute2", Why: "the router's neighbour, where there is a router",
				On: onRouter})
	}
	if on, _ := e.Value("masquerade").(bool); on {
		list = append(list,
			dut.Need{Program: "nft", Package: "nftables", Why: "the router's address for frames (masquerade)",
				On: onRouter})
	}
	if e.Backend.AgentlessRouter() {
		list = append(list,
			dut.Need{Program: "ping", Package: "iputils-ping", Why: "asking for the router's hardware addresses",
				On: onClient + "," + onServer},
			dut.Need{Program: "ip", Package: "iproute2", Why: "the same", On: onClient + "," + onServer})
	}
	if e.Applies("transfers") {
		list = append(list,
			dut.Need{Program: "proftpd", Package: "proftpd-core", Why: "the files' server", On: onServer},
			dut.Need{Program: "curl", Package: "curl", Why: "the files' clients", On: onClient},
			dut.Need{Program: "ss", Package: "iproute2", Why: "seeing the server listen", On: onServer})
	}
	labs := e.LargestLabs()
	if !e.Backend.AgentlessRouter() &&
		slices.ContainsFunc(labs, func(s experiment.Side) bool { return client.KindOf(s.Client).Leases }) {
		list = append(list,
			dut.Need{Program: "dnsmasq", Package: "dnsmasq-base", Why: "leases beside a router that gives none",
				On: onRouter})
	}
	for _, kind := range slices.Compact([]string{labs[0].Traffic.Kind, labs[len(labs)-1].Traffic.Kind}) {
		if program := traffic.KindOf(kind).Program; program != "" {
			list = append(list, dut.Need{Program: program, Package: program, Why: "the traffic",
				On: onClient + "," + onServer})
		}
	}
	return list
}

// machineAgent is the agent of the machine that carries the routers.
type machineAgent interface {
	dut.Machine
	Machine(ctx context.Context) (machine.Machine, error)
}

// errNoRoot is the error of a run without the rights that every run needs.
var errNoRoot = errors.New(
	"a run needs root, and not that of a user namespace: it makes network namespaces and loads " +
		"programs into the kernel (try: sudo gateweigh run …)")

// checkMachine returns one error with everything that the experiment needs and the machine lacks.
func checkMachine(ctx context.Context, agent machineAgent, e *experiment.Experiment, d Demand) (
	machine.Machine, error) {
	return checkSite(ctx, agent, e, d, "")
}

// checkSite is checkMachine for a machine that carries the hosts of one kind; kind "" means all hosts.
func checkSite(ctx context.Context, agent machineAgent, e *experiment.Experiment, d Demand, kind string) (
	machine.Machine, error) {
	m, err := agent.Machine(ctx)
	if err != nil {
		return m, fmt.Errorf("looking at the machine: %w", err)
	}
	needs := needsOn(Needs(e), kind)
	found, err := agent.Find(ctx, machine.Query{Needs: needs})
	if err != nil {
		return m, fmt.Errorf("looking for programs: %w", err)
	}
	errs := []error{checkLimits(m, d), checkIPv6(ctx, agent, e)}
	if !m.Root {
		errs = append(errs, errNoRoot)
	}
	bars, _ := barsFor(e, m, kind)
	for _, b := range bars {
		errs = append(errs, errors.New(b.String()))
	}
	for i, n := range needs {
		if found[i].Path == "" {
			errs = append(errs, fmt.Errorf("%s is not on PATH: install the %s", n.Program, n.Remedy()))
		}
	}
	for _, side := range slices.Compact(e.LargestLabs()) {
		if most := client.KindOf(side.Client).MaxClients; side.Clients > most {
			errs = append(errs, fmt.Errorf("clients: %d: clients of kind %s go up to %d", side.Clients, side.Client, most))
		}
	}
	return m, errors.Join(errs...)
}

// barsFor returns what keeps a machine from carrying hosts of a kind. Some bars only make a router's CPU time unknown.
// If the experiment can do without that time, unmetered is the text of such a bar, and bars does not have it.
func barsFor(e *experiment.Experiment, m machine.Machine, kind string) (bars []machine.Bar, unmetered string) {
	for _, b := range m.Bars {
		if b.Meter && kind == onRouter && e.DoesWithoutCPU() {
			unmetered = b.What
		} else {
			bars = append(bars, b)
		}
	}
	return bars, unmetered
}

// fits returns an error, which wraps dut.ErrNotSupported, if a device does not work with the experiment's topology or
// kind of client.
func fits(e *experiment.Experiment, name string, t dut.Traits) error {
	if build, err := topology.Named(e.Topology); err == nil && t.TakesFrames &&
		!slices.Contains(build(topology.Spec{}).Roles(), string(backend.RoleSplitter)) {
		remedy := "`gateweigh run capture-systems` measures it on a host behind a splitter"
		if !e.Applies("clients") { // the measure has a topology for it
			remedy = "choose a topology with a splitter (\"tap\")"
		}
		return fmt.Errorf("it takes frames away, and a router is to forward them: %s: %w", remedy, dut.ErrNotSupported)
	}
	if !e.Applies("client.kind") {
		return nil
	}
	if build, err := topology.Named(e.Topology); err == nil && build(topology.Spec{}).Gateways() != t.Tunnel &&
		name != experiment.Clean {
		if t.Tunnel {
			return fmt.Errorf("it makes a tunnel between two gateways: use topology = \"tunnel\": %w", dut.ErrNotSupported)
		}
		return fmt.Errorf("it makes no tunnel, and topology %q has two gateways: %w", e.Topology, dut.ErrNotSupported)
	}
	if line := client.KindOf(e.Client.Kind).PPPoE; line != t.PPPoE && (!line || name != experiment.Clean) {
		if line {
			return fmt.Errorf(
				"it is no PPPoE concentrator, and clients of kind %s log in at one: %w", e.Client.Kind, dut.ErrNotSupported)
		}
		lines := client.Kinds(func(k client.Kind) bool { return k.PPPoE })[0]
		return fmt.Errorf("it takes PPPoE clients only: use client.kind = %q: %w", lines, dut.ErrNotSupported)
	}
	if unable := familiesWithout(e, t); len(unable) == len(e.AllFamilies()) {
		return fmt.Errorf("%s: %w", noFamily(t), dut.ErrNotSupported)
	}
	ownLAN := t.LAN.IsValid() && t.LAN != topology.DefaultLAN
	if ownLAN && !t.DHCP {
		return fmt.Errorf("its network is %s, and the lab leases only %s: let it lease addresses itself (dhcp = true): %w",
			t.LAN, topology.DefaultLAN, dut.ErrNotSupported)
	}
	if !client.KindOf(e.Client.Kind).Leases && (t.DHCP || ownLAN) {
		leasing := client.Kinds(func(k client.Kind) bool { return k.Leases })[0]
		return fmt.Errorf("it leases addresses, clients of kind %s have static ones; use kind %s: %w", e.Client.Kind, leasing,
			dut.ErrNotSupported)
	}
	return nil
}

// environment describes machine and run.
func (s *Session) environment(ctx context.Context) (result.Environment, error) {
	cfg, m := s.cfg, s.found
	programs, err := tools(ctx, s.sites, cfg.Experiment)
	if err != nil {
		return result.Environment{}, err
	}
	env := result.Environment{
		Experiment: cfg.Experiment.Name, Measure: cfg.Experiment.Measure, Title: cfg.Experiment.Description,
		Mode:    cfg.Experiment.Mode,
		Clients: "kind " + cfg.Experiment.Client.Kind, RouterSpeed: cfg.Experiment.Router.Speed,
		Command: cfg.Command, Start: time.Now().UTC(), GateweighVersion: cfg.Version,
		GateweighSHA256: m.Program, Kernel: m.Kernel, Arch: m.Arch, CPUModel: m.CPUModel, CPUs: s.CPUs,
		MemoryMiB: m.Memory.Total >> 10, Virtualisation: m.Virtualisation, VM: cfg.VM,
		LoadsDividedBy: s.Experiment.LoadsDividedBy, Placement: s.Placement.String(),
		Offloads: offloads(cfg.Experiment), Tools: programs,
		Machines: sitesOf(cfg.Experiment, s.foundOn), Governors: governors(m, m.Usable),
		Sysctls: topology.Sysctls(DemandOf(cfg.Experiment).Clients()-cfg.Experiment.Client.Guests(),
			widestFamily(cfg.Experiment)),
	}
	if env.Inputs, err = inputs(cfg.Experiment); err != nil {
		return env, err
	}
	if !cfg.Experiment.Applies("clients") {
		env.Clients = "none: one generator"
	}
	if hosts := cfg.Experiment.Client.Hosts; hosts > 1 {
		env.Clients += fmt.Sprintf(", on %d hosts behind a switch", hosts)
	}
	if device, clean := cfg.Experiment.SidesText(); clean != "" {
		env.Sides = &result.Sides{Device: device, Clean: clean, OfClean: client.KindOf(cfg.Experiment.Client.Kind).PPPoE}
	}
	old, err := result.ReadEnvironment(filepath.Join(cfg.Dir, result.EnvironmentFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return env, nil
	case err != nil:
		return env, fmt.Errorf(
			"reading what an earlier sitting says of the machine: %w; without that file the run goes on, and tells of this "+
				"sitting's machine alone", err)
	}
	if before, now := accelerator(old), accelerator(env); before != now {
		return env, fmt.Errorf(
			"the run was begun %s and would go on %s, and the two do not mix: measure into another folder", before, now)
	}
	if err := sameInputs(old, env); err != nil {
		return env, err
	}
	return resumed(old, env), nil
}

// accelerator returns the kind of machine of a run, for messages.
func accelerator(env result.Environment) string {
	if env.VM == nil {
		return "without a virtual machine"
	}
	return "in a virtual machine (" + env.VM.Accelerator + ")"
}

// inputs returns the SHA-256 sums of the files that the experiment names, by file name.
func inputs(e *experiment.Experiment) (map[string]string, error) {
	files, err := e.Files()
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for name, data := range files {
		sum := sha256.Sum256(data)
		sums[name] = hex.EncodeToString(sum[:])
	}
	return sums, nil
}

// sameInputs returns an error if a file that the experiment names has changed since the resumed run began. Old runs
// have no sums, and are accepted.
func sameInputs(old, env result.Environment) error {
	for _, name := range slices.Sorted(maps.Keys(env.Inputs)) {
		if before := old.Inputs[name]; before != "" && before != env.Inputs[name] {
			return fmt.Errorf(
				"%s has changed since the run began: its trials would be of two files: bring the first one back, from a bundle "+
					"or where the sizes came from, "+
					"or measure anew into another folder", name)
		}
	}
	return nil
}

// resumed returns env with the beginning and the notes of earlier sittings, and with a note for each thing that has
// changed since.
func resumed(old, env result.Environment) result.Environment {
	env.Start, env.Interrupted, env.Nodes, env.Until = old.Start, old.Interrupted, old.Nodes, old.Until
	env.Ports = old.Ports // notePorts replaces them once a lab of this sitting is built
	env.Notes = append(old.Notes, "Resumed on "+time.Now().UTC().Format(time.RFC3339)+".")
	for _, v := range []struct{ what, old, now, then string }{
		{"The program", old.GateweighSHA256, env.GateweighSHA256, old.GateweighVersion},
		{"The kernel", old.Kernel, env.Kernel, old.Kernel},
		{"The CPU", old.CPUModel, env.CPUModel, old.CPUModel},
		{"The number of CPUs", strconv.Itoa(old.CPUs), strconv.Itoa(env.CPUs), strconv.Itoa(old.CPUs)},
		{"The placement", old.Placement, env.Placement, old.Placement},
	} {
		if v.old != v.now {
			env.Notes = append(env.Notes, fmt.Sprintf("%s has changed since the run began (then %s).", v.what, v.then))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Tools)) {
		if now := env.Tools[name]; now != "" && now != old.Tools[name] {
			env.Notes = append(env.Notes, fmt.Sprintf("%s has changed since the run began (then %s).", name, old.Tools[name]))
		}
	}
	return env
}

// tools returns the versions of all programs that the experiment's lab and devices start, by program, and a description
// of each device.
func tools(ctx context.Context, m dut.Machine, e *experiment.Experiment) (map[string]string, error) {
	tools := map[string]string{}
	needs := Needs(e)
	names := e.DUTs
	if len(e.Labs(experiment.Block{})) > 1 {
		names = append([]string{experiment.Clean}, names...)
	}
	for _, name := range names {
		if d, err := dut.New(name, slices.Max(e.Clients), e); err == nil {
			tools["device "+name] = d.Traits().About
			needs = append(needs, d.Traits().Needs...)
		}
	}
	found, err := m.Find(ctx, machine.Query{Needs: needs, Versions: true})
	if err != nil {
		return nil, fmt.Errorf("asking programs for their versions: %w", err)
	}
	for i, n := range needs {
		if found[i].Version != "" {
			tools[n.Program] = cmp.Or(tools[n.Program], found[i].Version)
		}
	}
	return tools, nil
}

// offloads describes how the labs' links and endpoints are set up, for environment.json.
func offloads(e *experiment.Experiment) []string {
	lines := []string{
		"every link: TSO and UDP segmentation off, GRO on, pfifo of 2000 packets (router's ends 10000), threaded NAPI",
		"endpoints: aggregation at its default size",
	}
	labs := e.Labs(experiment.Block{})
	kinds := labs[0].Traffic.Kind
	if kinds == "" {
		return append(lines, "router's links with gro_max_size 1500")
	}
	for _, p := range e.Profiles {
		if p == result.PerPacket {
			lines = append(lines, "profile per-packet: router's links with gro_max_size 1500")
		} else {
			lines = append(lines, "profile bulk: router's links aggregate at the default size")
		}
	}
	if clean := labs[len(labs)-1].Traffic.Kind; clean != kinds {
		kinds += " (" + clean + " at the clean router beside a device)"
	}
	return append(lines, fmt.Sprintf("traffic: %s, bursts of %s, congestion control cubic", kinds, words.Counted(
		e.Traffic.BurstSegments, "segment")))
}
