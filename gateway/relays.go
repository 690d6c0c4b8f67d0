// Relays of DHCP with clients behind them.

package gateway

import (
	"context"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/arp"
	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// openRelays begins to answer ARP requests of relays' routers for the gateway's address. They are no clients, to whom
// alone the kernel answers: data paths keep it from hearing of others.
func (g *gateway) openRelays(context.Context) (o opened, err error) {
	var routers []netip.Addr
	for _, r := range g.cfg.DHCP.Relays {
		if r.Router.IsValid() {
			routers = append(routers, r.Router)
		} else {
			routers = append(routers, r.Addr)
		}
	}
	if len(routers) == 0 {
		return o, nil
	}
	own := g.cfg.LAN.Address.Addr()
	link, err := framelink.Open(framelink.Config{
		Interface: g.cfg.LAN.Interface, Log: g.log, Socket: framelink.Socket{Filter: arpFilter(own), Buffer: 1 << 16}})
	if err != nil {
		return o, err
	}
	answer := func(frame []byte) {
		reply := arp.Reply(frame, own, link.MAC())
		if reply == nil || !slices.Contains(routers, netip.AddrFrom4([4]byte(frame[arpSender:]))) {
			return
		}
		if err := link.Send(reply); err != nil {
			g.log.Debug("answering ARP of a relay", "err", err)
		}
	}
	return opened{run: func(ctx context.Context) error { link.Run(ctx, answer, nil); return nil },
		close: func() error { link.Close(); return nil }}, nil
}

// Offsets in a frame with an ARP packet of IPv4 over Ethernet (RFC 826).
const (
	arpOperation = 14 + 6
	arpSender    = 14 + 14
	arpTarget    = 14 + 24
)

// arpFilter passes ARP requests for an address.
func arpFilter(own netip.Addr) func(ifindex uint32) []bpf.Instruction {
	a := own.As4()
	target := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	return func(ifindex uint32) []bpf.Instruction {
		return []bpf.Instruction{
			bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ifindex, SkipTrue: 9},
			bpf.LoadExtension{Num: bpf.ExtVLANTag}, // which the kernel has taken off; 0 is a priority alone
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0xfff, SkipTrue: 7},
			bpf.LoadAbsolute{Off: 12, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_ARP, SkipTrue: 5},
			bpf.LoadAbsolute{Off: arpOperation, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 1, SkipTrue: 3},
			bpf.LoadAbsolute{Off: arpTarget, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: target, SkipTrue: 1},
			bpf.RetConstant{Val: framelink.MaxFrame},
			bpf.RetConstant{Val: 0},
		}
	}
}
