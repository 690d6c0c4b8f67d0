package netnstest

import (
	"flag"
	"os"
	"testing"
)

// Place tells how the clients of a test's network are connected to the gateway.
type Place string

// Places of clients. The zero value stands for the place that the flag -clients names.
const (
	// Behind: the clients are behind a bridge in a namespace of its own, with default sysctls, as behind a switch or an
	// access point that runs Linux.
	Behind Place = "behind"
	// Direct: the clients are at the other end of the LAN's interface, as containers and virtual machines on the gateway's
	// machine are.
	Direct Place = "direct"
	// OnGateway: the LAN's interface is a bridge on the gateway's machine, whose frames netfilter sees, as where Docker or
	// libvirt run on that machine.
	OnGateway Place = "gateway"
)

var clients = flag.String("clients", string(Behind),
	"where clients of tests are: behind (a bridge), direct, or gateway (the LAN is a bridge whose frames netfilter sees)")

// OrDefault returns the place, or for the zero value that of the flag. It skips the test where the kernel lacks a
// feature that the place needs.
func (p Place) OrDefault(t testing.TB) Place {
	t.Helper()
	if p == "" {
		p = Place(*clients)
	}
	switch p {
	case OnGateway:
		NeedBridgeCalls(t)
	case Behind, Direct:
	default:
		t.Fatalf("-clients %s: there are %s, %s and %s", p, Behind, Direct, OnGateway)
	}
	return p
}

// DefaultPlace reports whether the flag -clients has its default. Then tests of several places run all of them.
func DefaultPlace() bool { return *clients == string(Behind) }

// bridgeCalls is the sysctl that makes netfilter see the frames of a namespace's bridges. In kernels without it
// netfilter does not see them.
const bridgeCalls = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// NeedBridgeCalls skips a test on kernels whose netfilter does not see the frames of bridges.
func NeedBridgeCalls(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(bridgeCalls); err != nil {
		t.Skip("the kernel lacks netfilter of bridged frames (CONFIG_BRIDGE_NETFILTER; where it is a module: modprobe " +
			"br_netfilter)")
	}
}

// Hub has two functions for scripts. "hub" makes the bridge br0, which sends every frame to all of its ports. "plug lan
// c1" makes the links lan and c1 ports of it.
//
// A frame that crosses a veth keeps the socket of its sender, and eBPF programs see that socket, which a frame from a
// wire does not have. A bridge passes the frame itself to its first port, and copies without the socket to the others.
// So hub first plugs in a port that leads nowhere.
//
// On kernels where that is the default, netfilter sees the bridge's frames, and drops frames whose IP header is broken:
// see Plain. A script that makes links before it calls hub must run NoIPv6 before that.
const Hub = `hub() { ` + NoIPv6 + `
ip link add br0 type bridge ageing_time 0 mcast_snooping 0; ip link add sink0 type veth peer name sink1
ip link set br0 up; ip link set sink1 up; plug sink0; }
plug() { for port; do ip link set "$port" master br0 up; until bridge link show dev "$port" | grep -q "state forwarding"; do sleep 0.01; done; done; }
`

// Plain is for scripts in a hub's namespace. It keeps netfilter from seeing the frames, as in a switch, so that frames
// with broken headers pass.
const Plain = `for call in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e "$call" ] || echo 0 >"$call"; done
`

// VisibleBridge has a function for scripts on a gateway: "seen lan0 address …" makes a bridge whose frames netfilter
// sees. The bridge has the kernel's defaults, except that it has no multicast snooping, and so sends no queries.
const VisibleBridge = `seen() { ip link add "$@" type bridge mcast_snooping 0; echo 1 >` + bridgeCalls + `; }
`
