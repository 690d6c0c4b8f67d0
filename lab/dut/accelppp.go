package dut

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/machine"
)

// AccelPPP is accel-ppp's accel-pppd as a PPPoE server: one process, sessions in the kernel, accounts in a file (CHAP).
type AccelPPP struct{ portal }

var _ Counted = (*AccelPPP)(nil)

// NewAccelPPP makes an accel-pppd for a number of clients.
func NewAccelPPP(clients int) *AccelPPP {
	return &AccelPPP{portal{clients: clients, Admission: client.Admission{Kind: client.AdmitNone}}}
}

// Traits say which kernel threads are metered too: packets leave PPP in softirqs, not in the polling thread of a link.
func (a *AccelPPP) Traits() Traits {
	return Traits{
		NoIPv6: "the lab configures accel-ppp without IPV6CP",
		LAN:    pppoeNetwork(a.clients), DHCP: true, PPPoE: true, Neighbours: true,
		KernelThreads: pppThreads,
		Admission:     a.Admission,
		Needs: []Need{
			{Program: "accel-pppd",
				Advice: "not in Debian 12: build accel-ppp from its source (github.com/accel-ppp/accel-ppp) and put its sbin " +
					"directory on PATH", Feature: machine.PPPoE, Why: "the PPPoE server"},
			{Program: "ip", Package: "iproute2", Why: "setting the router up"},
			{Program: "modprobe", Package: "kmod", Why: "loading the kernel's PPP"},
		},
		About: "accel-ppp, PPPoE in the kernel, CHAP from a file",
	}
}

// Pool returns the clients' range of addresses in accel-ppp's syntax. In networks larger than a /24 it is the second
// half.
func (a *AccelPPP) Pool() string {
	if a.LAN.Bits() >= 24 {
		last := hostOf(a.LAN, 1<<(32-a.LAN.Bits())-2).As4()
		return fmt.Sprintf("%s-%d", a.Gateway.Next(), last[3])
	}
	return fmt.Sprintf("%s/%d", hostOf(a.LAN, 1<<(31-a.LAN.Bits())), a.LAN.Bits()+1)
}

// Users returns the names of all clients, because accel-ppp's file of accounts has no wildcards.
func (a *AccelPPP) Users() (names []string) {
	for n := range a.clients {
		names = append(names, strings.ReplaceAll(a.Admission.User, "%d", fmt.Sprint(n+1)))
	}
	return names
}

// Start writes accel-pppd's files and starts it, and returns once it listens for clients.
func (a *AccelPPP) Start(ctx context.Context, env Env) error {
	a.setEnv(env, "accel-ppp")
	a.Admission.User, a.Admission.Password = "gateweigh-test-%d", a.Secret
	err := a.shell(ctx, `mkdir -p "$1"; modprobe -q -a ppp_generic pppoe || :; ip link set "$2" up`)
	if err == nil {
		err = a.write(ctx, a.Host("router"), a, "accel-ppp.conf", "accel-ppp-secrets")
	}
	if err != nil {
		return fmt.Errorf("configuring accel-pppd: %w", err)
	}
	return a.run(ctx, daemon{host: a.Host("router"), name: "accel-pppd"},
		[]string{"accel-pppd", "-c", path.Join(a.Dir, "accel-ppp.conf")},
		probe{"it does not listen for clients (PADI)", `grep -q ' 8863 ' /proc/net/packet`})
}

// Stop ends accel-pppd, and its sessions with it.
func (a *AccelPPP) Stop(ctx context.Context, _ Env) error { return a.stop(ctx, awaitNoLinks) }

// Counts returns as "sessions" the number of PPP links that have an address.
func (a *AccelPPP) Counts(ctx context.Context, env Env) (map[string]int, error) {
	return pppLinks(ctx, env)
}
