package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/ebpf"
	"github.com/gateweigh/gateweigh/gateway/datapath/kernel"
	"github.com/gateweigh/gateweigh/gateway/datapath/neighbour"
	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue"
	"github.com/gateweigh/gateweigh/gateway/datapath/routes"
	"github.com/gateweigh/gateweigh/gateway/datapath/tun"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/gateway/forwarding"
	"github.com/gateweigh/gateweigh/gateway/ident"
	"github.com/gateweigh/gateweigh/gateway/nat"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
)

// path is a data path with what the daemon needs of it.
type path interface {
	datapath.Datapath
	// Clients lists the clients that have an entry.
	Clients() ([]datapath.ID, error)
	// Total sums the counters of all addresses.
	Total() (datapath.Counters, error)
	// Packets counts packets by outcome.
	Packets() (map[string]uint64, error)
	// Forwarding names the present way of forwarding, in a word or two, and the reason where it is
	// not the usual one.
	Forwarding() (word, why string)
}

// introducer is a data path that needs the portal's socket.
type introducer interface {
	Portal(listener syscall.Conn) error
}

// hearer is a data path that receives clients' DHCP requests itself.
type hearer interface {
	// Requests returns a reader for dhcp.Config.
	Requests() (io.ReadCloser, error)
}

var (
	_ hearer        = (*ebpf.Datapath)(nil)
	_ flowlog.Aside = (*ebpf.Datapath)(nil)
)

// mortal is a data path that can fail while it runs.
type mortal interface {
	// Wait returns when ctx ends, or with the reason why the data path has failed.
	Wait(context.Context) error
}

// openPath opens the configured data path. It removes what a data path of another kind
// left on the interfaces only after this one blocks unauthenticated clients, so that
// the LAN is never open in between.
func (g *gateway) openPath() (path, error) {
	switch g.cfg.Datapath.Kind {
	case config.EBPF:
		dp, err := opened(ebpf.Open(g.ebpfConfig()))
		if err == nil {
			err = errors.Join(
				kernel.Remove(g.cfg.LAN.Interface), tun.Remove(g.cfg.LAN.Interface), nfqueue.Clear(g.cfg.LAN.Interface))
		}
		return dp, err
	case config.TUN:
		c := tunConfig(g.cfg, g.home, g.log)
		// The neighbours by themselves: programs or rules that were removed by others left them.
		c.Former = func() error {
			return errors.Join(removePrograms(g.cfg), nfqueue.Clear(g.cfg.LAN.Interface), neighbour.Remove(g.cfg.LAN.Interface),
				routes.Remove(g.cfg.LAN.Interface), kernel.Clear(g.cfg.LAN.Interface))
		}
		return opened(tun.Open(c))
	case config.Kernel:
		c := kernelConfig(g.cfg, g.log)
		c.Former = func() error {
			return errors.Join(removePrograms(g.cfg), nfqueue.Clear(g.cfg.LAN.Interface), neighbour.Remove(g.cfg.LAN.Interface),
				routes.Remove(g.cfg.LAN.Interface), tun.RemoveDevice(g.cfg.LAN.Interface))
		}
		return opened(kernel.Open(c))
	case config.NFQueue:
		dp, err := opened(nfqueue.Open(g.nfqueueConfig()))
		if err == nil {
			err = errors.Join(removePrograms(g.cfg), kernel.Remove(g.cfg.LAN.Interface), tun.Remove(g.cfg.LAN.Interface),
				guard.Remove(g.cfg.LAN.Interface))
		}
		return dp, err
	}
	return nil, fmt.Errorf("no data path %q", g.cfg.Datapath.Kind)
}

// opened keeps a nil pointer of a data path that failed to open from becoming a non-nil
// interface value.
func opened[P path](dp P, err error) (path, error) {
	if err != nil {
		return nil, err
	}
	return dp, nil
}

// ErrNotHere is returned where a gateway's interface does not exist in this network
// namespace, so that it is unknown whether anything of the gateway is left elsewhere.
var ErrNotHere = errors.New("nothing of a gateway is to be found in this network namespace")

// ErrBusy is returned while another gateway has an interface.
var ErrBusy = datapath.ErrBusy

