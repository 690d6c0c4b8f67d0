package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// Needs are the programs the lab itself starts for an experiment, beside those
// of its devices.
func Needs(e *experiment.Experiment) []dut.Need {
	list := []dut.Need{{Program: "ethtool", Package: "ethtool", Why: "the links' offloads"}}
	device, clean := e.Sides(experiment.Block{Clients: slices.Max(e.Clients)})
	if client.KindOf(device.Client).Leases || client.KindOf(clean.Client).Leases {
		list = append(list, dut.Need{Program: "dnsmasq", Package: "dnsmasq-base", Why: "leases beside a router that gives none"})
	}
	for _, kind := range slices.Compact([]string{device.Traffic.Kind, clean.Traffic.Kind}) {
		if program := traffic.KindOf(kind).Program; e.Measure == result.MeasureCost && program != "" {
			list = append(list, dut.Need{Program: program, Package: program, Why: "the traffic"})
		}
	}
	return list
}

// checkMachine says what the experiment needs and this machine lacks, all at once.
func checkMachine(e *experiment.Experiment) error {
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("a run needs root: it makes network namespaces (try: sudo gateweigh run …)"))
	}
	for _, n := range Needs(e) {
		if _, err := n.Path(); err != nil {
			errs = append(errs, fmt.Errorf("%s is not on PATH: install the %s", n.Program, n.Remedy()))
		}
	}
	device, clean := e.Sides(experiment.Block{Clients: slices.Max(e.Clients)})
	for _, side := range slices.Compact([]experiment.Side{device, clean}) {
		if most := client.KindOf(side.Client).Most; side.Clients > most {
			errs = append(errs, fmt.Errorf("clients: %d: clients of kind %s go up to %d", side.Clients, side.Client, most))
		}
	}
	return errors.Join(errs...)
}

// fits reports whether a device works with the experiment's kind of client.
func fits(e *experiment.Experiment, t dut.Traits) error {
	ownLAN := t.LAN.IsValid() && t.LAN != testbed.DefaultLAN
	if ownLAN && !t.DHCP {
		return fmt.Errorf("its network is %s, and the lab leases only %s: let it lease addresses itself (dhcp = true): %w", t.LAN, testbed.DefaultLAN, dut.ErrNotSupported)
	}
	if !client.KindOf(e.Client.Kind).Leases && (t.DHCP || ownLAN) {
		leasing := client.Kinds(func(k client.Kind) bool { return k.Leases })[0]
		return fmt.Errorf("it leases addresses, clients of kind %s have static ones; use kind %s: %w", e.Client.Kind, leasing, dut.ErrNotSupported)
	}
	return nil
}

// fitsStorm reports whether a storm of n clients can come over a device.
func fitsStorm(n int, t dut.Traits) error {
	if t.Admission.Kind == client.AdmitNone {
		return fmt.Errorf("its clients do not log in themselves: there is no storm to measure: %w", dut.ErrNotSupported)
	}
	lan := t.LAN
	if !lan.IsValid() {
		lan = testbed.DefaultLAN
	}
	// Not the network, the router, the broadcast and what a lab's hosts have.
	const others = 6
	if room := 1<<(32-lan.Bits()) - others; room < n {
		return fmt.Errorf("its network %s has room for %d clients, not for %d: %w", lan, room, n, dut.ErrNotSupported)
	}
	return nil
}

