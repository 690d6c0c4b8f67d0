// The VLANs that clients are in.

package gateway

import (
	"errors"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/dhcp"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// macOnLAN is the MAC address that the client of a lease shows on the LAN.
func macOnLAN(l dhcp.Lease) [6]byte {
	if l.Via != ([6]byte{}) {
		return l.Via
	}
	return [6]byte(l.MAC)
}

// vlansOf returns the VLANs that a client of the LAN is in by its MAC address there: those of the LAN's interface, or,
// where that is a bridge, of the bridge's port by which the address was last seen. None: it is in none, they are not
// asked for, or the kernel does not tell, which is logged.
func (g *gateway) vlansOf(mac [6]byte) session.VLANs {
	if g.cfg.RADIUS.PortID != config.PortVLAN && g.cfg.Devices.UserName != config.UserVLAN {
		return session.VLANs{}
	}
	lan, err := netlink.LinkByName(g.cfg.LAN.Interface)
	if err == nil && lan.Type() == "bridge" {
		lan, err = portOf(lan, mac)
	}
	if err == nil {
		var v session.VLANs
		if v, err = vlansAt(lan); err == nil {
			return v
		}
	}
	g.noVLANs.Do(func() {
		g.log.Warn("looking in which VLAN a client is: RADIUS servers are not told", "mac", net.HardwareAddr(mac[:]).String(),
			"err", err)
	})
	return session.VLANs{}
}

// portOf returns the port of a bridge by which a MAC address was last seen.
func portOf(bridge netlink.Link, mac [6]byte) (netlink.Link, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	req.AddData(&netlink.Ndmsg{Family: unix.AF_BRIDGE})
	req.AddData(nl.NewRtAttr(netlink.NDA_LLADDR, mac[:]))
	req.AddData(nl.NewRtAttr(netlink.NDA_MASTER, nl.Uint32Attr(uint32(bridge.Attrs().Index))))
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil {
		return nil, err
	}
	for _, b := range answers {
		entry, err := netlink.NeighDeserialize(b)
		if err == nil && entry.LinkIndex != 0 {
			return netlink.LinkByIndex(entry.LinkIndex)
		}
	}
	return nil, errors.New("the bridge has not seen it")
}

// vlansAt returns the VLANs of an interface: its own, and that of the interface that it is on. Of more than two it
// returns the inner ones.
func vlansAt(link netlink.Link) (v session.VLANs, err error) {
	inner, is := link.(*netlink.Vlan)
	if !is {
		return v, nil
	}
	v.Outer = uint16(inner.VlanId)
	below, err := netlink.LinkByIndex(inner.ParentIndex)
	if err != nil { // its trunk may be in another namespace
		return v, nil
	}
	if outer, is := below.(*netlink.Vlan); is {
		v.Outer, v.Inner = uint16(outer.VlanId), v.Outer
	}
	return v, nil
}
