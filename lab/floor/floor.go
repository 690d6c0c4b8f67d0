// Package floor forwards at tc with nothing decided: the least that any gateway at that hook can cost, with which
// others are compared. It is no gateway: every packet passes.
package floor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/lab/hook"
)

// Config says between which interfaces packets are redirected, and who is there.
type Config struct {
	LAN, WAN string       // interfaces
	Net      netip.Prefix // the clients' network
	Server   netip.Addr   // all packets of clients go to it: it is a neighbour at WAN
	Clients  []Client
	NAT      bool // addresses and ports are translated as well
}

// Client is a host of the LAN.
type Client struct {
	Addr netip.Addr
	MAC  string // "02:00:00:00:00:01"
}

// Main is Run in a process of its own until SIGTERM, SIGINT or SIGHUP. Its argument is a file with a Config as JSON.
func Main(args []string) error {
	var cfg Config
	if len(args) != 1 {
		return fmt.Errorf("the floor takes a file with its settings, and not %d arguments", len(args))
	}
	text, err := os.ReadFile(args[0])
	if err == nil {
		err = json.Unmarshal(text, &cfg)
	}
	if err != nil {
		return fmt.Errorf("reading the settings of the floor: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return Run(ctx, cfg, os.Stdout)
}

// Run redirects packets until ctx ends. It writes "ready" and a line once it does.
func Run(ctx context.Context, cfg Config, out io.Writer) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("redirecting between %s and %s: %w", cfg.LAN, cfg.WAN, err)
		}
	}()
	lan, err := net.InterfaceByName(cfg.LAN)
	if err != nil {
		return err
	}
	wan, err := net.InterfaceByName(cfg.WAN)
	if err != nil {
		return err
	}
	next, err := neighbour(ctx, wan, cfg.Server)
	if err != nil {
		return err
	}
	objs, err := load(cfg, lan, wan, next)
	if err != nil {
		return err
	}
	defer objs.Close()
	up, down := objs.Up, objs.Down
	if cfg.NAT {
		up, down = objs.UpNat, objs.DownNat
	}
	first, err := hook.Attach(hook.Config{Interface: wan.Index, Name: "gateweigh_floor"}, down)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.Close()) }()
	second, err := hook.Attach(hook.Config{Interface: lan.Index, Name: "gateweigh_floor"}, up)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.Close()) }()
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return fmt.Errorf("saying that it redirects: %w", err)
	}
	<-ctx.Done()
	return nil
}

// load loads the programs with their hops.
func load(cfg Config, lan, wan *net.Interface, next net.HardwareAddr) (*programsObjects, error) {
	spec, err := loadPrograms()
	if err != nil {
		return nil, err
	}
	places := uint32(1)<<(32-cfg.Net.Bits()) - 1
	spec.Maps["clients"].MaxEntries = places + 1
	if err := spec.Variables["places"].Set(places); err != nil {
		return nil, err
	}
	var objs programsObjects
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		return nil, fmt.Errorf("loading the programs: %w", err)
	}
	if err := objs.Server.Put(uint32(0), hop(next, wan)); err != nil {
		return nil, errors.Join(err, objs.Close())
	}
	for _, c := range cfg.Clients {
		mac, err := net.ParseMAC(c.MAC)
		if err == nil && !cfg.Net.Contains(c.Addr) {
			err = fmt.Errorf("client %s is outside of %s", c.Addr, cfg.Net)
		}
		if err == nil {
			err = objs.Clients.Put(place(c.Addr)&places, hop(mac, lan))
		}
		if err != nil {
			return nil, errors.Join(err, objs.Close())
		}
	}
	return &objs, nil
}

func hop(to net.HardwareAddr, by *net.Interface) (h programsHop) {
	copy(h.To[:], to)
	copy(h.From[:], by.HardwareAddr)
	h.Ifindex = uint32(by.Index)
	return h
}

// place is an IPv4 address as a number.
func place(a netip.Addr) (n uint32) {
	for _, b := range a.As4() {
		n = n<<8 | uint32(b)
	}
	return n
}

// neighbourWithin bounds the wait for a neighbour's hardware address.
const neighbourWithin = 10 * time.Second

// neighbour is the hardware address of a neighbour. A datagram to the discard port has the kernel ask for it.
func neighbour(ctx context.Context, link *net.Interface, addr netip.Addr) (net.HardwareAddr, error) {
	ctx, cancel := context.WithTimeoutCause(
		ctx, neighbourWithin, fmt.Errorf("%s does not answer ARP at %s within %s", addr, link.Name, neighbourWithin))
	defer cancel()
	for {
		list, err := netlink.NeighList(link.Index, netlink.FAMILY_V4)
		if err != nil {
			return nil, fmt.Errorf("listing the neighbours of %s: %w", link.Name, err)
		}
		for _, n := range list {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == addr && len(n.HardwareAddr) == 6 {
				return n.HardwareAddr, nil
			}
		}
		if c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 9))); err == nil {
			_, _ = c.Write([]byte{0}) // refused or lost: the kernel has asked
			c.Close()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
