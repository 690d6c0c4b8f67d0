package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// destinationRoutesMax bounds the routes that ByDestination reads whenever a route changes: some 5 µs of CPU each.
const destinationRoutesMax = 10_000

// ByDestination checks that the stack forwards packets from a LAN, with the given network, by their destination alone,
// wherever that leads, and packets from a WAN for the network to the LAN. If not, unsure gives the reason in a few
// words. A way (FindWay) demands more: one next hop for all.
func ByDestination(lan, wan *net.Interface, network netip.Prefix) (unsure string, err error) {
	var w Way
	if unsure, err = w.links(lan, wan); unsure != "" || err != nil {
		return unsure, err
	}
	if unsure, err = ruled(unix.AF_INET); unsure != "" || err != nil {
		return unsure, err
	}
	if shown, err := sysctl("nexthop_compat_mode"); err != nil || shown == 0 {
		return "routes do not show their next hops (net.ipv4.nexthop_compat_mode = 0)", err
	}
	all, err := routesUpTo(unix.AF_INET, destinationRoutesMax)
	if err != nil {
		return "", err
	}
	if len(all) > destinationRoutesMax {
		return tooManyRoutes, nil
	}
	checks, err := sourceChecks(wan.Name)
	if err != nil {
		return "", err
	}
	return byDestination(all, lan.Index, wan.Index, network, checks), nil
}

// sysctl reads a number below net.ipv4; 1 where this kernel does not have it.
func sysctl(name string) (int, error) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return 1, nil
	}
	n, e := strconv.Atoi(strings.TrimSpace(string(b)))
	if err = errors.Join(err, e); err != nil {
		return 0, fmt.Errorf("reading net.ipv4.%s: %w", name, err)
	}
	return n, nil
}

// strict is the value of rp_filter by which the way back to the source must lead through the interface (RFC 3704).
const strict = 1

// sourceChecks returns an interface's rp_filter: the larger of its own and that of all.
func sourceChecks(name string) (int, error) {
	all, err := sysctl("conf/all/rp_filter")
	own, err2 := sysctl("conf/" + name + "/rp_filter")
	return max(all, own), errors.Join(err, err2)
}

// byDestination checks the routes that packets can meet for ByDestination. checks is rp_filter of the WAN's interface,
// by which the kernel checks that packets' sources have a route back.
func byDestination(all []netlink.Route, lan, wan int, network netip.Prefix, checks int) (unsure string) {
	var near, fallback bool // the LAN's route and a default route exist
	for _, r := range all {
		if r.Table != unix.RT_TABLE_LOCAL && r.Table != unix.RT_TABLE_MAIN && r.Table != unix.RT_TABLE_DEFAULT {
			continue
		}
		to := destination(r)
		switch {
		case len(r.MultiPath) > 0:
			return "a route has several next hops"
		case r.Tos != 0:
			return "a route is for one type of service"
		case r.MTU != 0: // which bpf_fib_lookup ignores unless it is locked
			return "a route has an MTU of its own"
		case r.Table == unix.RT_TABLE_LOCAL && (to.IsSingleIP() || !to.Overlaps(network)):
		case r.Table == unix.RT_TABLE_LOCAL:
			return "addresses of the LAN are this machine's"
		case r.LinkIndex == lan && to == network && isPlain(r) && r.Gw == nil:
			near = true
		case to.Bits() >= network.Bits() && network.Contains(to.Addr()):
			return "there are routes within the LAN"
		case r.LinkIndex == lan && r.Protocol == OwnProtocol: // to a network behind a client: no source of the WAN's packets
		case checks != 0 && r.Type != unix.RTN_UNICAST:
			return "the WAN checks sources (rp_filter), and a route leads nowhere"
		case checks == strict && r.LinkIndex != wan:
			return "the WAN checks sources strictly (rp_filter = 1), and a route leads elsewhere"
		default:
			fallback = fallback || to.Bits() == 0
		}
	}
	switch {
	case !near:
		return "there is no route to the LAN"
	case checks != 0 && !fallback:
		return "the WAN checks sources (rp_filter), and there is no default route"
	}
	return ""
}
