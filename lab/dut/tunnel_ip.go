package dut

import (
	"context"

	"github.com/gateweigh/gateweigh/lab/machine"
)

// softirqThreads are the kernel's threads that work for a tunnel in the kernel. ksoftirqd takes unpacked packets from
// their queue (net/core/gro_cells.c), and kworker encrypts and decrypts when the receiving thread cannot.
var softirqThreads = []string{"kworker", "ksoftirqd"}

// ipTunnels are tunnels of the kernel that do not encrypt.
var ipTunnels = map[string]func() tunnelKind{
	"ipip": func() tunnelKind {
		return ipTunnel(
			"IP in IP (RFC 2003)", machine.IPIP, `ip link add "$DEV" type ipip local "$OUTER" remote "$PEER"`, ipv4)
	},
	"gre": func() tunnelKind {
		return ipTunnel("GRE (RFC 2784)", machine.GRE, `ip link add "$DEV" type gre local "$OUTER" remote "$PEER"`, ipv4,
			Header{Name: "GRE", Bytes: 4})
	},
	"vxlan": func() tunnelKind {
		return ipTunnel(
			"VXLAN (RFC 7348)", machine.VXLAN, `ip link add "$DEV" type vxlan id 42 local "$OUTER" remote "$PEER" dstport 4789`,
			ipv4, udp, Header{Name: "VXLAN", Bytes: 8}, Header{Name: "Ethernet", Bytes: 14})
	},
}

// ipTunnel is a tunnel that one command makes on each gateway. The gateways negotiate nothing.
func ipTunnel(about string, feature machine.Feature, script string, headers ...Header) tunnelKind {
	return tunnelKind{
		about:         about + ", Linux",
		needs:         []Need{{Program: "ip", Package: "iproute2", Why: "making the tunnel", Feature: feature}},
		kernelThreads: softirqThreads,
		encapsulation: Encapsulation{Headers: headers},
		up: func(ctx context.Context, t *Tunnel) error {
			return t.onBothGateways(
				ctx, func(ctx context.Context, gateway *end) error {
					gateway.dev = tunnelDev
					return gateway.run(ctx, script)
				})
		},
	}
}
