package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

const (
	pppIPv6            = 0x0057
	modePass, modeDrop = 0, 1 // NPMODE_PASS, NPMODE_DROP (linux/ppp_defs.h)

	pppDevice = 1 // IFLA_PPP_DEV_FD (linux/if_link.h)

	inetConf        = 1 // IFLA_INET_CONF
	confForwarding  = 1 // IPV4_DEVCONF_FORWARDING (linux/ip.h)
	acceptRedirects = 4 // IPV4_DEVCONF_ACCEPT_REDIRECTS

	// unitQueue is how many packets wait for an interface; an aggregated one is one.
	unitQueue = 1000
)

// pass6 has a unit pass IPv6 packets, or drop them, both ways.
func pass6(unit int, pass bool) error {
	mode := struct{ protocol, mode int32 }{pppIPv6, modeDrop} // struct npioctl
	if pass {
		mode.mode = modePass
	}
	if _, _, errno := unix.Syscall(
		unix.SYS_IOCTL, uintptr(unit), unix.PPPIOCSNPMODE, uintptr(unsafe.Pointer(&mode))); errno != 0 {
		return fmt.Errorf("ioctl PPPIOCSNPMODE: %w", errno)
	}
	return nil
}

// createUnit makes a unit's interface, in one step with its group, by which the rules recognize it. The kernel refuses
// while it makes another unit (EBUSY); then createUnit tries again.
func createUnit(unit int, name string, mtu, group int) (index int, err error) {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	for _, a := range []struct{ kind, value int }{
		{unix.IFLA_MTU, mtu}, {unix.IFLA_GROUP, group}, {unix.IFLA_TXQLEN, unitQueue}} {
		req.AddData(nl.NewRtAttr(a.kind, nl.Uint32Attr(uint32(a.value))))
	}
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("ppp"))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(pppDevice, nl.Uint32Attr(uint32(unit)))
	req.AddData(info)
	for range 1000 {
		if _, err = req.Execute(unix.NETLINK_ROUTE, 0); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		return 0, err
	}
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return 0, err
	}
	return dev.Index, nil
}

// raise sets an interface up, and has the kernel forward packets that arrive there and ignore its ICMP redirects. lower
// sets it down.
func raise(index int) error { return setLink(index, unix.IFF_UP, true) }
func lower(index int) error { return setLink(index, 0, false) }

func setLink(index int, flags uint32, forward bool) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	link := nl.NewIfInfomsg(unix.AF_UNSPEC)
	link.Index, link.Flags, link.Change = int32(index), flags, unix.IFF_UP
	req.AddData(link)
	if forward {
		family := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
		conf := family.AddRtAttr(unix.AF_INET, nil).AddRtAttr(inetConf, nil)
		conf.AddRtAttr(confForwarding, nl.Uint32Attr(1))
		conf.AddRtAttr(acceptRedirects, nl.Uint32Attr(0))
		req.AddData(family)
	}
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// addRoute routes an address to an interface.
func addRoute(to netip.Addr, index int, from netip.Addr) error {
	return netlink.RouteReplace(&netlink.Route{
		LinkIndex: index, Scope: netlink.SCOPE_LINK, Src: from.AsSlice(),
		Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(32, 32)},
	})
}

// Messages about statistics (linux/rtnetlink.h, linux/if_link.h).
const (
	getStats, newStats = unix.RTM_GETSTATS, unix.RTM_NEWSTATS
	statsHeader        = 12 // struct if_stats_msg: family, padding, index at 4, mask of attributes at 8
	statsLink          = 1  // IFLA_STATS_LINK_64
	sentPackets        = 8  // in struct rtnl_link_stats64
	sentBytes          = 24
)

// stats is struct if_stats_msg.
type stats [statsHeader]byte

// Len and Serialize are nl.NetlinkRequestData's.
func (s *stats) Len() int          { return len(s) }
func (s *stats) Serialize() []byte { return s[:] }

// sent reads the packets that an interface has sent, or with index 0 those of all interfaces. Aggregated packets count
// as they are on the line, and bytes without PPP's header.
func sent(index int, each func(index int, n nftables.Counted)) error {
	flags := 0
	if index == 0 {
		flags = unix.NLM_F_DUMP
	}
	var header stats
	binary.NativeEndian.PutUint32(header[4:], uint32(index))
	binary.NativeEndian.PutUint32(header[8:], 1<<(statsLink-1))
	answers, err := stack.ConsistentList(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(getStats, flags)
		req.AddData(&header)
		return req.Execute(unix.NETLINK_ROUTE, newStats)
	})
	if err != nil {
		return fmt.Errorf("reading what interfaces have sent: %w", err)
	}
	for _, a := range answers {
		if len(a) < statsHeader {
			continue
		}
		attrs, err := nl.ParseRouteAttr(a[statsHeader:])
		if err != nil {
			return fmt.Errorf("reading what interfaces have sent: %w", err)
		}
		for _, attr := range attrs {
			if v := attr.Value; attr.Attr.Type == statsLink && len(v) >= sentBytes+8 {
				each(int(binary.NativeEndian.Uint32(a[4:])), nftables.Counted{
					Packets: binary.NativeEndian.Uint64(v[sentPackets:]), Bytes: binary.NativeEndian.Uint64(v[sentBytes:]),
				})
			}
		}
	}
	return nil
}

// units lists the interfaces of a group.
func units(group uint32) ([]netlink.Link, error) {
	all, err := stack.ConsistentList(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	var ownLinks []netlink.Link
	for _, l := range all {
		if l.Type() == "ppp" && l.Attrs().Group == group {
			ownLinks = append(ownLinks, l)
		}
	}
	return ownLinks, nil
}

func native32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// uint32Of is a number that native32 wrote.
func uint32Of(b string) uint32 { return binary.NativeEndian.Uint32([]byte(b[:4])) }