// environment describes machine and run.
func environment(ctx context.Context, cfg Config, placement testbed.Placement) (result.Environment, error) {
	with, without := cfg.Experiment.Sides(experiment.Block{Clients: slices.Max(cfg.Experiment.Clients)})
	env := result.Environment{
		Experiment: cfg.Experiment.Name, Title: cfg.Experiment.Description, Mode: cfg.Experiment.Mode,
		Command: cfg.Command, Start: time.Now().UTC(), GateweighVersion: cfg.Version,
		Arch: runtime.GOARCH, Placement: placement.String(),
		Offloads: offloads(cfg.Experiment), Tools: tools(ctx, cfg.Experiment), Sysctls: testbed.Sysctls(max(with.Clients, without.Clients)),
	}
	env.Clients = clientsText(cfg.Experiment.Client)
	if device, clean := cfg.Experiment.SidesText(); clean != "" {
		env.Sides = &result.Sides{Device: device, Clean: clean}
	}
	var un unix.Utsname
	if err := unix.Uname(&un); err == nil {
		env.Kernel = unix.ByteSliceToString(un.Release[:]) + " " + unix.ByteSliceToString(un.Version[:])
	}
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err == nil {
		env.MemoryMiB = int64(si.Totalram) * int64(si.Unit) >> 20
	}
	env.CPUModel, env.Virtualisation = cpuInfo()
	var err error
	if env.CPUs, err = meter.OnlineCPUs(); err != nil {
		return env, fmt.Errorf("counting the CPUs: %w", err)
	}
	if env.GateweighSHA256, err = hashSelf(); err != nil {
		return env, fmt.Errorf("hashing the program: %w", err)
	}
	if cfg.Experiment.Measure != result.MeasureCost {
		env.Measure = cfg.Experiment.Measure
	}
	old, err := result.ReadEnvironment(filepath.Join(cfg.Dir, result.EnvironmentFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return env, nil
	case err != nil:
		return env, fmt.Errorf("reading what an earlier sitting says of the machine: %w; without that file the run goes on, and tells of this sitting's machine alone", err)
	}
	return resumed(old, env), nil
}

// clientsText says what stands for clients.
func clientsText(c experiment.Client) string {
	text := "kind " + c.Kind
	if c.Hosts > 1 {
		text += fmt.Sprintf(", on %d hosts behind a switch", c.Hosts)
	}
	return text
}

// resumed keeps the beginning and the notes of earlier sittings, and notes what
// has changed since.
func resumed(old, env result.Environment) result.Environment {
	env.Start, env.Interrupted = old.Start, old.Interrupted
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

// tools are the versions of all programs the experiment's lab and devices
// start, and what each device is.
func tools(ctx context.Context, e *experiment.Experiment) map[string]string {
	found := map[string]string{}
	needs := Needs(e)
	names := append([]string{experiment.Clean}, e.DUTs...)
	if e.Measure == result.MeasureLogins {
		names = e.DUTs // alone in its lab
	}
	for _, name := range names {
		if d, err := dut.New(name, slices.Max(e.Clients), e); err == nil {
			found["device "+name] = d.Traits().About
			needs = append(needs, d.Traits().Needs...)
		}
	}
	for _, n := range needs {
		if found[n.Program] != "" {
			continue
		}
		if v := n.Version(ctx); v != "" {
			found[n.Program] = v
		}
	}
	return found
}

func offloads(e *experiment.Experiment) []string {
	lines := []string{
		"every link: TSO and UDP segmentation off, GRO on, pfifo of 2000 packets (router's ends 10000), threaded NAPI",
		"endpoints: aggregation at its default size",
	}
	if e.Measure == result.MeasureLogins {
		return append(lines, "router's links with gro_max_size 1500")
	}
	for _, p := range e.Profiles {
		if p == result.PerPacket {
			lines = append(lines, "profile per-packet: router's links with gro_max_size 1500")
		} else {
			lines = append(lines, "profile bulk: router's links aggregate at the default size")
		}
	}
	kinds := e.Traffic.Kind
	if _, clean := e.Sides(experiment.Block{}); clean.Traffic.Kind != kinds {
		kinds += " (" + clean.Traffic.Kind + " at the clean router beside a device)"
	}
	return append(lines, fmt.Sprintf("traffic: %s, bursts of %d segments, congestion control cubic", kinds, e.Traffic.BurstSegments))
}

func cpuInfo() (model, virt string) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", ""
	}
	virt = "none seen"
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			model = strings.TrimSpace(value)
		case "flags":
			if slices.Contains(strings.Fields(value), "hypervisor") {
				virt = "hypervisor"
			}
		}
	}
	return model, virt
}

func hashSelf() (string, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
