package stack

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ByDestination6 is ByDestination for IPv6: it checks that the stack forwards packets between the interfaces by their
// destination alone. If not, unsure gives the reason in a few words.
func ByDestination6(lan, wan *net.Interface) (unsure string, err error) {
	for _, dev := range []*net.Interface{lan, wan} {
		forwards, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + dev.Name + "/forwarding")
		if os.IsNotExist(err) {
			return "the kernel has no IPv6", nil
		}
		if err != nil {
			return "", fmt.Errorf("looking whether %s forwards IPv6: %w", dev.Name, err)
		}
		if strings.TrimSpace(string(forwards)) != "1" {
			return dev.Name + " does not forward IPv6", nil
		}
	}
	if unsure, err = ruled(unix.AF_INET6); unsure != "" || err != nil {
		return unsure, err
	}
	all, err := routesUpTo(unix.AF_INET6, destinationRoutesMax)
	if err != nil {
		return "", err
	}
	if len(all) > destinationRoutesMax {
		return tooManyRoutes, nil
	}
	return byDestination6(all), nil
}

// byDestination6 checks the routes that packets can meet for ByDestination6. The kernel may list a route to several
// next hops as several routes with the same destination and metric.
func byDestination6(all []netlink.Route) (unsure string) {
	type way struct {
		to     string
		metric int
	}
	seen := map[way]bool{}
	for _, r := range all {
		if r.Table != unix.RT_TABLE_MAIN || r.Type != unix.RTN_UNICAST {
			continue
		}
		here := way{destination6(r), r.Priority}
		isOwn := strings.HasPrefix(here.to, "fe80:") || strings.HasPrefix(here.to, "ff00:")
		switch {
		case len(r.MultiPath) > 0 || seen[here] && !isOwn:
			return "a route has several next hops"
		case r.MTU != 0:
			return "a route has an MTU of its own"
		}
		seen[here] = true
	}
	return ""
}

func destination6(r netlink.Route) string {
	if r.Dst == nil {
		return "::/0"
	}
	return r.Dst.String()
}
