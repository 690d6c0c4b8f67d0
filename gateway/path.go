package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/ebpf"
	"github.com/gateweigh/gateweigh/gateway/datapath/guard"
	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue"
	"github.com/gateweigh/gateweigh/gateway/datapath/tun"
)

// path is a data path as the daemon runs it.
type path interface {
	datapath.Datapath
	// Clients lists the addresses that have an entry.
	Clients() ([]netip.Addr, error)
	// Total sums the counters of all addresses.
	Total() (datapath.Counters, error)
	// Packets counts packets by what became of them.
	Packets() (map[string]uint64, error)
	// Forwarding says how packets are forwarded at the moment, in a word.
	Forwarding() string
}

// introducer is a data path that must be shown the portal's socket.
type introducer interface {
	Portal(listener syscall.Conn) error
}

// hearer is a data path that hears clients' DHCP requests itself.
type hearer interface {
	// Requests is as dhcp.Config has it.
	Requests() (io.ReadCloser, error)
}

var _ hearer = (*ebpf.Datapath)(nil)

// mortal is a data path that can come to an end by itself.
type mortal interface {
	// Wait returns when ctx ends, or with the reason why it cannot go on.
	Wait(context.Context) error
}

// openPath opens the configured data path. What one of another kind left on the
// interfaces is taken out once this one shuts strangers out, so that there is no
// open moment.
func (g *gateway) openPath() (path, error) {
	switch g.cfg.Datapath.Kind {
	case config.EBPF:
		dp, err := opened(ebpf.Open(g.ebpfConfig()))
		if err == nil {
			err = errors.Join(tun.Remove(g.cfg.LAN.Interface), nfqueue.Clear(g.cfg.LAN.Interface))
		}
		return dp, err
	case config.TUN:
		c := tunConfig(g.cfg, g.log)
		c.Former = func() error { return errors.Join(removePrograms(g.cfg), nfqueue.Clear(g.cfg.LAN.Interface)) }
		return opened(tun.Open(c))
	case config.NFQueue:
		dp, err := opened(nfqueue.Open(g.nfqueueConfig()))
		if err == nil {
			err = errors.Join(removePrograms(g.cfg), tun.Remove(g.cfg.LAN.Interface), guard.Remove(g.cfg.LAN.Interface))
		}
		return dp, err
	}
	return nil, fmt.Errorf("no data path %q", g.cfg.Datapath.Kind)
}

// opened keeps the nil of a data path that failed to open from becoming a path.
func opened[P path](dp P, err error) (path, error) {
	if err != nil {
		return nil, err
	}
	return dp, nil
}

// ErrNotHere is wrapped where a gateway's interface is unknown, so that nobody can say
// that nothing of it is left.
var ErrNotHere = errors.New("nothing of a gateway is to be found in this network namespace")

// Detach takes everything of a gateway out of the kernel, whatever its data path
// was. What is not there is no error. While a daemon runs it fails with
// datapath.ErrBusy unless it is forced to: that one then goes on without anything
// in the kernel. NFQUEUE's rules it holds, or puts back: it must end first.
func Detach(cfg *config.Config, force bool) error {
	if !Here(cfg) && !force && !guard.There(cfg.LAN.Interface) && !nfqueue.Left(cfg.LAN.Interface) {
		return fmt.Errorf("%w: neither the interface %s nor what guards it: if it is in another network namespace, detach there (ip netns exec); if it is gone for good, detach --force removes what is pinned",
			ErrNotHere, cfg.LAN.Interface)
	}
	locks, err := datapath.Lock(cfg.LAN.Interface, cfg.WAN.Interface)
	if err != nil && !(force && errors.Is(err, datapath.ErrBusy)) {
		return err
	}
	defer locks.Close()
	var shut error
	if guard.There(cfg.LAN.Interface) { // until it goes too, or where that fails, the LAN is shut
		shut = guard.Guard{LAN: cfg.LAN.Interface}.Know()
	}
	programs := removePrograms
	if cfg.Datapath.Kind == config.EBPF { // its interfaces may be gone, and pins still there
		programs = func(cfg *config.Config) error { return ebpf.Remove(ebpfLeft(cfg)) }
	}
	return errors.Join(shut, programs(cfg), tun.Remove(cfg.LAN.Interface), nfqueue.Clear(cfg.LAN.Interface), guard.Remove(cfg.LAN.Interface))
}

