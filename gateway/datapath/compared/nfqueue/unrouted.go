package nfqueue

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// unrouted is the chain that queues clients' HTTP and new TCP connections ahead of routing while there is no default
// route: the hooks of fast.go come after routing, where the stack has refused packets to addresses without a route, and
// unauthenticated clients would get an ICMP error, one a second, instead of the portal and resets. With a default route
// the chain does not exist, because each hook costs time for every packet.
const unrouted = "unrouted"

// unroutedRules creates the chain before routing. Packets that the judge does not intercept there are judged after
// routing.
func (d *Datapath) unroutedRules(b *nftables.Batch, t nftables.Table) {
	tcp := append(d.fromLAN(),
		nftables.Meta(0, unix.NFT_META_PKTTYPE), nftables.Equal(0, []byte{unix.PACKET_HOST}),
		nftables.Meta(0, unix.NFT_META_L4PROTO), nftables.Equal(0, []byte{unix.IPPROTO_TCP}))
	b.AddChain(t, unrouted, &nftables.Hook{Type: "filter", Number: unix.NF_INET_PRE_ROUTING, Priority: priorityRaw})
	for mark, chain := range map[uint32]string{markPortal: "portal", markReject: "reject"} {
		b.AddRule(t, unrouted, slices.Concat(tcp, marked(mark), []nftables.Expr{nftables.Goto(chain)})...)
	}
	b.AddRule(t, unrouted, slices.Concat(tcp, []nftables.Expr{
		nftables.Payload(0, nftables.TransportHeader, receiverPort, portSize), nftables.Equal(0, port(80)),
		nftables.Goto("ask")})...)
	b.AddRule(t, unrouted, slices.Concat(tcp, opens(), []nftables.Expr{nftables.Goto("ask")})...)
}

// opens continues with the first segment of a TCP connection: SYN without ACK.
func opens() []nftables.Expr {
	const flags, flagsSize = 13, 1
	return []nftables.Expr{nftables.Payload(0, nftables.TransportHeader, flags, flagsSize), nftables.And(0, []byte{0x12}),
		nftables.Equal(0, []byte{0x02})}
}

// fromLAN continues with packets of the LAN.
func (d *Datapath) fromLAN() []nftables.Expr { return nftables.CameBy(d.net.Interface) }

// followDefault adds the chain when the default route goes, and removes it when there is one.
func (d *Datapath) followDefault() {
	if d.fast == nil || len(d.cfg.PortalPorts) == 0 {
		return
	}
	routed, err := stack.HasDefault()
	if err != nil {
		d.cfg.Log.Error("looking for a default route; clients' HTTP is judged ahead of routing", "err", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fast.unrouted == !routed {
		return
	}
	var b nftables.Batch
	t := tablesOf(d.net.Interface).ip
	if routed {
		b.ClearChain(t, unrouted)
		b.DeleteChain(t, unrouted)
	} else {
		d.unroutedRules(&b, t)
	}
	if err := d.rules.Commit(&b); err != nil {
		d.cfg.Log.Error(
			"bringing clients without a login to the portal while there is no default route; trying again when a route changes",
			"err", err)
		return
	}
	d.fast.unrouted = !routed
}
