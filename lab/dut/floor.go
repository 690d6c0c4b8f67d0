package dut

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/floor"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// Floor is a router whose eBPF programs at tc redirect every packet to the other interface and decide nothing. It is
// the lower bound of what forwarding at tc costs. The difference between another device and Floor is the cost of that
// device's decisions. The kernel forwards until Admit tells the programs the clients' addresses.
type Floor struct {
	NAT bool // addresses and ports are translated, with their checksums
}

var (
	_ DUT      = &Floor{}
	_ Admitter = &Floor{}
)

// Traits say that the router is open, because the kernel forwards before Admit, and that the lab leases the addresses.
func (f *Floor) Traits() Traits {
	about := "the least at tc: one look into an array, hardware addresses, redirect; nothing is decided"
	if f.NAT {
		about = "the least with NAT at tc: the floor with a fixed translation of addresses and ports, and checksums"
	}
	return Traits{About: about, Open: true, NoIPv6: "its programs forward IPv4 packets",
		Needs: []Need{{Program: "tc", Package: "iproute2", Feature: machine.BPFAtTC, Why: "programs that redirect"}}}
}

// Start checks that the kernel forwards. The programs start with Admit.
func (f *Floor) Start(ctx context.Context, env Env) error { return Clean{}.Start(ctx, env) }

// Admits and Revokes are true: the programs run from Admit to Revoke.
func (f *Floor) Admits() bool  { return true }
func (f *Floor) Revokes() bool { return true }

func (f *Floor) daemon(env Env) daemon { return daemon{host: env.Host("router"), name: "floor"} }

// Admit starts the program with the clients' addresses.
func (f *Floor) Admit(ctx context.Context, env Env, clients []ClientAddr) error {
	cfg := floor.Config{LAN: env.Port("lan"), WAN: env.Port("wan"), Net: env.LAN, Server: env.ServerIP, NAT: f.NAT}
	for _, c := range clients {
		cfg.Clients = append(cfg.Clients, floor.Client{Addr: c.IP, MAC: c.MAC})
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("writing the settings of the floor: %w", err)
	}
	d, file := f.daemon(env), path.Join(env.Scratch, "floor.json")
	if err := d.host.WriteFile(ctx, file, text, 0o600); err != nil {
		return err
	}
	if err := d.spawn(ctx, agent.Self, agent.FloorCommand, file); err != nil {
		return err
	}
	return d.awaitText(ctx, "ready")
}

// Revoke ends the programs, so that the kernel forwards again.
func (f *Floor) Revoke(ctx context.Context, env Env, _ []ClientAddr) error { return f.Stop(ctx, env) }

// Stop ends the process that loaded the eBPF programs. The kernel then detaches them.
func (f *Floor) Stop(ctx context.Context, env Env) error {
	return errors.Join(
		f.daemon(env).kill(ctx), shell(ctx, env.Host("router"), `rm -f "$1"`, path.Join(env.Scratch, "floor.json")))
}
