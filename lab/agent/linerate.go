package agent

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/vishvananda/netlink"
)

var speedLine = regexp.MustCompile(`(?m)^\s*Speed: (\d+)Mb/s$`)

// LineMbps is the rate at which bits leave by an interface, Mbit/s, as its driver says it. It is 0 where there is no
// line of a rate: the links that the lab makes carry what the CPUs carry, whatever their drivers say.
func (*Agent) LineMbps(ctx context.Context, name string) (float64, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("looking for %s: %w", name, err)
	}
	if link.Type() != "device" { // the kernel's word for a card
		return 0, nil
	}
	text, err := exec.CommandContext(ctx, "ethtool", name).Output()
	if err != nil {
		return 0, fmt.Errorf("asking for the rate of %s: ethtool %s: %w", name, name, err)
	}
	return speedIn(string(text)), nil
}

// speedIn is the rate that ethtool prints of an interface, Mbit/s; 0: it knows none.
func speedIn(text string) float64 {
	m := speedLine.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	mbps, _ := strconv.ParseFloat(m[1], 64)
	return mbps
}
