package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/neighbour"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/routes"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
)

// shared removes what kinds share, in this order: devices are gone before the rule on frames, which a daemon puts back
// while it has its device.
var shared = []struct {
	what   datapath.Shared
	remove func(lan string) error
}{
	{datapath.Neighbours, neighbour.Remove},
	{datapath.Routes, routes.Remove},
	{datapath.Frames, guard.RemoveFrames},
	{datapath.Guarding, guard.Remove},
}

// kindOf returns the kind that a configuration names. One that there is not can be neither checked nor opened.
func kindOf(cfg *config.Config) datapath.Kind {
	name := cfg.Datapath.Kind
	if i := slices.IndexFunc(kinds.All, func(k datapath.Kind) bool { return k.Name == name }); i >= 0 {
		return kinds.All[i]
	}
	err := fmt.Errorf("no data path %q", name)
	return datapath.Kind{
		Traits: datapath.Traits{Name: name}, Check: func(datapath.Setup) error { return err },
		Open: func(datapath.Setup) (datapath.Running, error) { return datapath.Running{}, err },
	}
}

// removeLeft removes everything that data paths of some kinds left, except things that several kinds share.
func removeLeft(s datapath.Setup, matches func(datapath.Kind) bool) (err error) {
	for _, k := range kinds.All {
		if matches(k) {
			err = errors.Join(err, k.Leave(s))
		}
	}
	return err
}

// removeShared removes some of the things that several kinds of data paths share.
func removeShared(lan string, matches func(datapath.Shared) bool) (err error) {
	for _, r := range shared {
		if matches(r.what) {
			err = errors.Join(err, r.remove(lan))
		}
	}
	return err
}

// leaveFormer removes everything that data paths of other kinds than this one left. It also removes neighbours and
// routes when nothing else is left: they remain where other programs removed the data path's programs or rules.
func leaveFormer(own datapath.Kind, s datapath.Setup) error {
	return errors.Join(removeLeft(s, func(k datapath.Kind) bool { return k.Name != own.Name }),
		removeShared(s.LAN(), func(shared datapath.Shared) bool { return !slices.Contains(own.Shares, shared) }))
}

// leftBy reports whether a data path of any kind left something that shows it.
func leftBy(s datapath.Setup) bool {
	return slices.ContainsFunc(kinds.All, func(k datapath.Kind) bool { return k.Left != nil && k.Left(s) })
}

// inSight checks that all that data paths left can be seen.
func inSight(s datapath.Setup) (err error) {
	for _, k := range kinds.All {
		if k.InSight != nil {
			err = errors.Join(err, k.InSight(s))
		}
	}
	return err
}

// clientInterface returns the interface on which the kernel receives clients' packets; "" where each client has its own
// interface.
func clientInterface(cfg *config.Config) string {
	if k := kindOf(cfg); k.Interface != nil {
		return k.Interface(setup(cfg))
	}
	return cfg.LAN.Interface
}

// networksOf returns the networks with clients.
func networksOf(cfg *config.Config) []datapath.Network {
	l := cfg.LAN
	return []datapath.Network{{Name: cmp.Or(cfg.Name, "lan"), Interface: l.Interface, Address: l.Address,
		Outside: outsideOf(cfg), Address6: l.Address6, Inbound6: l.Inbound6}}
}

// outsideOf returns the networks outside the LAN of which clients on PPPoE have addresses.
func outsideOf(cfg *config.Config) []netip.Prefix {
	if !cfg.PPPoE.Enabled {
		return nil
	}
	return cfg.PPPoE.Networks
}

// networks4 returns the IPv4 networks of clients' addresses.
func networks4(cfg *config.Config) []netip.Prefix {
	return append([]netip.Prefix{cfg.LAN.Network()}, outsideOf(cfg)...)
}

// claimed returns the gateway's claims on its interfaces: for itself alone, or shared with other gateways.
func claimed(cfg *config.Config) []datapath.Claim {
	if cfg.Name != "" { // whose daemon claims the WAN for all networks
		return datapath.ExclusiveClaims(cfg.LAN.Interface)
	}
	if kindOf(cfg).OwnWAN {
		return datapath.ExclusiveClaims(cfg.LAN.Interface, cfg.WAN.Interface)
	}
	return datapath.Sharing(cfg.LAN.Interface, cfg.WAN.Interface)
}

// crossings returns the interfaces at which forwarding must be switched on, because the kernel receives packets there
// that it forwards to or for clients. Where each client has its own interface, that one forwards already.
func crossings(cfg *config.Config) []string {
	if clients := clientInterface(cfg); clients != "" {
		return []string{clients, cfg.WAN.Interface}
	}
	return []string{cfg.WAN.Interface}
}

// Capabilities returns the capabilities that the daemon's data paths need once the daemon serves, besides those that
// all kinds of data path need.
func Capabilities(cfg *config.Config) []int {
	kind := kindOf(cfg)
	if len(cfg.Networks) > 0 || cfg.Pair.Site != "" { // which open it again
		return slices.Concat(kind.Capabilities, kind.Opening)
	}
	return kind.Capabilities
}

// WithoutDaemon describes what happens to logged-in clients while no daemon runs.
func WithoutDaemon(cfg *config.Config) string {
	switch alone := kindOf(cfg).Outlives; alone {
	case 0:
		return "nothing of the clients' passes until it is started again"
	case datapath.Forever:
		return "clients that are logged in go on"
	default:
		return fmt.Sprintf("clients that are logged in go on while their keeper runs, for %s at most (gatewayd detach "+
			"ends them)", alone)
	}
}
