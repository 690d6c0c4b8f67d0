package dut

import (
	"context"
	"fmt"
	"net/netip"
	"path"
	"strings"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// RPPPPoE is Roaring Penguin's pppoe-server, with a pppd process for each client and accounts in pppd's files (CHAP).
// Debian's build has user mode only: another process for each client copies every packet between a packet socket and
// pppd's terminal. For kernel mode the lab starts pppd by a wrapper that gives it the kernel's PPPoE session instead of
// the terminal.
type RPPPPoE struct {
	portal
	Kernel bool // packets stay in the kernel
}

var _ Counted = (*RPPPPoE)(nil)

// NewRPPPPoE makes a pppoe-server in kernel or user mode for a number of clients.
func NewRPPPPoE(kernel bool, clients int) *RPPPPoE {
	return &RPPPPoE{portal{clients: clients, Admission: client.Admission{Kind: client.AdmitNone}}, kernel}
}

// pppoeNetwork returns a network with an address for each PPPoE client, and for as many sessions whose end the server
// has not noticed.
func pppoeNetwork(clients int) netip.Prefix {
	if clients > 100 {
		return netip.MustParsePrefix("10.1.0.0/16")
	}
	return netip.MustParsePrefix("10.1.0.0/24")
}

// pppNeeds are the programs and the kernel feature that pppd needs.
var pppNeeds = []Need{
	{Program: "pppd", Package: "ppp", Feature: machine.PPP, Why: "the clients' PPP links"},
	{Program: "modprobe", Package: "kmod", Why: "loading the kernel's PPP"},
}

// Traits switch checksum offload off in user mode, because a packet that a process reads from a packet socket must have
// its checksum.
func (r *RPPPPoE) Traits() Traits {
	mode, threads := "user mode, a process for each client takes every packet", append([]string{"kworker"}, pppThreads...)
	server := Need{Program: "pppoe-server", Package: "pppoe", Why: "the PPPoE server"}
	if r.Kernel {
		server.Feature = machine.PPPoE
	}
	needs := append([]Need{
		{Program: "ip", Package: "iproute2", Why: "setting the router up"},
		server,
		{Program: "pkill", Package: "procps", Why: "ending the clients' processes"},
	}, pppNeeds...)
	if r.Kernel {
		mode, threads = "kernel mode", pppThreads
	} else {
		needs = append(needs, Need{Program: "pppoe", Package: "pppoe", Why: "the clients' packets"})
	}
	return Traits{
		NoIPv6: "pppd advertises no prefix in its sessions (RFC 4861); that is another program's work, which the lab does " +
			"not start",
		LAN: pppoeNetwork(r.clients), DHCP: true, PPPoE: true, Neighbours: true,
		KernelThreads: threads,
		NoTxChecksum:  !r.Kernel,
		Admission:     r.Admission, Needs: needs,
		About: "rp-pppoe's pppoe-server and pppd, " + mode + ", CHAP from pppd's file",
	}
}

// pppThreads are the kernel threads that forward packets after PPP has unpacked them. In user mode workers ("kworker")
// take part too: they hand on what was written to a terminal.
var pppThreads = []string{"ksoftirqd"}

// First returns the first client's address, Sessions the number of addresses from it on.
func (r *RPPPPoE) First() netip.Addr { return r.Gateway.Next() }
func (r *RPPPPoE) Sessions() int     { return min(2*r.clients+16, 1<<(32-r.LAN.Bits())-4) }

// Start writes pppd's files and starts pppoe-server, and returns once it listens for clients.
func (r *RPPPPoE) Start(ctx context.Context, env Env) error {
	r.setEnv(env, "rp-pppoe")
	r.Admission.User, r.Admission.Password = "gateweigh-test-%d", r.Secret
	server := []string{
		"pppoe-server", "-F", "-I", r.Port("lan"), "-C", "gateweigh", "-L", r.Gateway.String(), "-R", r.First().String(),
		"-N", fmt.Sprint(r.Sessions()),
		"-O", path.Join(r.Dir, "pppd-options"),
	}
	if r.Kernel {
		server = append(server, "-q", path.Join(r.Dir, "pppd-kernel.sh"))
	}
	if err := r.configure(ctx); err != nil {
		return fmt.Errorf("configuring pppoe-server: %w", err)
	}
	return r.run(ctx, daemon{host: r.Host("router"), name: "pppoe-server"}, server,
		probe{"it does not listen for clients (PADI)", `grep -q ' 8863 ' /proc/net/packet`})
}

// configure loads the kernel modules and writes pppd's files. pppd reads some of them at fixed places below /etc, of
// which the host has a private copy. It removes Debian's scripts that run when a link comes or goes, because they would
// still run when the measurement begins.
func (r *RPPPPoE) configure(ctx context.Context) error {
	if err := r.shell(
		ctx, `mkdir -p "$1" /etc/ppp; modprobe -q -a ppp_generic ppp_async pppoe || :; ip link set "$2" up`); err != nil {
		return err
	}
	if err := r.write(ctx, r.Host("router"), r, "pppd-options", "pppd-secrets", "pppd-kernel.sh"); err != nil {
		return err
	}
	return r.shell(ctx,
		`: >/etc/ppp/options; rm -f /etc/ppp/ip-up /etc/ppp/ip-pre-up /etc/ppp/ip-down; cp "$1/pppd-secrets" /etc/ppp/chap-secrets; chmod 600 /etc/ppp/chap-secrets`)
}

// awaitNoLinks is a part of a script that waits until the kernel has removed all PPP links.
const awaitNoLinks = `while ls -d /sys/class/net/ppp* >/dev/null 2>&1; do sleep 0.02; done
`

// Stop ends pppoe-server and the processes that it started. They run in the host's own process namespace, so pkill
// finds no others.
func (r *RPPPPoE) Stop(ctx context.Context, _ Env) error {
	return r.stop(ctx, `pkill -9 -x pppd || :; pkill -9 -x pppoe || :
`+awaitNoLinks+`rm -f /etc/ppp/chap-secrets`)
}

// Counts returns as "sessions" the number of PPP links that have an address: their clients have logged in.
func (r *RPPPPoE) Counts(ctx context.Context, env Env) (map[string]int, error) {
	return pppLinks(ctx, env)
}

// pppLinks counts the router's PPP links that have an address.
func pppLinks(ctx context.Context, env Env) (map[string]int, error) {
	text, err := queryRouter(ctx, env, "ip", "-o", "-4", "addr", "show")
	if err != nil {
		return nil, err
	}
	return map[string]int{"sessions": strings.Count(text, " peer ")}, nil
}
