package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/gateway/forwarding"
	"github.com/gateweigh/gateweigh/gateway/ident"
	"github.com/gateweigh/gateweigh/gateway/nat"
	"github.com/gateweigh/gateweigh/gateway/netfilter/connlimit"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
)

// ErrNotHere is returned where a gateway's interface does not exist in this network namespace. Something of the gateway
// may then be left in another one.
var ErrNotHere = errors.New("nothing of a gateway is to be found in this network namespace")

// ErrBusy is returned while another gateway has an interface.
var ErrBusy = datapath.ErrBusy

// Detach removes everything of a gateway from the kernel, whatever its data path was, and switches forwarding off where
// the gateway switched it on. PPPoE clients are told that their sessions have ended, and so are RADIUS servers. What
// does not exist is no error. While a daemon runs, Detach fails with datapath.ErrBusy unless forced; the daemon then
// continues without anything in the kernel. A daemon with NFQUEUE keeps or restores its rules and must end first.
func Detach(cfg *config.Config, force bool) error { return detach(cfg, setup(cfg), force) }

// closeNetwork is Detach for one of several networks that a daemon no longer serves: the guard keeps its LAN closed.
func closeNetwork(cfg *config.Config) error {
	s := setup(cfg)
	s.StayClosed = true
	return detach(cfg, s, false)
}

func detach(cfg *config.Config, s datapath.Setup, force bool) error {
	kind := kindOf(cfg)
	if !LANIsHere(cfg) && !force && !guard.IsShut(s.LAN()) && !leftBy(s) {
		return fmt.Errorf(
			"%w: neither the interface %s nor what guards it: if it is in another network namespace, detach there (nsenter "+
				"--net=/run/netns/NAME); if it is gone for good, detach --force removes what is pinned",
			ErrNotHere, s.LAN())
	}
	locks, err := datapath.Lock(claimed(cfg)...)
	if err != nil && !(force && errors.Is(err, datapath.ErrBusy)) {
		return err
	}
	defer locks.Close()
	if err := inSight(s); err != nil {
		return err
	}
	farewells := farewell(cfg) // the kernel is left clean all the same
	var shut error
	if !kind.LeavesClosed && guard.IsShut(s.LAN()) {
		// The LAN stays closed until the guard is removed last, or where that fails.
		shut = guard.Guard{LAN: s.LAN()}.Know()
	}
	err = errors.Join(
		shut, forwardingSwitch(cfg).Off(), removeLeft(s, func(k datapath.Kind) bool { return !k.LeavesClosed }),
		removeShared(s.LAN(), func(shared datapath.Shared) bool { return shared != datapath.Guarding }),
		ident.RemoveWatch(identPins(cfg)))
	if err != nil {
		return err
	}
	// After what else can fail, because these take the guard with them.
	if err = removeLeft(s, func(k datapath.Kind) bool { return k.LeavesClosed }); err != nil {
		return err
	}
	// A daemon that holds the table lets go of it once it notices that the rest is gone.
	if err = errors.Join(nat.Remove(nat.Table(s.LAN())), connlimit.Remove(s.LAN())); err != nil {
		return err
	}
	if !s.StayClosed {
		err = guard.Remove(s.LAN())
	}
	// The flow log's last: a daemon puts its rule back until it notices that the rest is gone, and its folder may be bad.
	return errors.Join(
		err, farewells, flowlog.Undo(flowlog.NoteIn(cfg.FlowLog.Folder), s.LAN()), signOff(cfg))
}

// Guard has the kernel forward nothing from or to a LAN until a gateway runs, also if its interface appears later. It
// fails with datapath.ErrBusy while a gateway runs, which keeps its LAN closed itself.
func Guard(lan string) error {
	lock, err := datapath.Lock(datapath.ExclusiveClaims(lan)...)
	if err != nil {
		return err
	}
	defer lock.Close()
	return guard.Guard{LAN: lan}.Shut()
}

// LeftInKernel reports whether anything of a gateway is in the kernel: programs, a device, rules, or the guard.
func LeftInKernel(cfg *config.Config) bool {
	return Pinned(cfg) || ident.LeftInKernel(identPins(cfg)) || leftBy(setup(cfg)) || guard.IsShut(cfg.LAN.Interface) ||
		nat.LeftInKernel(nat.Table(cfg.LAN.Interface)) || connlimit.LeftInKernel(cfg.LAN.Interface)
}

// Pinned reports whether programs and maps are pinned. Pins belong to the machine and not to the network namespace: the
// programs may be on interfaces of another one.
func Pinned(cfg *config.Config) bool {
	_, err := os.Stat(cfg.Datapath.PinDir)
	return err == nil
}

