package ebpf

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A mark by which the programs have the stack deliver a packet, and the routing
// table that does it. The numbers spell nothing; they are only unlikely to be anyone
// else's.
const (
	markLocal  = 0x6a770001 // deliver here: the portal answers for any address
	tableLocal = 27255
	// rulePriority is that of the rule of local addresses, and behind it: whoever adds
	// a rule without a priority comes after.
	rulePriority = 0
)

type policy struct {
	rule  *netlink.Rule
	route *netlink.Route
}

func policies() ([]policy, error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("interface lo: %w", err)
	}
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Mark, rule.Table = unix.AF_INET, rulePriority, markLocal, tableLocal
	return []policy{{rule, &netlink.Route{
		Table: tableLocal, Type: unix.RTN_LOCAL, Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, Family: unix.AF_INET,
		LinkIndex: lo.Attrs().Index, Scope: unix.RT_SCOPE_HOST,
	}}}, nil
}

// addRules makes the stack obey the marks. Doing it twice is the same as once.
func addRules() error {
	all, err := policies()
	if err != nil {
		return err
	}
	for _, p := range all {
		if err := netlink.RouteReplace(p.route); err != nil {
			return fmt.Errorf("adding the route of table %d: %w", p.route.Table, err)
		}
		if err := netlink.RuleAdd(p.rule); err != nil && !errors.Is(err, syscall.EEXIST) {
			return fmt.Errorf("adding the rule of mark %#x: %w", p.rule.Mark, err)
		}
	}
	return nil
}

func removeRules() error {
	all, err := policies()
	if err != nil {
		return err
	}
	for _, p := range all {
		if e := netlink.RuleDel(p.rule); e != nil && !gone(e) {
			err = errors.Join(err, fmt.Errorf("removing the rule of mark %#x: %w", p.rule.Mark, e))
		}
		if e := netlink.RouteDel(p.route); e != nil && !gone(e) {
			err = errors.Join(err, fmt.Errorf("removing the route of table %d: %w", p.route.Table, e))
		}
	}
	return err
}
