package tun

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// alias marks the device as gatewayd's, for a LAN, whatever its name.
func alias(lan string) string { return "gatewayd " + lan }

// ifreq is struct ifreq with flags (netdevice(7)).
type ifreq struct {
	name  [unix.IFNAMSIZ]byte
	flags uint16
	_     [22]byte
}

// openDevice opens queues of the TUN device, which it creates or takes over from a former daemon. The device gets flags
// in addition to those that both modes need. Each queue is a non-blocking descriptor.
func openDevice(name string, network datapath.Network, mtu, queues int, flags uint16) (fds []int, err error) {
	defer func() {
		if err != nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
			fds, err = nil, fmt.Errorf("making the TUN device %s: %w", name, err)
		}
	}()
	if err := checkOurs(name, network.Interface); err != nil {
		return nil, err
	}
	if queues > 1 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	for range queues {
		fd, err := attach(name, flags|unix.IFF_TUN|unix.IFF_NO_PI)
		if errors.Is(err, unix.EINVAL) && len(fds) == 0 {
			// A former daemon's device with another kind of queues.
			if err := RemoveDevice(network.Interface); err != nil {
				return nil, err
			}
			fd, err = attach(name, flags|unix.IFF_TUN|unix.IFF_NO_PI)
		}
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd)
	}
	if err := unix.IoctlSetInt(fds[0], unix.TUNSETPERSIST, 1); err != nil {
		return fds, fmt.Errorf("having it stay: %w", err)
	}
	return fds, configure(name, network, mtu)
}

// checkOurs refuses a device that does not belong to gatewayd.
func checkOurs(name, lan string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	if link.Attrs().Alias != alias(lan) {
		return errors.New("there is one that is not gatewayd's: choose another datapath.device")
	}
	return nil
}

// tunPath is the file that makes devices.
const tunPath = "/dev/net/tun"

// attach opens one queue.
func attach(name string, flags uint16) (int, error) {
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return -1, fmt.Errorf("%w: %s is missing (modprobe tun)", datapath.ErrNotSupported, tunPath)
	}
	if err != nil {
		return -1, fmt.Errorf("opening %s: %w", tunPath, err)
	}
	req := ifreq{flags: flags}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	if _, _, errno := unix.Syscall(
		unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&req))); errno != 0 {
		unix.Close(fd)
		return -1, fmt.Errorf("attaching to it: %w", errno)
	}
	return fd, nil
}

// deviceQueue is how many packets for clients wait for a busy thread.
const deviceQueue = 1000

// disableAggregation has the device deliver unaggregated packets only, because a former daemon may have
// enabled more.
func disableAggregation(fd int) error {
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, 0); err != nil {
		return fmt.Errorf("having the TUN device not aggregate: %w", err)
	}
	return nil
}

// configure sets the device's mark, the gateway's address and the LAN's MTU.
func configure(name string, network datapath.Network, mtu int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(link, alias(network.Interface)); err != nil {
		return fmt.Errorf("marking it: %w", err)
	}
	if err := netlink.LinkSetMTU(link, mtu); err != nil {
		return fmt.Errorf("setting its MTU: %w", err)
	}
	if err := netlink.LinkSetTxQLen(link, deviceQueue); err != nil {
		return fmt.Errorf("setting its queue: %w", err)
	}
	// Otherwise the kernel would solicit IPv6 routers. The error of a kernel without IPv6 is ignored.
	_ = netlink.LinkSetIP6AddrGenMode(link, 1) // IN6_ADDR_GEN_MODE_NONE
	if err := onlyAddress(link, network.Address); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting it up: %w", err)
	}
	return nil
}

// onlyAddress gives a link one address, and removes others.
func onlyAddress(link netlink.Link, ownPrefix netip.Prefix) error {
	had, err := netlink.AddrList(link, unix.AF_INET)
	if err != nil {
		return fmt.Errorf("reading its addresses: %w", err)
	}
	for _, a := range had {
		if a.IPNet.String() != ownPrefix.String() {
			if err := netlink.AddrDel(link, &a); err != nil {
				return fmt.Errorf("removing its address %s: %w", a.IPNet, err)
			}
		}
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: ownPrefix.Addr().AsSlice(), Mask: net.CIDRMask(ownPrefix.Bits(), 32)}}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("giving it the address %s: %w", ownPrefix, err)
	}
	return nil
}

// Left reports whether the device of a LAN exists, whatever its name.
func Left(lan string) bool {
	left, err := devices(lan)
	return err == nil && len(left) > 0
}

// devices lists the devices of a LAN, whatever their names. Where links changed meanwhile, the list may be incomplete,
// and they are listed again.
func devices(lan string) ([]netlink.Link, error) {
	links, err := netlink.LinkList()
	for errors.Is(err, netlink.ErrDumpInterrupted) {
		links, err = netlink.LinkList()
	}
	return slices.DeleteFunc(links, func(l netlink.Link) bool {
		return l.Type() != "tuntap" || l.Attrs().Alias != alias(lan)
	}), err
}

// RemoveDevice removes the device of a LAN, whatever its name, if there is one. The LAN's interface must be locked.
func RemoveDevice(lan string) error {
	left, err := devices(lan)
	if err != nil {
		return fmt.Errorf("looking for the TUN device of %s: %w", lan, err)
	}
	for _, l := range left {
		if err := netlink.LinkDel(l); err != nil && !errors.Is(err, syscall.ENODEV) {
			return fmt.Errorf("removing the TUN device %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}