// LANIsHere reports whether the LAN's interface is in this network namespace.
func LANIsHere(cfg *config.Config) bool {
	_, err := net.InterfaceByName(cfg.LAN.Interface)
	return err == nil
}

// forwardingSwitch is the switch of the kernel's forwarding. Its note is in state_dir, because service managers remove
// run_dir when they stop a service.
func forwardingSwitch(cfg *config.Config) forwarding.Switch {
	return forwarding.Switch{NotePath: filepath.Join(cfg.StateDir, "forwarding"), LAN: cfg.LAN.Interface}
}

// portalPorts returns the TCP ports the portal listens on, the one for plain HTTP first.
func portalPorts(p config.Portal) []uint16 {
	switch {
	case !p.Enabled:
		return nil
	case p.TLSCert == "":
		return []uint16{p.Port}
	}
	return []uint16{p.Port, p.TLSPort}
}

// servicePorts returns the portal's ports, which clients reach before they log in; with home it includes homePort.
func servicePorts(cfg *config.Config, home bool) []uint16 {
	all := portalPorts(cfg.Portal)
	if home {
		all = append(all, webPort)
	}
	return all
}

// KeepVerb is the command of gatewayd that calls RunKeeper. Its argument is the format of its log.
const KeepVerb = "keep"

// keeperCommand returns the command that runs this program as a keeper (package keeper). It writes to the daemon's
// standard error, even when the daemon has ended.
func keeperCommand(cfg *config.Config) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", KeepVerb, cfg.LogFormat)
	cmd.Args[0] = "gatewayd"
	cmd.Stderr = os.Stderr
	return cmd
}

// RunKeeper is what the keeper's process does: it serves on the socket that the daemon has given it.
func RunKeeper(listener *os.File, log *slog.Logger) error {
	for _, k := range kinds.All {
		if k.Keep != nil {
			return k.Keep(listener, log)
		}
	}
	return errors.New("no data path needs a keeper")
}

// pppoeSessions returns how many PPPoE sessions there can be at once: pppoe.sessions, or the number of addresses for
// them where that is smaller.
func pppoeSessions(cfg *config.Config) int {
	addresses := 0
	for _, r := range cfg.PPPoE.Pools {
		addresses += r.Size()
	}
	if cfg.Auth.Has(config.MethodRADIUS) { // which may give any address of the LAN
		addresses = 1<<(32-cfg.LAN.Address.Bits()) - 3 // but the network's, the gateway's and the broadcast address
		for _, p := range cfg.PPPoE.Networks {
			addresses += 1 << (32 - p.Bits())
		}
	}
	return min(cfg.PPPoE.MaxSessions, addresses)
}

// setup converts a configuration to a data path's Setup, as far as Check and Leave need it.
func setup(cfg *config.Config) datapath.Setup {
	d := cfg.Datapath
	return datapath.Setup{
		Kind: d.Kind, Networks: networksOf(cfg), WAN: cfg.WAN.Interface,
		PortalPorts: portalPorts(cfg.Portal), PPPoE: cfg.PPPoE.Enabled, Sessions: pppoeSessions(cfg),
		Flows: cfg.FlowLog.Enabled, DHCP: cfg.DHCP.Mode != config.External && len(cfg.DHCP.Relays) == 0,
		Shared: sharedPins(cfg), Reaches: cfg.Reached,
		Keeper: func() *exec.Cmd { return keeperCommand(cfg) },
		Fast:   d.Fast, Device: d.Device, Forward: d.Forward, FlowCache: d.FlowCache, Shaping: d.Shaping, PinDir: d.PinDir,
	}
}

// sharedPins is the folder of pins of what several networks share; "": there is one network. No network has its name.
func sharedPins(cfg *config.Config) string {
	if cfg.Name == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(cfg.Datapath.PinDir), "_shared")
}

// openPath opens the configured data path.
func (g *gateway) openPath(context.Context) (o opened, err error) {
	kind, s := kindOf(g.cfg), setup(g.cfg)
	s.PortalPorts, s.Log = servicePorts(g.cfg, g.homeListens), g.log
	switch {
	case g.cfg.DHCP.Mode == config.External:
		s.Newcomer = g.newcomer
	case g.cfg.DHCP.Claims:
		s.Newcomer = g.claimant
	}
	if g.cfg.Ident.Enabled {
		s.ForeignPins = ident.Pins(identPins(g.cfg))
	}
	s.RemoveFormer = func() error { return leaveFormer(kind, s) }
	if g.dp, err = kind.Open(s); err != nil {
		return o, err
	}
	if g.counting != nil {
		g.dp.Forwarder = countedPath{g.dp.Forwarder, g.counting}
	}
	// Clients that it reports while it is closed find the sessions closed, and are reported to the next daemon.
	return opened{run: g.dp.Wait, close: g.dp.Close}, nil
}
