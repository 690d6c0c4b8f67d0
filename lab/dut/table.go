package dut

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/experiment"
)

// builtin is every device written in Go that does not capture (those do: captures), by the name in experiments; each is
// made for a number of clients. Adding one is a file and a line here.
var builtin = map[string]func(clients int) DUT{
	"clean":       func(int) DUT { return Clean{} },
	"opennds":     func(n int) DUT { return NewOpenNDS(n) },
	"coovachilli": func(n int) DUT { return NewCoovaChilli(n) },

	"floor":     func(int) DUT { return &Floor{} },
	"floor-nat": func(int) DUT { return &Floor{NAT: true} },

	"masquerade":           func(int) DUT { return Forwarder{Masquerade: true} },
	"nftables-flowtable":   func(int) DUT { return Forwarder{Flowtable: true} },
	"flowtable-masquerade": func(int) DUT { return Forwarder{Flowtable: true, Masquerade: true} },

	"nft-queue":        func(n int) DUT { return NewNFTQueue(n) },
	"gateway-ebpf":     func(n int) DUT { return NewGateway("ebpf", n) },
	"gateway-ebpf-nat": func(n int) DUT { return newTranslating("ebpf", n) },
	// A rate far above the load: beside gateway-ebpf it shows what a limit costs.
	"gateway-ebpf-limited": func(n int) DUT { return newLimited("ebpf", n) },
	// Behind a flowtable that masquerades.
	"flowtable-masquerade-gateway": func(n int) DUT { return newBehindFlowtable(n) },
	"gateway-pppoe-ebpf":           func(n int) DUT { return NewConcentrator("ebpf", n) },
	"gateway-pppoe-user":           func(n int) DUT { return NewConcentrator("tun", n) },
	// On Debian's kernel, where there is none here: see docs/kernels.md.
	"gateway-pppoe-kernel": func(n int) DUT { return NewConcentrator("kernel", n) },

	"gateway-pppoe-masquerade":       func(n int) DUT { return newMasquerading("", n) },
	"gateway-pppoe-ident-nat":        func(n int) DUT { return newIdentNAT(n) },
	"gateway-pppoe-ident-masquerade": func(n int) DUT { return newMasquerading(IdentMasquerade, n) },

	"accel-ppp":       func(n int) DUT { return NewAccelPPP(n) },
	"rp-pppoe-kernel": func(n int) DUT { return NewRPPPPoE(true, n) },
	"rp-pppoe-user":   func(n int) DUT { return NewRPPPPoE(false, n) },

	"gateway-nfqueue":      func(n int) DUT { return NewGateway("nfqueue", n) },
	"gateway-nfqueue-fast": func(n int) DUT { return NewGateway("nfqueue-fast", n) },
	"gateway-tun":          func(n int) DUT { return NewGateway("tun", n) },
	"gateway-tun-fast":     func(n int) DUT { return NewGateway("tun-fast", n) },

	"gateway-nfqueue-fast-nat": func(n int) DUT { return newTranslating("nfqueue-fast", n) },
	"gateway-tun-fast-nat":     func(n int) DUT { return newTranslating("tun-fast", n) },
}

// Builtin lists the devices written in Go, by name: what experiment.Load takes
// as known.
func Builtin() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(builtin)), capturing(), tunnels())))
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
	if construct, ok := builtin[name]; ok {
		return construct(clients), nil
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

// newVariant makes a device written in Go in the circumstances an experiment describes:
// with sessions of clients that never send, on a router that does something else too, with another MTU.
func newVariant(name string, clients int, spec experiment.CustomDUT, exp *experiment.Experiment) (DUT, error) {
	if spec.MTU > 0 {
		if tunnelTable[spec.Like] == nil {
			return nil, exp.Blame(
				"dut."+name+".like", fmt.Sprintf("no tunnel is named %q: there is %s", spec.Like, strings.Join(tunnels(), ", ")))
		}
		return newTunnel(spec.Like, spec.MTU), nil
	}
	var able []string
	for _, known := range Builtin() {
		construct, portal := builtin[known]
		if !portal {
			continue
		}
		d, ok := construct(clients).(Counted)
		f, fillable := d.(interface{ Fill(sessions int) })
		if !ok || spec.Sessions > 0 && !fillable {
			continue
		}
		able = append(able, known)
		if known != spec.Like {
			continue
		}
		if spec.Sessions > 0 {
			f.Fill(spec.Sessions)
		}
		if len(spec.Start) > 0 {
			return combined{d, &Custom{name: name, spec: spec}}, nil
		}
		return d, nil
	}
	what := fmt.Sprintf("no portal written in Go is named %q", spec.Like)
	if spec.Sessions > 0 {
		what = fmt.Sprintf("no device %q whose sessions the lab can make", spec.Like)
	}
	return nil, exp.Blame("dut."+name+".like", what+": there is "+strings.Join(able, ", "))
}
