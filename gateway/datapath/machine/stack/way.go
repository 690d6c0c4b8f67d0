package stack

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Way describes how the stack forwards between a LAN and a WAN, if a packet's addresses alone determine that.
type Way struct {
	Next netip.Addr // the next hop, at the WAN, for all addresses outside Others
	// Link is the WAN's own network, whose hosts are their own next hop, except those in OwnRoutes; the zero Prefix:
	// none.
	Link netip.Prefix
	// OwnRoutes are addresses of Link that have a route of their own; at most 8.
	OwnRoutes []netip.Addr
	// Others are all prefixes that the default route does not serve: the destinations of other routes, also of local and
	// unreachable ones, among them Link and the LAN's network; and prefixes that are never forwarded (martians).
	Others []netip.Prefix
	// LANMTU and WANMTU are the MTUs, bytes.
	LANMTU, WANMTU int
}

// martians are prefixes that no packet between the two may come from or go to (RFC 1812, 5.3.7).
var martians = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), Multicast}

// Multicast is the addresses of groups, broadcast, and reserved ones.
var Multicast = netip.MustParsePrefix("224.0.0.0/3")

// routesMax bounds the routes that FindWay reads whenever a route changes.
const routesMax = 1000

// FindWay determines the way from a LAN with the given network to a WAN. If it is not certain, unsure gives the reason
// in a few words.
func FindWay(lan, wan *net.Interface, network netip.Prefix) (w Way, unsure string, err error) {
	if unsure, err = w.links(lan, wan); unsure != "" || err != nil {
		return Way{}, unsure, err
	}
	if unsure, err = ruled(unix.AF_INET); unsure != "" || err != nil {
		return Way{}, unsure, err
	}
	all, err := routesUpTo(unix.AF_INET, routesMax)
	if err != nil {
		return Way{}, "", err
	}
	if len(all) > routesMax {
		return Way{}, tooManyRoutes, nil
	}
	if unsure = w.routes(all, lan.Index, wan.Index, network); unsure != "" {
		return Way{}, unsure, nil
	}
	neighbours, err := ConsistentList(
		func() ([]netlink.Neigh, error) { return netlink.NeighList(wan.Index, unix.AF_INET) })
	if err != nil {
		return Way{}, "", fmt.Errorf("listing the neighbours: %w", err)
	}
	for _, n := range neighbours {
		if n.State == unix.NUD_FAILED && n.IP.Equal(w.Next.AsSlice()) {
			return Way{}, "the next hop does not answer", nil
		}
	}
	return w, "", nil
}

// links checks the interfaces.
func (w *Way) links(lan, wan *net.Interface) (unsure string, err error) {
	for dev, mtu := range map[*net.Interface]*int{lan: &w.LANMTU, wan: &w.WANMTU} {
		link, err := netlink.LinkByIndex(dev.Index)
		if err != nil {
			return "", fmt.Errorf("interface %s: %w", dev.Name, err)
		}
		a := link.Attrs()
		forwards, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + a.Name + "/forwarding")
		switch {
		case err != nil:
			return "", fmt.Errorf("looking whether %s forwards: %w", a.Name, err)
		case strings.TrimSpace(string(forwards)) != "1":
			return a.Name + " does not forward", nil
		case a.RawFlags&unix.IFF_UP == 0 || a.RawFlags&unix.IFF_RUNNING == 0:
			return a.Name + " is down", nil
		case a.MasterIndex != 0:
			return a.Name + " is part of another interface", nil
		case a.EncapType != "ether" || a.RawFlags&unix.IFF_NOARP != 0:
			return a.Name + " has no neighbours", nil
		}
		*mtu = a.MTU
	}
	return "", nil
}

const tooManyRoutes = "there are too many routes"

// routesUpTo lists the routes of all tables, and ends after more than most.
func routesUpTo(family, most int) ([]netlink.Route, error) {
	all, err := ConsistentList(func() ([]netlink.Route, error) {
		var all []netlink.Route
		err := netlink.RouteListFilteredIter(
			family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
				all = append(all, r)
				return len(all) <= most
			})
		return all, err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the routes: %w", err)
	}
	return all, nil
}

// HasDefault reports whether any table has a default route that leads somewhere.
func HasDefault() (found bool, err error) {
	_, err = ConsistentList(func() ([]netlink.Route, error) {
		found = false
		return nil, netlink.RouteListFilteredIter(
			unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
				found = found || destination(r).Bits() == 0 && hasLiveHop(r)
				return !found
			})
	})
	if err != nil {
		return false, fmt.Errorf("listing the routes: %w", err)
	}
	return found, nil
}

// hasLiveHop reports whether a route has a hop whose link is up.
func hasLiveHop(r netlink.Route) bool {
	const down = unix.RTNH_F_DEAD | unix.RTNH_F_LINKDOWN
	if len(r.MultiPath) > 0 {
		return slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool { return hop.Flags&down == 0 })
	}
	return r.Type == unix.RTN_UNICAST && r.Flags&down == 0
}

