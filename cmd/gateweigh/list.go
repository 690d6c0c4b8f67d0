package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
)

// listing is what list --json prints.
type listing struct {
	Version     int                `json:"version"`
	Experiments []listedExperiment `json:"experiments"`
	Devices     []listedDevice     `json:"devices"`
}

type listedExperiment struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Devices     []string  `json:"devices"`
	Here        []string  `json:"devices_here"` // those of Devices that can run on this machine
	Measure     string    `json:"measure"`
	Clients     []int     `json:"clients"`
	OfferedMbps []float64 `json:"offered_mbps,omitempty"`
	PerClient   []float64 `json:"mbps_per_client,omitempty"`
	Kpps        []float64 `json:"offered_kpps,omitempty"`
	FrameSizes  []string  `json:"frame_sizes,omitempty"`
	LoginRates  []float64 `json:"login_rates,omitempty"`
	// Sides is set when the labs of a pair differ in more than the device.
	Sides *result.Sides `json:"sides,omitempty"`
	// Cells, Blocks and the estimates count only devices that can run on this machine.
	Cells            int        `json:"cells"`
	Blocks           int        `json:"blocks"` // A/A blocks, with a clean router on both sides, included
	Windows          int        `json:"windows"`
	WindowSeconds    float64    `json:"window_seconds"`
	EstimatedSeconds float64    `json:"estimated_seconds"`
	LeastSeconds     float64    `json:"least_seconds"` // and MostSeconds: see experiment.Experiment.DurationBounds
	MostSeconds      float64    `json:"most_seconds"`
	Needs            []dut.Need `json:"needs"` // programs that the lab needs, besides root

	file  []byte // the experiment as TOML, with defaults
	words experiment.Description
}

type listedDevice struct {
	Name      string     `json:"name"`
	About     string     `json:"about"`
	Here      bool       `json:"here"`
	Reason    string     `json:"reason,omitempty"`  // why it cannot run here
	Kernel    string     `json:"kernel,omitempty"`  // a kernel for run --kernel under which it can run
	Command   string     `json:"command,omitempty"` // the command that runs it under that kernel
	Admission string     `json:"admission"`
	DHCP      bool       `json:"dhcp"`               // it leases addresses itself
	Forwards  string     `json:"forwards,omitempty"` // "IPv4 and IPv6"; empty: IPv4 alone
	Needs     []dut.Need `json:"needs"`
}

func listCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [NAME]",
		Short: "List experiments and devices: requirements, duration, and whether they can run here",
		Long: "Lists experiments and devices. With a NAME, shows the details of that one, and for an experiment also its " +
			"file.",
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := makeListing(cmd)
			if err != nil {
				return err
			}
			details := len(args) == 1
			if details {
				if all, err = all.named(args[0]); err != nil {
					return &exitError{exitUsage, err}
				}
			}
			if asJSON {
				return report.JSON(stdout, all)
			}
			all.write(stdout, terminalWidth(os.Stdout), details)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the list as JSON")
	return cmd
}

func makeListing(cmd *cobra.Command) (listing, error) {
	all := listing{Version: 1}
	local, err := backend.Local(cmd.Context(), backend.Options{Run: "list"})
	if err != nil {
		return all, err
	}
	host, err := local.Machine(cmd.Context())
	if err != nil {
		return all, err
	}
	defer host.Stop()
	here := map[string]bool{}
	for _, name := range dut.Names() {
		d, err := dut.New(name, 1, nil)
		if err != nil {
			return all, err
		}
		traits := d.Traits()
		l := listedDevice{Name: name, About: traits.About, Here: true, Admission: admission(name, traits), DHCP: traits.DHCP,
			Forwards: traits.FamiliesText(),
			Needs:    append([]dut.Need{}, traits.Needs...)}
		if l.Needs, err = dut.Locate(cmd.Context(), host, l.Needs); err != nil {
			return all, err
		}
		if err := dut.Check(cmd.Context(), host, name, d); err != nil {
			l.Here = false
			l.Reason = dut.Reason(name, err)
			l.Kernel = dut.Kernel(err)
		}
		if l.Kernel != "" {
			l.Command = dut.Command(l.Kernel, "gateweigh run "+measure.All().For(name).Name, name)
		}
		here[name] = l.Here
		all.Devices = append(all.Devices, l)
	}
	for _, e := range measure.Catalogue().Builtins() {
		listed, err := listExperiment(cmd.Context(), e, host, here)
		if err != nil {
			return all, err
		}
		all.Experiments = append(all.Experiments, listed)
	}
	return all, nil
}

