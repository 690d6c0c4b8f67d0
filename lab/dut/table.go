package dut

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// builtin is every device written in Go that neither captures nor makes a tunnel (captures, tunnelTable), and that has
// no parameters (gateways), by the name in experiments. Each is made for a number of clients. Adding one is a file and
// a line here.
var builtin = map[string]func(clients int) DUT{
	"clean":       func(int) DUT { return Clean{} },
	"opennds":     func(n int) DUT { return NewOpenNDS(n) },
	"coovachilli": func(n int) DUT { return NewCoovaChilli(n) },

	"floor":     func(int) DUT { return &Floor{} },
	"floor-nat": func(int) DUT { return &Floor{NAT: true} },

	"masquerade":           func(int) DUT { return Forwarder{Masquerade: true} },
	"nftables-flowtable":   func(int) DUT { return Forwarder{Flowtable: true} },
	"flowtable-masquerade": func(int) DUT { return Forwarder{Flowtable: true, Masquerade: true} },

	"nft-queue": func(n int) DUT { return NewNFTQueue(n) },
	// Behind a flowtable that masquerades.
	"flowtable-masquerade-gateway": func(n int) DUT { return newBehindFlowtable(n) },

	"accel-ppp":       func(n int) DUT { return NewAccelPPP(n) },
	"rp-pppoe-kernel": func(n int) DUT { return NewRPPPPoE(true, n) },
	"rp-pppoe-user":   func(n int) DUT { return NewRPPPPoE(false, n) },
}

// gateways are the names of gatewayd with parameters, those that a table has with like = "gateway".
// Without a path it is "ebpf".
var gateways = map[string]experiment.Variant{
	"gateway-ebpf":     {},
	"gateway-ebpf-nat": {NAT: true},
	// A rate far above the load: beside gateway-ebpf it shows what a limit costs.
	"gateway-ebpf-limited": {Limited: "10G"},

	"gateway-nfqueue":      {Path: experiment.PathNFQueue},
	"gateway-nfqueue-fast": {Path: experiment.PathNFQueueFast},
	"gateway-tun":          {Path: experiment.PathTUN},
	"gateway-tun-fast":     {Path: experiment.PathTUNFast},

	"gateway-nfqueue-fast-nat": {Path: experiment.PathNFQueueFast, NAT: true},
	"gateway-tun-fast-nat":     {Path: experiment.PathTUNFast, NAT: true},

	"gateway-pppoe-ebpf": {PPPoE: true},
	"gateway-pppoe-user": {Path: experiment.PathTUN, PPPoE: true},
	// On Debian's kernel, where there is none here: see docs/kernels.md.
	"gateway-pppoe-kernel": {Path: experiment.PathKernel, PPPoE: true},

	"gateway-pppoe-masquerade":       {PPPoE: true, NAT: true},
	"gateway-pppoe-ident-nat":        {PPPoE: true, Ident: experiment.IdentNAT},
	"gateway-pppoe-ident-masquerade": {PPPoE: true, NAT: true, Ident: experiment.IdentMasquerade},
}

// portals are the names of builtin and of gateways, sorted.
func portals() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(builtin)), maps.Keys(gateways))
	slices.Sort(names)
	return names
}

// newPortal makes the device that builtin or gateways has under a name, or gatewayd with a table's parameters. It is
// nil where there is none.
func newPortal(name string, clients int, params experiment.Variant) DUT {
	if v, known := gateways[name]; known {
		return NewGateway(v, clients)
	}
	if construct, known := builtin[name]; known {
		return construct(clients)
	}
	if name == experiment.Parametrised {
		return NewGateway(params, clients)
	}
	return nil
}

// Builtin lists the devices written in Go, by name: what experiment.Load takes
// as known.
func Builtin() []string {
	return slices.Sorted(slices.Values(slices.Concat(portals(), capturing(), tunnels())))
}

// Names lists every device an experiment may name without describing it, by
// name: those written in Go and those that ship as TOML.
func Names() []string {
	return slices.Sorted(slices.Values(slices.Concat(Builtin(), experiment.ShippedDUTs())))
}

