// The pair of interfaces by which the kernel cuts aggregated packets for PPPoE clients (pppoe.h).

package ebpf

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os/exec"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

// cutter is a pair of virtual interfaces that cuts aggregated packets: out can send none, so the kernel cuts those that
// lan_out redirects to it, and cut_in, at the other end, puts the header of a PPPoE session on each. The pair has no
// addresses, and stays when the daemon ends.
type cutter struct{ wan, lan *net.Interface }

// cutterNames are the interfaces' names for a LAN. The LAN's own name may leave no room for more.
func cutterNames(lan string) (out, in string) {
	base := fmt.Sprintf("cut%08x", crc32.ChecksumIEEE([]byte(lan)))
	return base + "o", base + "i"
}

// openCutter makes the pair, or takes that of a former daemon.
func openCutter(lan string) (c cutter, err error) {
	out, in := cutterNames(lan)
	defer func() {
		if err != nil {
			err = fmt.Errorf("making the link %s, which cuts aggregated packets for PPPoE: %w", out, err)
		}
	}()
	// gso_max_segs 1 and no transmit offloads: nothing aggregated passes, and checksums are made.
	attrs := netlink.LinkAttrs{Name: out, MTU: 9000, TxQLen: 1000, GSOMaxSegs: 1}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: in}); err != nil &&
		!errors.Is(err, syscall.EEXIST) {
		return c, err
	}
	set := exec.Command("ethtool", "-K", out, "tso", "off", "gso", "off", "tx-udp-segmentation", "off", "tx", "off")
	if output, err := set.CombinedOutput(); err != nil {
		return c, fmt.Errorf("ethtool: %w: %s", err, strings.TrimSpace(string(output)))
	}
	for _, name := range []string{in, out} {
		dev, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(dev)
		}
		if err != nil {
			return c, err
		}
	}
	if c.wan, err = net.InterfaceByName(out); err == nil {
		c.lan, err = net.InterfaceByName(in)
	}
	return c, err
}

// removeCutter removes a LAN's pair, if there is one.
func removeCutter(lan string) error {
	out, _ := cutterNames(lan)
	dev, err := netlink.LinkByName(out)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(dev)
	}
	if err != nil {
		return fmt.Errorf("removing the link %s: %w", out, err)
	}
	return nil
}
