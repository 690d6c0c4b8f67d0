package dut

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/quote"
)

// Need is what the lab or a device uses on one of its hosts.
type Need = machine.Need

// Machine finds programs and kernel features on the machine that a DUT is to run on.
type Machine interface {
	// Find looks for programs and features of the kernel, in the order of the query.
	Find(ctx context.Context, q machine.Query) ([]machine.Found, error)
}

// notSupported is the error for a machine that lacks something that a device needs.
type notSupported struct {
	name    string // of the device
	missing string // list of programs and features, with remedies
	kernel  string // name of a kernel under which the device would run on this machine; empty: none is known
}

func (l *notSupported) Error() string {
	return l.name + ": " + l.missing + ": " + ErrNotSupported.Error()
}
func (*notSupported) Unwrap() error { return ErrNotSupported }

// Check reports whether a DUT can run on a machine. It changes nothing. A wrapped ErrNotSupported says what is missing
// and what to install; any other error means that the machine does not answer. others are needs of the experiment
// beside those of the DUT.
func Check(ctx context.Context, m Machine, name string, d DUT, others ...Need) error {
	needs := slices.Concat(d.Traits().Needs, others)
	found, err := m.Find(ctx, machine.Query{Needs: needs, Features: true})
	if err != nil {
		return fmt.Errorf("%s: looking for what it needs: %w", name, err)
	}
	if lacks := missingText(needs, found); lacks != "" {
		return &notSupported{name, lacks, kernelWithMissing(needs, found)}
	}
	return nil
}

// Reason returns the part of Check's error that says what is missing, without the DUT's name and ErrNotSupported's
// text.
func Reason(name string, err error) string {
	return strings.TrimSuffix(strings.TrimPrefix(err.Error(), name+": "), ": "+ErrNotSupported.Error())
}

// Kernel takes Check's error and returns the name of a kernel under which the DUT would run on this machine, for
// gateweigh run --kernel. It is empty when no such kernel is known, and when something other than a kernel feature is
// missing.
func Kernel(err error) string {
	if l, ok := errors.AsType[*notSupported](err); ok {
		return l.kernel
	}
	return ""
}

// Command returns the shell command that measures one DUT under another kernel. start is its beginning: "gateweigh run
// quick".
func Command(kernel, start, name string) string {
	return start + " " + quote.Command("--kernel", kernel, "--set", "duts="+name)
}

// Locate returns a copy of needs with Path filled in for programs that may be in the folder of the lab's own program
// (NextToLab).
func Locate(ctx context.Context, m Machine, needs []Need) ([]Need, error) {
	found, err := m.Find(ctx, machine.Query{Needs: needs})
	if err != nil {
		return nil, fmt.Errorf("looking for programs: %w", err)
	}
	needs = slices.Clone(needs)
	for i := range needs {
		if needs[i].NextToLab {
			needs[i].Path = cmp.Or(found[i].Path, needs[i].Program)
		}
	}
	return needs, nil
}

// missingText lists the needs that a machine does not meet, each with its remedy; it is empty when nothing is missing.
// The list is sorted, so that reports of two runs can be compared as text.
func missingText(needs []Need, found []machine.Found) string {
	byRemedy := map[string][]string{}
	var list, packages, texts []string
	for i, n := range needs {
		switch f := found[i]; {
		case n.Absent(f):
			byRemedy[n.Remedy()] = append(byRemedy[n.Remedy()], n.Program)
			if n.Package != "" {
				packages = append(packages, n.Package)
			}
		case f.Broken != "":
			texts = append(texts, fmt.Sprintf("%s does not start: %s", f.Path, f.Broken))
		case f.NotPermitted != "":
			texts = append(texts, f.NotPermitted)
		case f.FeatureError != "":
			text := fmt.Sprintf("the kernel lacks %s: %s", n.KernelFeature(), f.FeatureError)
			texts = append(texts, strings.TrimSuffix(text, fmt.Sprintf(": %s is not set", n.KernelFeature()))) // of an option
		}
	}
	for remedy, names := range byRemedy {
		slices.Sort(names)
		list = append(list, fmt.Sprintf("%s (%s)", strings.Join(names, ", "), remedy))
	}
	slices.Sort(list)
	slices.Sort(texts)
	texts = slices.Compact(texts)
	if len(packages) > 0 {
		slices.Sort(packages)
		texts = append([]string{"sudo apt-get install " + strings.Join(slices.Compact(packages), " ")}, texts...)
	}
	if len(list) > 0 {
		texts = append([]string{"not on PATH: " + strings.Join(list, ", ")}, texts...)
	}
	return strings.Join(texts, "; ")
}