// New makes a device for one lab with the given number of clients: one written in Go, or one described in exp
// (which may be nil) or shipped as TOML. An unknown name is an error that lists
// the known ones.
func New(name string, clients int, exp *experiment.Experiment) (DUT, error) {
	if exp != nil {
		if spec, ok := exp.Custom[name]; ok && spec.Like != "" {
			return newVariant(name, clients, spec, exp)
		} else if ok {
			return newCustom(name, spec), nil
		}
	}
	if name == experiment.AsIs {
		return AsIs{}, nil
	}
	if d := newPortal(name, clients, experiment.Variant{}); d != nil && name != experiment.Parametrised {
		return d, nil
	}
	if i := slices.Index(capturing(), name); i >= 0 {
		return captures[i].construct(Capture{}), nil
	}
	if tunnelTable[name] != nil {
		return newTunnel(name, 0), nil
	}
	if spec, ok := experiment.ShippedDUT(name); ok {
		return newCustom(name, spec), nil
	}
	return nil, fmt.Errorf("unknown device %q: known are %s", name, strings.Join(Names(), ", "))
}

// CheckVariants refuses variants (key like) of devices that do not exist, or whose
// sessions the lab cannot make. Errors name file, line and key.
func CheckVariants(exp *experiment.Experiment) error {
	var errs []error
	for _, name := range exp.CustomNames() {
		if spec := exp.Custom[name]; spec.Like != "" {
			_, err := newVariant(name, 1, spec, exp)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// newVariant makes a device written in Go in the circumstances an experiment describes: with parameters, with sessions
// of clients that never send, on a router that does something else too, with another MTU.
func newVariant(name string, clients int, spec experiment.CustomDUT, exp *experiment.Experiment) (DUT, error) {
	if spec.MTU > 0 {
		if tunnelTable[spec.Like] == nil {
			return nil, exp.Blame(
				"dut."+name+".like", fmt.Sprintf("no tunnel is named %q: there is %s", spec.Like, strings.Join(tunnels(), ", ")))
		}
		return newTunnel(spec.Like, spec.MTU), nil
	}
	made := newPortal(spec.Like, clients, spec.Variant)
	d, counted := made.(Counted)
	f, fillable := fillableOf(made)
	if !counted || spec.Sessions > 0 && !fillable {
		return nil, exp.Blame("dut."+name+".like", noSuchDevice(spec))
	}
	if g, ok := made.(*Gateway); ok && spec.Like == experiment.Parametrised {
		g.about = spec.Description
	}
	if spec.Sessions > 0 {
		f.Fill(spec.Sessions)
	}
	if len(spec.Start) > 0 {
		return withMasquerade{d, &Custom{name: name, spec: spec}}, nil
	}
	return d, nil
}

// fillable is a device that can have sessions of clients that never send.
type fillable interface{ Fill(sessions int) }

// fillableOf is a device as one that can be filled. Concentrators cannot: the lab makes no PPPoE clients that never
// send.
func fillableOf(d DUT) (fillable, bool) {
	if g, ok := d.(*Gateway); ok && g.PPPoE {
		return nil, false
	}
	f, ok := d.(fillable)
	return f, ok
}

// noSuchDevice says that no device is of the kind that a table wants to be like, and which are.
func noSuchDevice(spec experiment.CustomDUT) string {
	what := fmt.Sprintf("no portal written in Go is named %q", spec.Like)
	if spec.Sessions > 0 {
		what = fmt.Sprintf("no device %q whose sessions the lab can make", spec.Like)
	}
	able := slices.DeleteFunc(append(portals(), experiment.Parametrised), func(name string) bool {
		d := newPortal(name, 1, experiment.Variant{})
		_, counted := d.(Counted)
		_, fillable := fillableOf(d)
		return !counted || spec.Sessions > 0 && !fillable
	})
	return what + ": there is " + strings.Join(able, ", ")
}
