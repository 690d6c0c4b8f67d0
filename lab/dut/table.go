package dut

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// builtin lists devices that are written in Go, by their names in experiments. Capture programs are in captures,
// tunnels in tunnelTable, and gatewayd with parameters in gateways. Each function makes the device for a number of
// clients. Adding a device takes a file and a line here.
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
	"flowtable-masquerade-gateway": func(n int) DUT { return newFlowtableGateway(n) },

	"gateway-pair": func(n int) DUT { return newGatewayPair(n) },

	"gateway-roaming": func(n int) DUT { return newRoaming(n) },
	"gateway-two":     func(n int) DUT { return newTwo(func() portalDUT { return NewGateway(experiment.Variant{}, n) }) },
	"opennds-two":     func(n int) DUT { return newTwo(func() portalDUT { return NewOpenNDS(n) }) },
	"coovachilli-two": func(n int) DUT { return newTwo(func() portalDUT { return NewCoovaChilli(n) }) },

	"accel-ppp":       func(n int) DUT { return NewAccelPPP(n) },
	"rp-pppoe-kernel": func(n int) DUT { return NewRPPPPoE(true, n) },
	"rp-pppoe-user":   func(n int) DUT { return NewRPPPPoE(false, n) },
}

// gateways lists gatewayd with fixed parameters, by names in experiments. An experiment can set the same parameters
// itself, in a table with like = "gateway". The default data path is "ebpf".
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
	// It needs a kernel with PPPoE; gateweigh can run one in a virtual machine: see docs/kernels.md.
	"gateway-pppoe-kernel": {Path: experiment.PathKernel, PPPoE: true},

	"gateway-pppoe-masquerade":       {PPPoE: true, NAT: true},
	"gateway-pppoe-ident-nat":        {PPPoE: true, Ident: experiment.IdentNAT},
	"gateway-pppoe-ident-masquerade": {PPPoE: true, NAT: true, Ident: experiment.IdentMasquerade},
}

// portals lists the names of builtin and gateways, sorted.
func portals() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(builtin)), maps.Keys(gateways))
	slices.Sort(names)
	return names
}

// newPortal makes a device of builtin or gateways by its name. The name experiment.Parametrised makes gatewayd with
// params. It returns nil for an unknown name.
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

// Builtin lists the names of all devices written in Go, sorted.
func Builtin() []string {
	return slices.Sorted(slices.Values(slices.Concat(portals(), capturing(), tunnels())))
}

// Names lists every device that an experiment may name without describing it, sorted: those written in Go and those
// that ship as TOML files.
func Names() []string {
	return slices.Sorted(slices.Values(slices.Concat(Builtin(), experiment.ShippedDUTs())))
}

// New makes a device for one lab with a number of clients. The name is of a device that is written in Go, described in
// exp (which may be nil), or shipped as a TOML file. An unknown name is an error that lists the known ones.
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

// CheckVariants checks the experiment's variants (key like). It refuses variants of unknown devices, and variants with
// sessions (key sessions) of devices for which the lab cannot make silent clients. Errors name file, line and key.
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

// newVariant makes a device written in Go with what an experiment changes about it: parameters, sessions of silent
// clients, commands that set up the router before the device starts, or another MTU.
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
		return withSetup{d, &Custom{name: name, spec: spec}}, nil
	}
	return d, nil
}

// fillable is a device that can have sessions of silent clients; see Gateway.Fill.
type fillable interface{ Fill(sessions int) }

// fillableOf returns a device as a fillable, and whether it is one. PPPoE concentrators are not, because the lab makes
// no silent PPPoE clients.
func fillableOf(d DUT) (fillable, bool) {
	if g, ok := d.(*Gateway); ok && g.PPPoE {
		return nil, false
	}
	f, ok := d.(fillable)
	return f, ok
}

// noSuchDevice is the message for a table whose key like names no suitable device. It lists the suitable ones.
func noSuchDevice(spec experiment.CustomDUT) string {
	message := fmt.Sprintf("no portal written in Go is named %q", spec.Like)
	if spec.Sessions > 0 {
		message = fmt.Sprintf("no device %q whose sessions the lab can make", spec.Like)
	}
	able := slices.DeleteFunc(append(portals(), experiment.Parametrised), func(name string) bool {
		d := newPortal(name, 1, experiment.Variant{})
		_, counted := d.(Counted)
		_, fillable := fillableOf(d)
		return !counted || spec.Sessions > 0 && !fillable
	})
	return message + ": there is " + strings.Join(able, ", ")
}