// Left says whether anything of a gateway is in the kernel: programs, a device,
// rules, or the guard.
func Left(cfg *config.Config) bool {
	return Pinned(cfg) || ebpf.Attached(ebpfLeft(cfg)) || tun.Left(cfg.LAN.Interface) || nfqueue.Left(cfg.LAN.Interface) || guard.There(cfg.LAN.Interface)
}

// Pinned says whether there are pins of programs and maps. They are the machine's, not
// the network namespace's: the programs may be on interfaces of another one.
func Pinned(cfg *config.Config) bool {
	_, err := os.Stat(cfg.Datapath.PinDir)
	return err == nil
}

// Here says whether the LAN's interface is in this network namespace.
func Here(cfg *config.Config) bool {
	_, err := net.InterfaceByName(cfg.LAN.Interface)
	return err == nil
}

// removePrograms takes out what an eBPF data path left.
func removePrograms(cfg *config.Config) error {
	if left := ebpfLeft(cfg); ebpf.Attached(left) {
		return ebpf.Remove(left)
	}
	return nil
}

// ebpfLeft is where programs may be left.
func ebpfLeft(cfg *config.Config) ebpf.Config {
	return ebpf.Config{LAN: cfg.LAN.Interface, WAN: cfg.WAN.Interface, PinDir: cfg.Datapath.PinDir}
}

// portalPorts are the TCP ports the portal listens on, that for plain HTTP first.
func portalPorts(p config.Portal) []uint16 {
	switch {
	case !p.Enabled:
		return nil
	case p.TLSCert == "":
		return []uint16{p.Port}
	}
	return []uint16{p.Port, p.TLSPort}
}

// tunConfig is what the packet socket and the device are opened for.
func tunConfig(cfg *config.Config, log *slog.Logger) tun.Config {
	return tun.Config{
		LAN: cfg.LAN.Interface, WAN: cfg.WAN.Interface, Device: cfg.Datapath.Device, Address: cfg.LAN.Address,
		PortalPorts: portalPorts(cfg.Portal), Fast: cfg.Datapath.Fast, Log: log,
	}
}

// ebpfConfig is what the programs are made for.
func (g *gateway) ebpfConfig() ebpf.Config {
	cfg := g.cfg
	c := ebpf.Config{
		LAN: cfg.LAN.Interface, WAN: cfg.WAN.Interface, Prefix: cfg.LAN.Network(), Gateway: cfg.LAN.Address.Addr(),
		PortalPorts: portalPorts(cfg.Portal), Forward: ebpf.Forward(cfg.Datapath.Forward), PinDir: cfg.Datapath.PinDir, Log: g.log,
	}
	if cfg.DHCP.Mode == config.External {
		c.Newcomer = g.newcomer
	} else {
		c.DHCP = true
	}
	return c
}

// nfqueueConfig is what queues and rules are made for.
func (g *gateway) nfqueueConfig() nfqueue.Config {
	cfg := g.cfg
	c := nfqueue.Config{
		LAN: cfg.LAN.Interface, WAN: cfg.WAN.Interface, Prefix: cfg.LAN.Network(), Gateway: cfg.LAN.Address.Addr(),
		PortalPorts: portalPorts(cfg.Portal), Fast: cfg.Datapath.Fast, Log: g.log,
	}
	if cfg.DHCP.Mode == config.External {
		c.Newcomer = g.newcomer
	}
	return c
}
