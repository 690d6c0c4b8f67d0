package routeradv

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/framelink"
)

const receiveBuffer = 1 << 20 // bytes: some 1,300 solicitations

// linkConfig has the interface take frames to all routers and all nodes, also where the kernel does not forward IPv6.
func linkConfig(cfg Config) framelink.Config {
	return framelink.Config{
		Interface: cfg.Interface, Frames: cfg.Frames, Log: cfg.Log,
		Socket: framelink.Socket{Filter: frameFilter, Buffer: receiveBuffer,
			Groups: []MAC{groupMAC(allNodes.As16()), groupMAC(allRouters.As16())}},
	}
}

// groupMAC is the Ethernet address of a multicast group (RFC 2464, section 7).
func groupMAC(group [16]byte) MAC { return MAC{0x33, 0x33, group[12], group[13], group[14], group[15]} }

// frameFilter passes untagged router solicitations and advertisements that arrived on the interface and are addressed
// to this host or to several.
func frameFilter(ifindex uint32) []bpf.Instruction {
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
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 4},
		bpf.LoadAbsolute{Off: ethernetLen + ipv6Len, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeRS, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: typeRA, SkipTrue: 1},
		bpf.RetConstant{Val: framelink.MaxFrame},
		bpf.RetConstant{Val: 0},
	}
}