// admissions says, by the kind of admission, what a client does before the device forwards its traffic.
var admissions = map[string]string{
	client.AdmitOpenNDS: "each client clicks through a splash page",
	client.AdmitUAM:     "each client logs in with a RADIUS account (UAM, CHAP)",
	client.AdmitForm:    "each client fills in a login page with a RADIUS account",
	client.AdmitCommand: "each client runs a command",
}

func admission(name string, t dut.Traits) string {
	if spec, ok := experiment.ShippedDUT(name); ok && len(spec.Admit) > 0 && t.Admission.Kind == "" {
		return "a command on the router, for all clients at once"
	}
	return cmp.Or(admissions[t.Admission.Kind], "none")
}

// listExperiment describes an experiment as this machine would run it. here tells which of the built-in devices can
// run; the experiment's own devices (its tables [dut.NAME]) are checked on the host asked.
func listExperiment(ctx context.Context, e *experiment.Experiment, asked dut.Machine, here map[string]bool) (
	listedExperiment, error) {
	here = maps.Clone(here)
	for name := range e.Custom {
		d, err := dut.New(name, 1, e)
		if err != nil {
			return listedExperiment{}, err
		}
		here[name] = dut.Check(ctx, asked, name, d) == nil
	}
	possible := e.WithDevices(func(name string) bool { return here[name] })
	l := listedExperiment{
		Name: e.Name, Description: e.Description, Devices: e.DUTs, Here: possible.DUTs,
		Measure: e.Measure, Clients: e.Clients, OfferedMbps: e.OfferedMbps, PerClient: e.MbpsPerClient,
		Windows: e.Windows, WindowSeconds: e.Window.Seconds(), Needs: runner.Needs(e), file: e.Encode(), words: e.Describe(),
	}
	if !e.Applies("clients") {
		l.Clients = nil
	}
	l.Kpps, l.FrameSizes = e.OfferedKpps, e.FrameSizes
	l.LoginRates, _ = e.Value("login_rates").([]float64)
	if device, clean := e.SidesText(); clean != "" {
		l.Sides = &result.Sides{Device: device, Clean: clean}
	}
	if len(possible.DUTs) == 0 {
		return l, nil // a run would end at once, so there is nothing to count
	}
	cells := map[result.Cell]bool{} // true: measured against the clean router; false: in A/A blocks only
	for _, b := range possible.Plan() {
		l.Blocks++
		for _, c := range b.Cells {
			cells[c] = cells[c] || !b.AA
		}
	}
	for _, measured := range cells {
		if measured {
			l.Cells++
		}
	}
	l.EstimatedSeconds = possible.EstimatedDuration().Seconds()
	least, most := possible.DurationBounds()
	l.LeastSeconds, l.MostSeconds = least.Seconds(), most.Seconds()
	return l, nil
}

// named keeps the experiments and devices of that name; an unknown name is an error.
func (l listing) named(name string) (listing, error) {
	var names []string
	for _, e := range l.Experiments {
		names = append(names, e.Name)
	}
	for _, d := range l.Devices {
		names = append(names, d.Name)
	}
	l.Experiments = slices.DeleteFunc(l.Experiments, func(e listedExperiment) bool { return e.Name != name })
	l.Devices = slices.DeleteFunc(l.Devices, func(d listedDevice) bool { return d.Name != name })
	if len(l.Experiments)+len(l.Devices) == 0 {
		if name == experiment.AsIs {
			return l, fmt.Errorf("%s is a router that nobody logs in to: docs/machines.md says how to describe it", name)
		}
		if slices.Contains(measure.Catalogue().MeasureNames(), name) {
			return l, fmt.Errorf("%s is a measure: docs/experiments.md says what it is for", name)
		}
		slices.Sort(names)
		return l, fmt.Errorf("nothing is called %q%s; there are %s", name, near.Suggestion(name, names),
			strings.Join(slices.Compact(names), ", "))
	}
	return l, nil
}

// nameColumn is where the text beside a name begins.
const nameColumn = 18

