package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/scratch"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Preview says what a run of an experiment would measure and need. Nothing of the run is started for it.
type Preview struct {
	Experiment  string        `json:"experiment"`
	Description string        `json:"description"`
	Measure     string        `json:"measure"`
	Topology    string        `json:"topology"`
	Dimensions  []Varied      `json:"dimensions"`
	Cells       int           `json:"cells"`   // of the devices that can run here, as Blocks to Hosts are
	Blocks      int           `json:"blocks"`  // with A/A blocks
	Windows     int           `json:"windows"` // windows of all blocks, without repetitions
	Seconds     Seconds       `json:"seconds"`
	FolderMiB   float64       `json:"folder_mib"` // approximate size of the run's folder
	Hosts       []HostNeeds   `json:"hosts"`
	Devices     []DeviceHere  `json:"devices"`
	Limits      []LimitHere   `json:"limits"`
	Mode        string        `json:"mode,omitempty"` // set if a run takes another mode than asked for: its note
	Problems    []string      `json:"problems"`       // why a run would be refused
	Skipped     []result.Skip `json:"-"`
	Plan        []result.Cell `json:"-"`       // the cells, in the order in which they are first measured
	Outlook     string        `json:"machine"` // what other programs use of the machine now
}

// Varied is a dimension with all its values, in the order of the plan.
type Varied struct {
	Dimension result.Dimension `json:"dimension"`
	Values    []string         `json:"values"`
}

