package dut

import (
	"context"
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
)

// Clean is the router without any access gateway: the kernel's own forwarding,
// with which every other device is compared.
type Clean struct{}

// Start checks that the routers forward. It changes nothing, so that the clean router is measured as the kernel has it.
func (Clean) Start(ctx context.Context, env Env) error {
	settings := []string{"/proc/sys/net/ipv4/ip_forward"}
	if env.LAN6.IsValid() {
		settings = append(settings, "/proc/sys/net/ipv6/conf/all/forwarding")
	}
	for _, name := range env.Routers {
		for _, forwarding := range settings {
			out, err := env.Host(name).Run(ctx, agent.Command{Argv: []string{"cat", forwarding}})
			if err != nil {
				return fmt.Errorf("reading whether the router forwards: %w", err)
			}
			if value := strings.TrimSpace(out.Stdout); value != "1" {
				return fmt.Errorf("the clean router does not forward: %s is %q", forwarding, value)
			}
		}
	}
	return nil
}

// Stop has nothing to undo.
func (Clean) Stop(context.Context, Env) error { return nil }

// Traits are the defaults: study 1's network, and clients that need no admission.
func (Clean) Traits() Traits {
	return Traits{About: "clean router (kernel forwarding)", Families: bothFamilies}
}

// bothFamilies are the Traits.Families of a device that forwards IPv4 and IPv6.
var bothFamilies = []client.Family{client.IPv4, client.IPv6}
