package dut

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// constructors is every device that is written in Go. Adding one is a file and
// a line here.
var constructors = map[string]func(clients int) DUT{
	"clean":       func(int) DUT { return NewClean() },
	"opennds":     func(n int) DUT { return NewOpenNDS(n) },
	"coovachilli": func(n int) DUT { return NewCoovaChilli(n) },

	"gateway-ebpf":         func(n int) DUT { return NewGateway("ebpf", n) },
	"gateway-nfqueue":      func(n int) DUT { return NewGateway("nfqueue", n) },
	"gateway-nfqueue-fast": func(n int) DUT { return NewGateway("nfqueue-fast", n) },
}

// Builtin lists the devices written in Go, by name: what experiment.Load takes
// as known.
func Builtin() []string { return slices.Sorted(maps.Keys(constructors)) }

// Names lists every device an experiment may name without describing it, by
// name: those written in Go and those that ship as TOML.
func Names() []string {
	names := slices.Concat(Builtin(), experiment.ShippedDUTs())
	slices.Sort(names)
	return names
}

// New makes a device for one lab with the given number of clients: one written in Go, or one described in exp
// (which may be nil) or shipped as TOML. An unknown name is an error that lists
// the known ones.
func New(name string, clients int, exp *experiment.Experiment) (DUT, error) {
	if exp != nil {
		if spec, ok := exp.Custom[name]; ok {
			return NewCustom(name, spec), nil
		}
	}
	if construct, ok := constructors[name]; ok {
		return construct(clients), nil
	}
	if spec, ok := experiment.ShippedDUT(name); ok {
		return NewCustom(name, spec), nil
	}
	return nil, fmt.Errorf("unknown device %q: known are %s", name, strings.Join(Names(), ", "))
}