// Detach removes everything of a gateway from the kernel, whatever its data path was, and switches forwarding off where
// the gateway switched it on. PPPoE clients are told that their sessions have ended, and so are RADIUS servers. What
// does not exist is no error. While a daemon runs, Detach fails with datapath.ErrBusy unless forced; the daemon then
// continues without anything in the kernel. A daemon with NFQUEUE keeps or restores its rules and must end first.
func Detach(cfg *config.Config, force bool) error {
	if !Here(cfg) && !force && !guard.There(cfg.LAN.Interface) && !nfqueue.Left(cfg.LAN.Interface) {
		return fmt.Errorf(
			"%w: neither the interface %s nor what guards it: if it is in another network namespace, detach there (nsenter "+
				"--net=/run/netns/NAME); if it is gone for good, detach --force removes what is pinned",
			ErrNotHere, cfg.LAN.Interface)
	}
	locks, err := datapath.Lock(claimed(cfg)...)
	if err != nil && !(force && errors.Is(err, datapath.ErrBusy)) {
		return err
	}
	defer locks.Close()
	if err := ebpf.InSight(ebpfLeft(cfg)); err != nil {
		return err
	}
	told := farewell(cfg) // the kernel is left clean all the same
	var shut error
	if cfg.Datapath.Kind != config.EBPF && guard.There(cfg.LAN.Interface) {
		// the LAN stays closed until the guard is removed last, or where that fails; ebpf.Remove does it itself
		shut = guard.Guard{LAN: cfg.LAN.Interface}.Know()
	}
	programs := removePrograms
	if cfg.Datapath.Kind == config.EBPF { // pins may exist although the interfaces are gone
		programs = func(cfg *config.Config) error { return ebpf.Remove(ebpfLeft(cfg)) }
	}
	// Not kernel.Remove, which takes the rule on frames: tun.Remove does after its device, with which a daemon restores
	// the rule.
	err = errors.Join(shut, forwardingSwitch(cfg).Off(), kernel.Clear(cfg.LAN.Interface), tun.Remove(cfg.LAN.Interface),
		nfqueue.Clear(cfg.LAN.Interface), neighbour.Remove(cfg.LAN.Interface), routes.Remove(cfg.LAN.Interface),
		ident.RemoveWatch(identPins(cfg)))
	if err != nil {
		return err
	}
	if err = programs(cfg); err != nil { // after what else can fail, because the programs take the guard with them
		return err
	}
	// A daemon that holds the table lets go of it once it notices that the rest is gone.
	if err = nat.Remove(nat.Table(cfg.LAN.Interface)); err != nil {
		return err
	}
	// The flow log's last: a daemon puts its rule back until it notices that the rest is gone, and its folder may be bad.
	return errors.Join(
		guard.Remove(cfg.LAN.Interface), told, flowlog.Undo(flowlog.NoteIn(cfg.FlowLog.Folder)), signOff(cfg))
}

// Guard has the kernel forward nothing from or to a LAN until a gateway runs, also if its
// interface appears later. It fails with datapath.ErrBusy while a gateway runs, which keeps
// its LAN closed itself.
func Guard(lan string) error {
	lock, err := datapath.Lock(datapath.Alone(lan)...)
	if err != nil {
		return err
	}
	defer lock.Close()
	return guard.Guard{LAN: lan}.Shut()
}

// Left reports whether anything of a gateway is in the kernel: programs, a device,
// rules, or the guard.
func Left(cfg *config.Config) bool {
	return Pinned(cfg) || ident.Left(identPins(cfg)) || ebpf.Attached(ebpfLeft(cfg)) || tun.Left(cfg.LAN.Interface) ||
		nfqueue.Left(cfg.LAN.Interface) || guard.There(cfg.LAN.Interface) ||
		nat.Left(nat.Table(cfg.LAN.Interface))
}

// Pinned reports whether programs and maps are pinned. Pins belong to the machine and
// not to the network namespace: the programs may be on interfaces of another one.
func Pinned(cfg *config.Config) bool {
	_, err := os.Stat(cfg.Datapath.PinDir)
	return err == nil
}

// Here reports whether the LAN's interface is in this network namespace.
func Here(cfg *config.Config) bool {
	_, err := net.InterfaceByName(cfg.LAN.Interface)
	return err == nil
}

// removePrograms removes what an eBPF data path left.
func removePrograms(cfg *config.Config) error {
	if left := ebpfLeft(cfg); ebpf.Attached(left) {
		return ebpf.Remove(left)
	}
	return nil
}

// ebpfLeft is the configuration to find leftover programs with.
func ebpfLeft(cfg *config.Config) ebpf.Config {
	return ebpf.Config{Networks: networksOf(cfg), WAN: cfg.WAN.Interface, PinDir: cfg.Datapath.PinDir}
}

