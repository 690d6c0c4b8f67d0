// The packet socket by which the Server receives neighbour discovery.

package bindings

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// socket receives neighbour discovery. Clients ask at the multicast addresses of the addresses that they ask for.
var socket = framelink.Socket{Filter: filter, Buffer: receiveBuffer, AllGroups: true}

const receiveBuffer = 4 << 20 // bytes: some 5,000 messages

// filter passes untagged ICMPv6 messages of the types 133 to 137 that arrived on the interface and are addressed to
// this host or to a group.
func filter(ifindex uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ifindex, SkipTrue: 12},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.PACKET_MULTICAST, SkipTrue: 10},
		bpf.LoadExtension{Num: bpf.ExtVLANTag}, // which the kernel has taken off; 0 is a priority alone
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0xfff, SkipTrue: 8},
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IPV6, SkipTrue: 6},
		bpf.LoadAbsolute{Off: ethernetLen + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: icmpv6, SkipTrue: 4},
		bpf.LoadAbsolute{Off: ethernetLen + ipv6Len, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: RouterSolicitation, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: Redirect, SkipTrue: 1},
		bpf.RetConstant{Val: framelink.MaxFrame},
		bpf.RetConstant{Val: 0},
	}
}
