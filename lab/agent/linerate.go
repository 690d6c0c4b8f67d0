package agent

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/vishvananda/netlink"
)

// speedLine is the line of ethtool's output that has the rate of a link.
var speedLine = regexp.MustCompile(`(?m)^\s*Speed: (\d+)Mb/s$`)

// LineMbps is the bit rate of an interface, Mbit/s, as its driver reports it. It is 0 for virtual interfaces, such as
// the links that the lab makes: only CPUs limit their rate, and the number that their drivers report means nothing.
func (*Agent) LineMbps(ctx context.Context, name string) (float64, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("looking for %s: %w", name, err)
	}
	if link.Type() != "device" { // netlink's word for a physical interface
		return 0, nil
	}
	text, err := exec.CommandContext(ctx, "ethtool", name).Output()
	if err != nil {
		return 0, fmt.Errorf("asking for the rate of %s: ethtool %s: %w", name, name, err)
	}
	return speedIn(string(text)), nil
}

// speedIn finds the rate in what ethtool printed, Mbit/s. It is 0 without one, as for an interface without a cable.
func speedIn(text string) float64 {
	m := speedLine.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	mbps, _ := strconv.ParseFloat(m[1], 64)
	return mbps
}
