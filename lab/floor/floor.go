// Package floor is the least that a router at tc can do with a packet: programs at the ingress of both
// interfaces send it to the other one, with the addresses of one look-up, and decide nothing. What a gateway
// costs more than that is its own.
package floor

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/lab/hook"
)

// Config is what a floor is made of.
type Config struct {
	LAN, WAN  string       // interfaces
	Prefix    netip.Prefix // the clients' network
	Translate bool         // clients have other addresses of Prefix towards the WAN: the highest bit of the host's part is the other
}

// Arg is the argument by which a host's agent program starts a floor: see Main.
func (cfg Config) Arg() string {
	text, _ := json.Marshal(cfg) // a struct of texts can always be written
	return string(text)
}

// Main is Run in a process of its own until SIGTERM, SIGINT or SIGHUP. The argument is the Arg of a Config.
func Main(args []string) error {
	var cfg Config
	if len(args) != 1 {
		return fmt.Errorf("a floor takes its settings as JSON, and not %d arguments", len(args))
	}
	if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
		return fmt.Errorf("reading the settings of a floor: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return Run(ctx, cfg, os.Stdout)
}

// Run forwards until ctx ends. "ready" is printed once it does.
func Run(ctx context.Context, cfg Config, out io.Writer) (err error) {
	lan, err := net.InterfaceByName(cfg.LAN)
	if err != nil {
		return fmt.Errorf("interface %s: %w", cfg.LAN, err)
	}
	wan, err := net.InterfaceByName(cfg.WAN)
	if err != nil {
		return fmt.Errorf("interface %s: %w", cfg.WAN, err)
	}
	objs, err := load(cfg, lan, wan)
	if err != nil {
		return err
	}
	defer objs.Close()
	for _, place := range []struct {
		dev  *net.Interface
		prog *ebpf.Program
	}{{lan, objs.Up}, {wan, objs.Down}} {
		a, err := hook.Attach(hook.Config{Interface: place.dev.Index, Name: "gateweigh_floor", Handle: uint32(1 + os.Getpid())}, place.prog)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, a.Close()) }()
	}
	fmt.Fprintln(out, "ready")
	<-ctx.Done()
	return nil
}

// load loads the programs into the kernel.
func load(cfg Config, lan, wan *net.Interface) (*floorObjects, error) {
	spec, err := loadFloor()
	if err != nil {
		return nil, fmt.Errorf("reading the programs: %w", err)
	}
	host := 32 - cfg.Prefix.Bits()
	base := cfg.Prefix.Masked().Addr().As4()
	var translation uint32
	if cfg.Translate {
		translation = binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, 1<<(host-1)))
	}
	for name, value := range map[string]any{
		"lan_base": binary.BigEndian.Uint32(base[:]), "lan_size": uint32(1) << host, "lan_ifindex": uint32(lan.Index), "wan_ifindex": uint32(wan.Index),
		"lan_mac": number(lan.HardwareAddr), "wan_mac": number(wan.HardwareAddr), "translation": translation,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	spec.Maps["neighbours"].MaxEntries = 1<<host + 1
	var objs floorObjects
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		return nil, fmt.Errorf("loading the programs: %w", err)
	}
	return &objs, nil
}

// number is an Ethernet address as the programs have it.
func number(mac net.HardwareAddr) (n uint64) {
	for i := range 3 {
		n |= uint64(binary.NativeEndian.Uint16(mac[2*i:])) << (16 * i)
	}
	return n
}