func (l listing) write(w io.Writer, width int, details bool) {
	if len(l.Experiments) > 0 {
		fmt.Fprint(w, "EXPERIMENTS\n\n")
	}
	for _, e := range l.Experiments {
		writeWrapped(w, e.Name, nameColumn, width, e.text()...)
		fmt.Fprintln(w)
		if details {
			fmt.Fprintf(w, "%s\n", e.file)
		}
	}
	if len(l.Devices) > 0 {
		fmt.Fprint(w, "DEVICES\n\n")
	}
	for i, d := range l.Devices {
		writeWrapped(w, d.Name, nameColumn, width, d.text(details)...)
		if i < len(l.Devices)-1 || !details {
			fmt.Fprintln(w)
		}
	}
	if !details {
		writeWrapped(w, "", 0, width,
			"gateweigh list NAME shows the details of one, gateweigh doctor what to do about what is missing.")
	}
}

func (e listedExperiment) text() []string {
	lines := []string{e.Description}
	if len(e.Here) == 0 {
		return append(lines, "none of its devices can run here: "+strings.Join(e.Devices, ", "))
	}
	duration := durationText(runner.Seconds{About: e.EstimatedSeconds, Least: e.LeastSeconds, Most: e.MostSeconds})
	takes := "takes " + duration + ": " + words.Counted(e.Cells, "cell") + " in " +
		words.Counted(e.Blocks, e.words.Block) + e.words.Contents
	clients := e.words.Doing
	switch {
	case len(e.Clients) == 1:
		clients = words.Counted(e.Clients[0], "client") + " " + clients
	case len(e.Clients) > 0:
		clients = experiment.Series(e.Clients) + " clients " + clients
	}
	lines = append(lines, takes, clients+"; devices here: "+strings.Join(e.Here, ", ")+e.absent())
	if e.Sides != nil {
		lines = append(lines, "compares two labs that differ: "+e.Sides.Device+" against "+e.Sides.Clean)
	}
	return append(lines, "needs root, "+programs(e.Needs))
}

// absent returns a clause with the experiment's devices that cannot run here.
func (e listedExperiment) absent() string {
	left := slices.DeleteFunc(slices.Clone(e.Devices), func(d string) bool { return slices.Contains(e.Here, d) })
	if len(left) == 0 {
		return ""
	}
	return "; not here: " + strings.Join(left, ", ")
}

func (d listedDevice) text(details bool) []string {
	lines := []string{d.About}
	admission := "admission: " + d.Admission
	if d.Forwards != "" {
		admission += "; forwards " + d.Forwards
	}
	if d.DHCP {
		admission += "; leases addresses itself"
	}
	switch {
	case d.Here:
		admission = "runs here; " + admission
	case d.Kernel != "":
		lines = append(lines, "not here: "+d.Reason, "runs with --kernel "+d.Kernel+": `"+d.Command+"`")
	default:
		lines = append(lines, "not here: "+d.Reason)
	}
	lines = append(lines, admission)
	switch {
	case len(d.Needs) == 0:
		lines = append(lines, "needs nothing but root and the kernel")
	case !details:
		lines = append(lines, "needs root, "+programs(d.Needs))
	default:
		for _, n := range d.Needs {
			if n.Program != "" {
				lines = append(lines, fmt.Sprintf("needs %s for %s: %s", n.Program, n.Why, n.Remedy()))
			}
		}
		lines = append(lines, featureLines(d.Needs)...)
	}
	return lines
}

// programs returns the programs and kernel features that needs name, each once.
func programs(needs []dut.Need) string {
	var names []string
	for _, n := range needs {
		if name := cmp.Or(n.Program, string(n.Feature)); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// featureLines returns, each once, a line for every kernel feature in needs, with the kernel options it consists of.
func featureLines(needs []dut.Need) (lines []string) {
	for _, n := range needs {
		var options []string
		for _, p := range n.KernelFeature().Parts() {
			options = append(options, p.Option)
		}
		if line := fmt.Sprintf("needs of the kernel %s: %s", n.KernelFeature(), strings.Join(options, ", ")); len(
			options) > 0 && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// roundedText returns an estimate as text, rounded to ten seconds where it is between one minute and ten.
func roundedText(d time.Duration) string {
	if d >= time.Minute && d < 10*time.Minute {
		d = d.Round(10 * time.Second)
	}
	return words.Lasting(d)
}