// ruled says in a few words that there are routing rules other than the three default rules; "": there are none.
func ruled(family int) (unsure string, err error) {
	rules, err := ConsistentList(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
	if err != nil {
		return "", fmt.Errorf("listing the rules of routing: %w", err)
	}
	reached := map[int]bool{}
	for _, r := range rules {
		if !ordinary(r) {
			return "there are rules of routing", nil
		}
		reached[r.Table] = true
	}
	if !reached[unix.RT_TABLE_LOCAL] || !reached[unix.RT_TABLE_MAIN] {
		return "default rules of routing are missing", nil
	}
	return "", nil
}

// ordinary reports whether a routing rule is one of the three default rules.
func ordinary(r netlink.Rule) bool {
	tables := map[int]int{0: unix.RT_TABLE_LOCAL, 32766: unix.RT_TABLE_MAIN, 32767: unix.RT_TABLE_DEFAULT}
	table, known := tables[r.Priority]
	return known && r.Table == table && r.SuppressPrefixlen < 0 && r.SuppressIfgroup < 0 && r.Src == nil && r.Dst == nil &&
		r.Mark == 0 && r.IifName == "" && r.OifName == "" && !r.Invert &&
		r.Tos == 0 && r.IPProto == 0 && r.Sport == nil && r.Dport == nil && r.UIDRange == nil
}

// maxOwnRoutes is the number of addresses of Link that may have their own routes.
const maxOwnRoutes = 8

// routes classifies the machine's routes: the default route, routes to hosts on the LAN or on the WAN's link, and
// others.
func (w *Way) routes(all []netlink.Route, lan, wan int, network netip.Prefix) (unsure string) {
	w.Others = append(w.Others, martians...)
	var near bool // the LAN's route exists
	var ownPrefixes []netip.Prefix
	for _, r := range all {
		if r.Table != unix.RT_TABLE_LOCAL && r.Table != unix.RT_TABLE_MAIN {
			continue // no rule leads to this table, or only after the default route
		}
		to := destination(r)
		switch {
		case to.Bits() > 0: // not a default route
			w.Others = append(w.Others, to)
		case w.Next.IsValid():
			return "there is more than one default route"
		case r.LinkIndex != wan || !isPlain(r) || r.Gw.To4() == nil:
			return "the default route is no next hop at the WAN"
		default:
			w.Next = netip.AddrFrom4([4]byte(r.Gw.To4()))
			continue
		}
		onLink := r.Table == unix.RT_TABLE_MAIN && isPlain(r) && r.Gw == nil
		switch {
		case onLink && r.LinkIndex == lan && to == network && !near:
			near = true
		case r.Table == unix.RT_TABLE_MAIN && network.Contains(to.Addr()):
			return "there are routes within the LAN"
		case onLink && r.LinkIndex == wan && !w.Link.IsValid():
			w.Link = to
		default:
			ownPrefixes = append(ownPrefixes, to)
		}
	}
	switch {
	case !w.Next.IsValid():
		return "there is no default route"
	case !near:
		return "there is no route to the LAN"
	}
	w.findOwnRoutes(ownPrefixes)
	return ""
}

// findOwnRoutes determines which addresses of Link have their own routes. If these are too many, or more than single
// addresses, all of Link is left to the stack.
func (w *Way) findOwnRoutes(ownPrefixes []netip.Prefix) {
	if !w.Link.IsValid() {
		return
	}
	for _, p := range ownPrefixes {
		if p.Bits() < w.Link.Bits() || !w.Link.Contains(p.Addr()) {
			continue
		}
		if w.OwnRoutes = append(w.OwnRoutes, p.Addr()); !p.IsSingleIP() || len(w.OwnRoutes) > maxOwnRoutes {
			w.Link, w.OwnRoutes = netip.Prefix{}, nil
			return
		}
	}
}

// isPlain reports whether a route applies to all packets to its destination, leads to one hop and changes no packet.
func isPlain(r netlink.Route) bool {
	return r.Type == unix.RTN_UNICAST && len(r.MultiPath) == 0 && r.Tos == 0 && r.MTU == 0 && r.Encap == nil &&
		r.Via == nil && r.MPLSDst == nil && r.NewDst == nil &&
		r.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0
}

// destination returns a route's destination; 0.0.0.0/0 for the default route.
func destination(r netlink.Route) netip.Prefix {
	if r.Dst == nil {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	bits, _ := r.Dst.Mask.Size()
	addr, _ := netip.AddrFromSlice(r.Dst.IP.To4())
	return netip.PrefixFrom(addr, bits)
}

// IsThere reports whether there is an interface of an index. Package net lists all interfaces to find that out.
func IsThere(index int) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true // and it is asked again
	}
	defer unix.Close(fd)
	r, _ := unix.NewIfreq("") // no error: the name is short
	r.SetUint32(uint32(index))
	return unix.IoctlIfreq(fd, unix.SIOCGIFNAME, r) == nil
}
