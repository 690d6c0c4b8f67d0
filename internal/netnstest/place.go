package netnstest

import (
	"flag"
	"os"
	"testing"
)

// Place says how the clients of a test network are connected to the gateway.
type Place string

// Places of clients. The zero value stands for the place of the flag -clients.
const (
	// Behind: behind a bridge in a namespace of its own with default sysctls, as behind a switch or an access point that
	// is a Linux machine.
	Behind Place = "behind"
	// Direct: at the other end of the LAN's interface, as containers and guests of the gateway's machine are.
	Direct Place = "direct"
	// OnGateway: the LAN's interface is a bridge of the gateway's machine, whose frames netfilter sees, as beside Docker
	// and libvirt.
	OnGateway Place = "gateway"
)

var clients = flag.String("clients", string(Behind),
	"where clients of tests are: behind (a bridge), direct, or gateway (the LAN is a bridge whose frames netfilter sees)")

// Where returns the place: for the zero value, that of the flag. It skips a test on kernels that lack a feature for the
// place.
func (p Place) Where(t testing.TB) Place {
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

// Everywhere reports whether the flag has no place of its own, so that tests are for several.
func Everywhere() bool { return *clients == string(Behind) }

// bridgeCalls has netfilter see the frames of a namespace's bridges. Where it is absent it never does.
const bridgeCalls = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// NeedBridgeCalls skips a test on kernels whose netfilter does not see the frames of bridges.
func NeedBridgeCalls(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(bridgeCalls); err != nil {
		t.Skip("the kernel lacks netfilter of bridged frames (CONFIG_BRIDGE_NETFILTER; where it is a module: modprobe " +
			"br_netfilter)")
	}
}

// Hub has two functions for scripts: "hub" makes the bridge br0, which sends every frame to all of its ports, and "plug
// lan c1" makes links its ports. A frame that crosses a veth keeps its sender's socket, which a frame from a wire does
// not have, and programs see the socket. The bridge sends the frame itself to its first port, and copies without the
// socket to the others: so hub plugs in a port first that leads nowhere. The namespace's sysctls are the kernel's:
// where that has it so, netfilter sees the frames, and drops those whose IP header is broken. Links made before hub
// need NoIPv6 before them.
const Hub = `hub() { ` + NoIPv6 + `
ip link add br0 type bridge ageing_time 0 mcast_snooping 0; ip link add sink0 type veth peer name sink1
ip link set br0 up; ip link set sink1 up; plug sink0; }
plug() { for port; do ip link set "$port" master br0 up; until bridge link show dev "$port" | grep -q "state forwarding"; do sleep 0.01; done; done; }
`

// Plain is for scripts in a hub's namespace: netfilter does not see the frames, as in a switch, so that broken ones
// come through.
const Plain = `for call in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e "$call" ] || echo 0 >"$call"; done
`

// Bridge has a function for scripts on a gateway: "seen lan0 address …" makes a bridge whose frames netfilter sees. It
// asks for no groups, as a bridge with snooping does; the rest is the kernel's defaults.
const Bridge = `seen() { ip link add "$@" type bridge mcast_snooping 0; echo 1 >` + bridgeCalls + `; }
`
