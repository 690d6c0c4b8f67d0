package netnstest

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// End is one end of a link.
type End struct {
	Name string
	MAC  net.HardwareAddr // nil: the kernel chooses one
}

// Set writes a value of /proc/sys/net of the namespace: s.Set(t, "ipv4/ip_forward", "1").
func (s *Space) Set(t testing.TB, name, value string) {
	t.Helper()
	s.must(t, func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}

// Quiet keeps the namespace's kernel from sending packets on its own (see NoIPv6) and from forwarding packets.
func (s *Space) Quiet(t testing.TB) {
	t.Helper()
	s.Set(t, "ipv6/conf/default/disable_ipv6", "1")
	s.Set(t, "ipv4/ip_forward", "0")
}

// Veth makes a link between the namespace and another one. Both ends are down.
func (s *Space) Veth(t testing.TB, near End, other *Space, far End) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = near.Name, near.MAC
	s.must(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: far.Name, PeerHardwareAddr: far.MAC,
			PeerNamespace: netlink.NsPid(other.TID())})
	})
}

// Macvlan makes a macvlan in another namespace, in mode bridge, on the link called shared of this one. It is down.
func (s *Space) Macvlan(t testing.TB, shared string, other *Space, end End) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.Namespace = end.Name, end.MAC, netlink.NsPid(other.TID())
	s.must(t, func() error {
		parent, err := netlink.LinkByName(shared)
		if err != nil {
			return err
		}
		attrs.ParentIndex = parent.Attrs().Index
		return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE})
	})
}

// Enable sets a link up and gives it addresses. AwaitUp waits until the link carries packets.
func (s *Space) Enable(t testing.TB, name string, addrs ...netip.Prefix) {
	t.Helper()
	s.link(t, name, func(l netlink.Link) error {
		for _, a := range addrs {
			ip := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
			if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: ip}); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(l)
	})
}

// Default adds a default route via a gateway.
func (s *Space) Default(t testing.TB, gateway netip.Addr) {
	t.Helper()
	s.must(t, func() error { return netlink.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()}) })
}

// AwaitUp waits until links carry packets. A link made before its other end drops packets until the kernel has noticed
// that end: for some milliseconds after both are up, and longer on a busy machine.
func (s *Space) AwaitUp(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		untilSoon(t, name+" to be up", func() (up bool) {
			s.link(t, name, func(l netlink.Link) error { up = l.Attrs().OperState == netlink.OperUp; return nil })
			return up
		})
	}
}

// Bridge makes a bridge without multicast snooping, so that it sends no queries. It is down.
func (s *Space) Bridge(t testing.TB, end End) {
	t.Helper()
	attrs, no := netlink.NewLinkAttrs(), false
	attrs.Name, attrs.HardwareAddr = end.Name, end.MAC
	s.must(t, func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &no}) })
}

// Hub makes the bridge br0, which sends every frame to all of its ports: see the script Hub.
func (s *Space) Hub(t testing.TB) {
	t.Helper()
	s.Set(t, "ipv6/conf/default/disable_ipv6", "1")
	attrs, no, never := netlink.NewLinkAttrs(), false, uint32(0)
	attrs.Name = "br0"
	s.must(t, func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &no, AgeingTime: &never})
	})
	s.Veth(t, End{Name: "sink0"}, s, End{Name: "sink1"})
	s.Enable(t, "br0")
	s.Enable(t, "sink1")
	s.Plug(t, "sink0")
}

// Plug makes links ports of br0, and waits until the bridge forwards their frames.
func (s *Space) Plug(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		s.Port(t, name, "br0")
		untilSoon(t, name+" to forward", func() (ok bool) {
			s.link(t, name, func(l netlink.Link) (err error) { ok, err = forwards(l); return err })
			return ok
		})
	}
}

// Port makes a link a bridge's port, and sets it up.
func (s *Space) Port(t testing.TB, name, bridge string) {
	t.Helper()
	s.link(t, name, func(l netlink.Link) error {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetMaster(l, master), netlink.LinkSetUp(l))
	})
}

// forwards reports whether a port of a bridge is in the state forwarding, which IFLA_PROTINFO in the kernel's message
// about the link has.
func forwards(port netlink.Link) (bool, error) {
	const forwarding = 3 // BR_STATE_FORWARDING, linux/if_bridge.h
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE))
	messages, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return false, err
	}
	for _, m := range messages {
		info := nl.DeserializeIfInfomsg(m)
		attrs, err := nl.ParseRouteAttr(m[info.Len():])
		if err != nil {
			return false, err
		}
		for _, a := range attrs {
			if int(info.Index) != port.Attrs().Index || a.Attr.Type&nl.NLA_TYPE_MASK != unix.IFLA_PROTINFO {
				continue
			}
			nested, err := nl.ParseRouteAttr(a.Value)
			if err != nil {
				return false, err
			}
			for _, n := range nested {
				if n.Attr.Type == nl.IFLA_BRPORT_STATE {
					return n.Value[0] == forwarding, nil
				}
			}
		}
	}
	return false, nil
}

// link calls f with a link in the namespace, and fails the test with its error.
func (s *Space) link(t testing.TB, name string, f func(netlink.Link) error) {
	t.Helper()
	s.must(t, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(l)
	})
}

// must calls f in the namespace, and fails the test with its error.
func (s *Space) must(t testing.TB, f func() error) {
	t.Helper()
	var err error
	s.Do(func() { err = f() })
	Must(t, err)
}

// untilSoon is Until for what the kernel usually does within a millisecond: in the beginning it looks every
// millisecond.
func untilSoon(t testing.TB, label string, ok func() bool) {
	t.Helper()
	for range 20 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	Until(t, label, ok)
}
