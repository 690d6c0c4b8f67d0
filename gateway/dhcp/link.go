package dhcp

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/framelink"
)

const receiveBuffer = 4 << 20 // bytes: some 5,000 requests

func linkConfig(cfg Config) framelink.Config {
	return framelink.Config{
		Interface: cfg.Interface, Frames: cfg.Requests, Log: cfg.Log,
		Socket: framelink.Socket{Filter: requestFilter, Buffer: receiveBuffer},
		Port: framelink.Port{
			Number: serverPort, Taken: "another DHCP server has the port: stop it, or configure DHCP as external"},
	}
}

// requestFilter passes untagged, complete UDP datagrams to port 67 that arrived on the
// interface and are addressed to this host or to all.
func requestFilter(ifindex uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ifindex, SkipTrue: 14},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.PACKET_BROADCAST, SkipTrue: 12},
		bpf.LoadExtension{Num: bpf.ExtVLANTag}, // which the kernel has taken off; 0 is a priority alone
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0xfff, SkipTrue: 10},
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 8},
		bpf.LoadAbsolute{Off: ethernetLen + 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 6},
		bpf.LoadAbsolute{Off: ethernetLen + 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 4}, // a fragment
		bpf.LoadMemShift{Off: ethernetLen},
		bpf.LoadIndirect{Off: ethernetLen + 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: serverPort, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	}
}