// crossings are the interfaces at which the kernel receives packets that it forwards to and
// for clients.
func crossings(cfg *config.Config) []string {
	if cfg.Datapath.Kind == config.Kernel { // which has its own interfaces forward
		return []string{cfg.WAN.Interface}
	}
	return []string{clientInterface(cfg), cfg.WAN.Interface}
}

// forwardingSwitch is the switch of the kernel's forwarding. Its note is in state_dir, because
// service managers remove run_dir when they stop a service.
func forwardingSwitch(cfg *config.Config) forwarding.Switch {
	return forwarding.Switch{Note: filepath.Join(cfg.StateDir, "forwarding")}
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

// servicePorts are the portal's ports that clients reach before they log in; home: with homePort.
func servicePorts(cfg *config.Config, home bool) []uint16 {
	all := portalPorts(cfg.Portal)
	if home {
		all = append(all, webPort)
	}
	return all
}

// networksOf are the networks with clients.
func networksOf(cfg *config.Config) []datapath.Network {
	return []datapath.Network{{Name: "lan", Interface: cfg.LAN.Interface, Address: cfg.LAN.Address}}
}

// claimed are the gateway's interfaces. Programs at the WAN's hooks are one gateway's.
func claimed(cfg *config.Config) []datapath.Claim {
	if cfg.Datapath.Kind == config.EBPF {
		return datapath.Alone(cfg.LAN.Interface, cfg.WAN.Interface)
	}
	return datapath.Sharing(cfg.LAN.Interface, cfg.WAN.Interface)
}

// tunConfig returns the configuration of the packet socket and the TUN device.
func tunConfig(cfg *config.Config, home bool, log *slog.Logger) tun.Config {
	return tun.Config{
		Networks: networksOf(cfg), WAN: cfg.WAN.Interface, Device: cfg.Datapath.Device,
		PortalPorts: servicePorts(cfg, home), Fast: cfg.Datapath.Fast, Lines: cfg.PPPoE.Enabled, Log: log,
	}
}

// kernelConfig returns the configuration of the kernel's PPPoE.
func kernelConfig(cfg *config.Config, log *slog.Logger) kernel.Config {
	return kernel.Config{Networks: networksOf(cfg), WAN: cfg.WAN.Interface,
		Keeper: func() *exec.Cmd { return keeperCommand(cfg) }, Log: log}
}

// KeepVerb is the command of gatewayd that calls Keep. The form of its log is its argument.
const KeepVerb = "keep"

// keeperCommand is this program as the keeper of what ends with open files. Its messages go where the daemon's go, also
// when the daemon is gone.
func keeperCommand(cfg *config.Config) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", KeepVerb, cfg.LogFormat)
	cmd.Args[0] = "gatewayd"
	cmd.Stderr = os.Stderr
	return cmd
}

// Keep is the keeper's process: it serves on the socket that the daemon has given it.
func Keep(listener *os.File, log *slog.Logger) error { return kernel.Keep(listener, log) }

// ebpfConfig returns the configuration of the eBPF programs.
func (g *gateway) ebpfConfig() ebpf.Config {
	cfg := g.cfg
	c := ebpf.Config{
		Networks: networksOf(cfg), WAN: cfg.WAN.Interface,
		PortalPorts: servicePorts(cfg, g.home), Forward: ebpf.Forward(cfg.Datapath.Forward),
		FlowCache: ebpf.FlowCache(cfg.Datapath.FlowCache), Shaping: ebpf.Shaping(cfg.Datapath.Shaping),
		PinDir: cfg.Datapath.PinDir, Log: g.log,
	}
	if cfg.DHCP.Mode == config.External {
		c.Newcomer = g.newcomer
	} else {
		c.DHCP = true
	}
	if cfg.Ident.Enabled {
		c.Beside = ident.Pins(identPins(cfg))
	}
	c.Lines, c.Flows = cfg.PPPoE.Enabled, cfg.FlowLog.Enabled
	return c
}

// nfqueueConfig returns the configuration of queues and rules.
func (g *gateway) nfqueueConfig() nfqueue.Config {
	cfg := g.cfg
	c := nfqueue.Config{
		Networks: networksOf(cfg), WAN: cfg.WAN.Interface,
		PortalPorts: servicePorts(cfg, g.home), Fast: cfg.Datapath.Fast, Log: g.log,
	}
	if cfg.DHCP.Mode == config.External {
		c.Newcomer = g.newcomer
	}
	return c
}
