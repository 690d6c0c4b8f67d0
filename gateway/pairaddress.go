package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/arp"
	"github.com/gateweigh/gateweigh/gateway/config"
)

// sharedAddress is an address that is of the gateway that serves.
type sharedAddress struct {
	dev    string
	prefix netip.Prefix
}

// sharedAddresses lists them, that of the LAN first.
func sharedAddresses(cfg *config.Config) []sharedAddress {
	all := []sharedAddress{{cfg.LAN.Interface, cfg.LAN.Address}}
	for _, a := range []sharedAddress{{cfg.LAN.Interface, cfg.LAN.Address6}, {cfg.WAN.Interface, cfg.Pair.WANAddress}} {
		if a.prefix.IsValid() {
			all = append(all, a)
		}
	}
	return all
}

// isHere reports whether the interface has the address.
func (a sharedAddress) isHere() bool {
	dev, err := net.InterfaceByName(a.dev)
	if err != nil {
		return false
	}
	all, _ := dev.Addrs()
	for _, has := range all {
		if p, err := netip.ParsePrefix(has.String()); err == nil && p.Addr() == a.prefix.Addr() {
			return true
		}
	}
	return false
}

// address returns the address as the kernel's messages have it, which takes it away after a time; 0: it stays.
func (a sharedAddress) address(lasts time.Duration) *netlink.Addr {
	ip := net.IPNet{IP: a.prefix.Addr().AsSlice(), Mask: net.CIDRMask(a.prefix.Bits(), a.prefix.Addr().BitLen())}
	out := &netlink.Addr{IPNet: &ip, ValidLft: int(lasts / time.Second), PreferedLft: int(lasts / time.Second)}
	if a.prefix.Addr().Is6() {
		out.Flags = unix.IFA_F_NODAD // the other gateway may still have it, and gives it up
	}
	return out
}

// hold gives the interface the address, or keeps it there, for a time. The kernel takes it away by itself when nobody
// holds it any more: also while the daemon is stopped, or after it was killed.
func (a sharedAddress) hold(lasts time.Duration) error {
	link, err := netlink.LinkByName(a.dev)
	if err == nil {
		err = netlink.AddrReplace(link, a.address(lasts))
	}
	if err != nil {
		return fmt.Errorf("giving %s the address %s: %w", a.dev, a.prefix, err)
	}
	return nil
}

// drop takes the address away. A missing one is no error.
func (a sharedAddress) drop() error {
	link, err := netlink.LinkByName(a.dev)
	if err == nil {
		err = netlink.AddrDel(link, a.address(0))
	}
	var gone netlink.LinkNotFoundError
	if err == nil || errors.Is(err, unix.EADDRNOTAVAIL) || errors.As(err, &gone) {
		return nil
	}
	return fmt.Errorf("taking the address %s from %s: %w", a.prefix, a.dev, err)
}

// dropAddresses takes all addresses away that are of the gateway that serves.
func (p *pair) dropAddresses() {
	for _, a := range sharedAddresses(p.cfg) {
		if err := a.drop(); err != nil {
			p.log.Error("an address stays that is the other gateway's", "err", err)
		}
	}
}

// announce tells neighbours by ARP who has the address.
func (a sharedAddress) announce() error {
	if !a.prefix.Addr().Is4() {
		return nil
	}
	if err := arp.Announce(a.dev, a.prefix.Addr()); err != nil {
		return fmt.Errorf("telling neighbours of %s at %s: %w", a.prefix.Addr(), a.dev, err)
	}
	return nil
}