// Seconds is the length of a run: an estimate, and a lower and an upper bound where the length depends on the results.
type Seconds struct {
	About float64 `json:"about"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

// HostNeeds is a host of a lab with the programs that the lab itself starts on it.
type HostNeeds struct {
	Host  string     `json:"host"`
	Count int        `json:"count"` // labs at the same time × hosts of that kind
	Needs []dut.Need `json:"needs"`
	Lacks []string   `json:"lacks,omitempty"` // programs that are not there
}

// DeviceHere is a device of an experiment and whether it can run on this machine.
type DeviceHere struct {
	Name    string     `json:"name"`
	Here    bool       `json:"here"`
	Reason  string     `json:"reason,omitempty"`
	Kernel  string     `json:"kernel,omitempty"`  // under which it runs on this machine
	Without string     `json:"without,omitempty"` // the families that it is not measured with, and why
	Needs   []dut.Need `json:"needs"`
}

// LimitHere is a limit of the machine with the experiment's demand for it.
type LimitHere struct {
	What   string `json:"what"`
	Unit   string `json:"unit,omitempty"` // none: counts
	Need   int64  `json:"need"`
	Have   int64  `json:"have"`
	Enough bool   `json:"enough"`
	Raise  string `json:"raise,omitempty"` // the command, where it is not enough
	// Refuses is true if a run is refused when the limit is too low.
	Refuses bool `json:"-"`
}

// Sizes of a run's folder, measured on some fifty runs of 2 to 800 windows: a record with its share of logs, and the
// report without it.
const (
	windowKiB = 4
	reportKiB = 300
)

// PreviewOf says what a run would do with an experiment. It starts only the agent that answers for the machine, and
// needs no rights. open opens the backend. nil: namespaces of this machine.
func PreviewOf(ctx context.Context, m Measure, e *experiment.Experiment, open backend.Open) (p Preview, err error) {
	cfg := Config{Measure: m, Experiment: e, Backend: open}
	hosts, on, done, err := cfg.look(ctx)
	if err != nil {
		return p, err
	}
	defer done()
	on.closed = e.Backend.AgentlessRouter()
	agent := on.router
	can := hosts.Describe()
	e, note, unfit := Fit(can, e)
	demand := DemandOf(e)
	found, _, missing := on.check(ctx, e, demand, can.AtOnce)
	outlook, err := Foresee(ctx, agent, can.CPUs)
	if err != nil {
		return p, err
	}
	p = Preview{
		Experiment: e.Name, Description: e.Description, Measure: e.Measure, Topology: e.Topology, Outlook: outlook.String(),
		Mode: note, Problems: []string{},
	}
	for _, problem := range parts(errors.Join(unfit, missing)) {
		if !errors.Is(problem, errNoRoot) { // a preview needs no rights
			p.Problems = append(p.Problems, problem.Error())
		}
	}
	p.Limits = limitsHere(found, demand)
	if p.Hosts, err = hostNeeds(ctx, on, e); err != nil {
		return p, err
	}
	s := &Session{Experiment: e, Machine: agent, sites: on, cfg: cfg}
	for _, name := range e.DUTs {
		checked, err := s.deviceHere(ctx, name)
		if err != nil {
			return p, err
		}
		p.Devices = append(p.Devices, checked)
		if !checked.Here {
			p.Skipped = append(p.Skipped, result.Skip{DUT: name, Reason: checked.Reason})
		} else if checked.Without != "" {
			p.Skipped = append(p.Skipped, result.Skip{DUT: name, Reason: checked.Without})
		}
	}
	p.extend(e.WithDevices(func(name string) bool {
		return slices.ContainsFunc(p.Devices, func(d DeviceHere) bool { return d.Name == name && d.Here })
	}))
	return p, nil
}

// look opens the backend and its machines without a run's folder. done closes them.
func (c Config) look(ctx context.Context) (hosts backend.Backend, on sites, done func(), err error) {
	folder, remove, err := scratch.New(scratch.Doctor) // for the agents' messages
	if err != nil {
		return nil, on, nil, err
	}
	c.Dir = folder
	if hosts, err = c.open(ctx); err != nil {
		return nil, on, nil, errors.Join(err, remove())
	}
	done = func() {
		on.close()
		hosts.Close()
		remove()
	}
	if on, err = openSites(ctx, hosts); err != nil {
		done()
	}
	return hosts, on, done, blamed(c.Experiment, err)
}

// limitsHere lists the machine's limits with the demand for them.
func limitsHere(m machine.Machine, d Demand) (list []LimitHere) {
	for _, l := range Limits {
		if l.Have(m) == 0 {
			continue
		}
		have, need := l.Have(m)-l.taken(m), l.Need(d)
		limit := LimitHere{What: l.What, Unit: l.Unit, Need: need, Have: have, Enough: need <= have, Refuses: l.Refusal != ""}
		switch {
		case !limit.Enough && l.Raise == "":
			limit.Raise = fmt.Sprintf("about %s: --set clients=%[2]d", words.Agreed(d.Fits(have, l.Need), "client fits",
				"clients fit"), d.Fits(have, l.Need))
		case !limit.Enough:
			limit.Raise = l.Advice(m, d)
		}
		list = append(list, limit)
	}
	return list
}

// parts splits an error into the errors that were joined in it.
func parts(err error) (list []error) {
	switch joined, several := err.(interface{ Unwrap() []error }); {
	case err == nil:
		return nil
	case several:
		for _, part := range joined.Unwrap() {
			list = append(list, parts(part)...)
		}
		return list
	}
	return []error{err}
}

// extend fills in how much an experiment measures.
func (p *Preview) extend(e *experiment.Experiment) {
	p.Dimensions = []Varied{}
	if len(e.DUTs) == 0 {
		return // a run would end at once
	}
	for _, b := range e.Plan() {
		p.Blocks++
		p.Windows += len(b.Cells) * e.Windows
		for _, c := range b.Cells {
			if !b.AA && !b.Control && !slices.Contains(p.Plan, c) {
				p.Plan = append(p.Plan, c)
			}
		}
	}
	p.Cells = len(p.Plan)
	for _, c := range p.Plan {
		for _, v := range c.Values() {
			index := slices.IndexFunc(p.Dimensions, func(d Varied) bool { return d.Dimension == v.Dimension })
			if index < 0 {
				index = len(p.Dimensions)
				p.Dimensions = append(p.Dimensions, Varied{Dimension: v.Dimension})
			}
			if d := &p.Dimensions[index]; !slices.Contains(d.Values, v.Text) {
				d.Values = append(d.Values, v.Text)
			}
		}
	}
	least, most := e.DurationBounds()
	p.Seconds = Seconds{e.EstimatedDuration().Seconds(), least.Seconds(), most.Seconds()}
	p.FolderMiB = float64(reportKiB+windowKiB*p.Windows) / 1024
}

// hostNeeds lists the hosts of the experiment's labs with the programs that the lab starts on each.
func hostNeeds(ctx context.Context, agent dut.Machine, e *experiment.Experiment) (list []HostNeeds, err error) {
	build, err := topology.Named(e.Topology)
	if err != nil {
		return nil, err
	}
	labs := e.LabsAtOnce()
	for _, node := range build(specOf(e)).Nodes {
		if node.Switch {
			continue
		}
		kind := hostKind(node)
		if i := slices.IndexFunc(list, func(h HostNeeds) bool { return h.Host == kind }); i >= 0 {
			list[i].Count += labs
			continue
		}
		h := HostNeeds{Host: kind, Count: labs, Needs: []dut.Need{}}
		for _, need := range Needs(e) {
			if runsOn(need, kind) {
				h.Needs = append(h.Needs, need)
			}
		}
		found, err := agent.Find(ctx, machine.Query{Needs: h.Needs})
		if err != nil {
			return nil, fmt.Errorf("looking for programs: %w", err)
		}
		for i, need := range h.Needs {
			if found[i].Path == "" {
				h.Lacks = append(h.Lacks, need.Program)
			}
		}
		list = append(list, h)
	}
	return list, nil
}

// hostKind returns the common name of hosts with the same programs: "client", "server", "router".
func hostKind(n topology.Node) string {
	if n.Metered {
		return onRouter
	}
	return cmp.Or(string(n.Role), n.Name)
}

// deviceHere says whether a device can run here, and whether it fits the experiment.
func (s *Session) deviceHere(ctx context.Context, name string) (DeviceHere, error) {
	device := DeviceHere{Name: name, Here: true}
	d, err := dut.New(name, slices.Max(append([]int{1}, s.Experiment.Clients...)), s.Experiment)
	if err != nil {
		return device, err
	}
	device.Needs = append([]dut.Need{}, d.Traits().Needs...)
	unfit := s.unfit(name, d.Traits())
	err = cmp.Or(dut.Check(ctx, s.sites, name, d, linkNeeds(s.Experiment.Link)...), unfit)
	switch {
	case errors.Is(err, dut.ErrNotSupported):
		device.Here, device.Reason = false, dut.Reason(name, err)
		if unfit == nil {
			device.Kernel = dut.Kernel(err)
		}
	case err != nil:
		return device, fmt.Errorf("checking %s: %w", name, err)
	default:
		_, device.Without = familyGap(s.Experiment, name)
	}
	return device, nil
}
