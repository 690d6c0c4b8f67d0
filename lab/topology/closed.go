package topology

import (
	"encoding/binary"
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
)

// closed is client – router – server with a router that is no host of the lab's. The hosts take addresses of its
// networks: clients and their host those of the LAN, beginning and end, the server the first ones of the other.
//
//	client host              the router as it is            server
//	 clients ── c0 ═══════ lan address ·· wan address ═══════ s0
func (p Spec) closed() Topology {
	lan, wan := p.Closed[0], p.Closed[1]
	server := freeFrom(wan, offset(wan, 1), 1, 2)
	t := Topology{Closed: true, Urgent: p.Urgent, Addressing: Addressing{
		LAN: lan.Masked(), Gateway: lan.Addr(), RouterWAN: wan.Addr(), ServerIP: server, ServiceIP: server.Next(),
	}}
	hosts := freeFrom(lan, offset(lan, -2), -1, max(1, p.ClientHosts))
	t.FirstLease, t.LastLease = leasesOf(lan, hosts, max(1, p.ClientHosts))
	onWAN := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, wan.Bits()) }
	t.Nodes = []Node{{Name: "server", Role: backend.RoleServer, Sysctls: with(client.Sysctls, queuesFor(p.Clients)),
		Routes: []agent.Route{{To: t.LAN, Via: wan.Addr()}}}}
	outside := Port{Node: Outside}
	sockets := make([]Port, max(1, p.ClientHosts))
	for i := range sockets {
		sockets[i] = outside
	}
	p.addEnds(&t, sockets, netip.PrefixFrom(hosts, lan.Bits()), clientHost6, lan.Addr(), routerLAN6.Addr())
	t.Links = append(t.Links, Link{A: outside, B: p.limited("server", "s0", onWAN(server), onWAN(server.Next()))})
	return t
}

// offset is an address of a network by its place; negative places count from the end, -1 is the broadcast address.
func offset(p netip.Prefix, place int) netip.Addr {
	first := p.Masked().Addr().As4()
	n := binary.BigEndian.Uint32(first[:])
	if place < 0 {
		n += 1 << (32 - p.Bits())
	}
	binary.BigEndian.PutUint32(first[:], uint32(int64(n)+int64(place)))
	return netip.AddrFrom4(first)
}

// freeFrom is the first address from one on, counting by step, from which count addresses in that direction are not the
// router's.
func freeFrom(router netip.Prefix, from netip.Addr, step, count int) netip.Addr {
	next := netip.Addr.Next
	if step < 0 {
		next = netip.Addr.Prev
	}
	a := from
	for range count {
		if a == router.Addr() {
			return next(a)
		}
		a = next(a)
	}
	return from
}

// leasesOf is the larger of the ranges before and after the router that the hosts, which count down, leave free.
func leasesOf(lan netip.Prefix, hosts netip.Addr, count int) (first, last netip.Addr) {
	first, last = offset(lan, 1), hosts
	for range count {
		last = last.Prev()
	}
	switch router := lan.Addr(); {
	case router.Compare(first) < 0 || router.Compare(last) > 0:
		return first, last
	case place(router)-place(first) > place(last)-place(router):
		return first, router.Prev()
	default:
		return router.Next(), last
	}
}

func place(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}
