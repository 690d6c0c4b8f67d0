package ebpf

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Marks by which the programs tell the stack what to do with a packet, and the
// routing tables that do it. The numbers spell nothing; they are only unlikely
// to be anyone else's.
const (
	markLocal  = 0x6a770001 // deliver here: the portal answers for any address
	markReject = 0x6a770002 // answer with ICMP "administratively prohibited"

	tableLocal  = 27255
	tableReject = 27256

	rulePriority = 90 // before the rules of main and most others'
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
	mark := func(value uint32, table, kind int) policy {
		r := netlink.NewRule()
		r.Family, r.Priority, r.Mark, r.Table = unix.AF_INET, rulePriority, value, table
		return policy{r, &netlink.Route{Table: table, Type: kind, Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, Family: unix.AF_INET}}
	}
	local, reject := mark(markLocal, tableLocal, unix.RTN_LOCAL), mark(markReject, tableReject, unix.RTN_PROHIBIT)
	local.route.LinkIndex, local.route.Scope = lo.Attrs().Index, unix.RT_SCOPE_HOST
	return []policy{local, reject}, nil
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
