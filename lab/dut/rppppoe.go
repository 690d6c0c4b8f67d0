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

// RPPPPoE is Roaring Penguin's pppoe-server with pppd, a process of pppd for each subscriber, and accounts in pppd's
// files (CHAP). Debian's build knows user mode alone: a further process for each subscriber takes every packet between
// a packet socket and pppd's terminal. In kernel mode a wrapper gives pppd the session instead of the terminal.
type RPPPPoE struct {
	portal
	Kernel bool // packets stay in the kernel
}

var _ Counted = (*RPPPPoE)(nil)

// NewRPPPPoE makes a pppoe-server in kernel or user mode for a number of clients.
func NewRPPPPoE(kernel bool, clients int) *RPPPPoE {
	return &RPPPPoE{portal{clients: clients, Admission: client.Admission{Kind: client.AdmitNone}}, kernel}
}

// pppoeNetwork is a network with addresses for PPPoE clients and as many sessions that ended without a word.
func pppoeNetwork(clients int) netip.Prefix {
	if clients > 100 {
		return netip.MustParsePrefix("10.1.0.0/16")
	}
	return netip.MustParsePrefix("10.1.0.0/24")
}

// pppNeeds are what pppd needs with every PPPoE server.
var pppNeeds = []Need{
	{Program: "pppd", Package: "ppp", Feature: machine.PPP, Why: "the clients' PPP links"},
	{Program: "modprobe", Package: "kmod", Why: "loading the kernel's PPP"},
}

// Traits: packets that a process reads from a packet socket have to have their checksums.
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
		LAN: pppoeNetwork(r.clients), DHCP: true, PPPoE: true, Neighbours: true,
		KernelThreads: threads,
		NoTxChecksum:  !r.Kernel,
		Admission:     r.Admission, Needs: needs,
		About: "rp-pppoe's pppoe-server and pppd, " + mode + ", CHAP from pppd's file",
	}
}

// pppThreads are the kernel's threads in which packets that come out of PPP are carried on. What a terminal holds is
// carried on in workers.
var pppThreads = []string{"ksoftirqd"}

// First is the first client's address, Sessions how many can follow.
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

// configure loads what nothing else asks for, and writes the files of the links: pppd reads some in their fixed places,
// which are the host's own. Debian's scripts for links that come and go would work on after the clients have their
// addresses.
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

// awaitNoLinks is the part of a script that waits until the links of processes that have ended are gone.
const awaitNoLinks = `while ls -d /sys/class/net/ppp* >/dev/null 2>&1; do sleep 0.02; done
`

// Stop ends pppoe-server and what it started, in the host's own process namespace.
func (r *RPPPPoE) Stop(ctx context.Context, _ Env) error {
	return r.stop(ctx, `pkill -9 -x pppd || :; pkill -9 -x pppoe || :
`+awaitNoLinks+`rm -f /etc/ppp/chap-secrets`)
}

// Counts are the links that have an address: their clients have logged in.
func (r *RPPPPoE) Counts(ctx context.Context, env Env) (map[string]int, error) {
	return pppLinks(ctx, env)
}

func pppLinks(ctx context.Context, env Env) (map[string]int, error) {
	text, err := queryRouter(ctx, env, "ip", "-o", "-4", "addr", "show")
	if err != nil {
		return nil, err
	}
	return map[string]int{"sessions": strings.Count(text, " peer ")}, nil
}
