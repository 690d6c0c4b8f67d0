package nic

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Lend moves interfaces from the caller's network namespace into the lab's. On an error it moves all back.
func Lend(states []State, lab *os.File) (err error) {
	h, err := handleIn(lab)
	if err != nil {
		return err
	}
	defer h.Close()
	for i, s := range states {
		if err := s.lend(h, lab); err != nil {
			home, bad := os.Open("/proc/self/ns/net")
			if bad == nil {
				bad = Return(states[:i+1], lab, home)
				home.Close()
			}
			return errors.Join(err, bad)
		}
	}
	return nil
}

func (s State) lend(h *netlink.Handle, lab *os.File) error {
	link, err := netlink.LinkByName(s.Name)
	if err == nil {
		err = netlink.LinkSetNsFd(link, int(lab.Fd()))
	}
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%s is %w: the kernel does not let it be moved to another network namespace, as with ports of a "+
			"switch chip (DSA): name another interface", s.Name, ErrRefused)
	}
	if err != nil {
		return fmt.Errorf("moving %s into the lab's network namespace: %w", s.Name, err)
	}
	if s.Lent == s.Name {
		return nil
	}
	if link, err = h.LinkByName(s.Name); err == nil {
		err = h.LinkSetName(link, s.Lent)
	}
	if err != nil {
		return fmt.Errorf("calling %s %s in the lab: %w", s.Name, s.Lent, err)
	}
	return nil
}

// Return moves interfaces back from the lab's network namespace to home, the machine's, and restores their states. It
// may be called again: interfaces that are back already only get what is still missing. An interface that is in neither
// namespace is an error: the kernel removes some kinds with their namespace.
func Return(states []State, lab, home *os.File) error {
	h, err := handleIn(lab)
	if err != nil {
		return err
	}
	defer h.Close()
	err = inside(lab, func() error { // some drivers end polling threads only while the interface is up
		for _, s := range states {
			if now := text(threadedFile(s.Lent)); now != s.Threaded && now != "" {
				_ = os.WriteFile(threadedFile(s.Lent), []byte(s.Threaded), 0) // restore tries again, and reports an error
			}
		}
		return nil
	})
	errs := []error{err}
	for _, s := range states {
		if link, err := h.LinkByName(s.Lent); err == nil {
			errs = append(errs, s.back(h, link, home))
		}
	}
	return errors.Join(append(errs, inside(home, func() error {
		var errs []error
		for _, s := range states {
			if err := s.restore(); err != nil {
				errs = append(errs, fmt.Errorf("putting %s back: %w", s.Name, err))
			}
		}
		return errors.Join(errs...)
	}))...)
}

func (s State) back(h *netlink.Handle, link netlink.Link, home *os.File) error {
	err := h.LinkSetDown(link)
	if err == nil && s.Lent != s.Name {
		err = h.LinkSetName(link, s.Name)
	}
	if err == nil {
		err = h.LinkSetNsFd(link, int(home.Fd()))
	}
	if err != nil {
		return fmt.Errorf("moving %s back to its machine: %w", s.Name, err)
	}
	return nil
}

func handleIn(ns *os.File) (*netlink.Handle, error) {
	var h *netlink.Handle
	err := inside(ns, func() (err error) {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening netlink in the lab's namespace: %w", err)
	}
	return h, nil
}

// inside calls fn on a new thread in a network namespace, whose /sys it mounts. The thread ends with the call.
func inside(ns *os.File, fn func() error) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		errc <- func() error {
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("preparing a thread: %w", err)
			}
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering a network namespace: %w", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return fmt.Errorf("making mounts private: %w", err)
			}
			if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("mounting the namespace's /sys: %w", err) // EBUSY: it is there already
			}
			return fn()
		}()
	}()
	return <-errc
}

// step restores one part of an interface's state.
type step struct {
	what   string // the part, for errors
	needed bool   // it differs now
	do     func() error
}

// restore restores the state of an interface in the calling thread's network namespace. After an error it goes on with
// the other steps.
func (s State) restore() error {
	link, err := netlink.LinkByName(s.Name)
	if err != nil {
		return err
	}
	var errs []error
	for _, steps := range [][]step{s.linkSteps(link), s.upSteps(link)} {
		for _, one := range steps {
			if !one.needed {
				continue
			}
			if err := one.do(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", one.what, err))
			}
		}
	}
	return errors.Join(errs...)
}

// linkSteps are the steps for the interface itself, which is down.
func (s State) linkSteps(link netlink.Link) []step {
	attrs := link.Attrs()
	size := func(what string, now, before uint32, set func(netlink.Link, int) error) step {
		return step{what, now != before && before > 0, func() error { return set(link, int(before)) }}
	}
	return []step{
		{"XDP", attrs.Xdp != nil && attrs.Xdp.Attached, func() error { return netlink.LinkSetXdpFd(link, -1) }},
		{"queue length", attrs.TxQLen != s.TxQLen, func() error { return netlink.LinkSetTxQLen(link, s.TxQLen) }},
		{"MTU", attrs.MTU != s.MTU, func() error { return netlink.LinkSetMTU(link, s.MTU) }},
		{"hardware address", attrs.HardwareAddr.String() != s.MAC, func() error {
			mac, err := net.ParseMAC(s.MAC)
			if err != nil {
				return err
			}
			return netlink.LinkSetHardwareAddr(link, mac)
		}},
		size("gro_max_size", attrs.GROMaxSize, s.GROMax, netlink.LinkSetGROMaxSize),
		size("gro_ipv4_max_size", attrs.GROIPv4MaxSize, s.GROMaxV4, netlink.LinkSetGROIPv4MaxSize),
		size("gso_max_size", attrs.GSOMaxSize, s.GSOMax, netlink.LinkSetGSOMaxSize),
		flag("promiscuous", link, unix.IFF_PROMISC, s.Promisc, netlink.SetPromiscOn, netlink.SetPromiscOff),
		flag("all multicast", link, unix.IFF_ALLMULTI, s.AllMulti, netlink.LinkSetAllmulticastOn,
			netlink.LinkSetAllmulticastOff),
		// Simulated clients left while it was moved. A driver without address filters learns of that only when the
		// interface comes up.
		{"filters", attrs.Promisc > s.Filters && !s.Up, func() error {
			return errors.Join(netlink.LinkSetUp(link), netlink.LinkSetDown(link))
		}},
		{"settings", true, s.setSysctls},
	}
}

func flag(what string, link netlink.Link, bit uint32, before bool, on, off func(netlink.Link) error) step {
	return step{what, (link.Attrs().RawFlags&bit != 0) != before, func() error {
		if before {
			return on(link)
		}
		return off(link)
	}}
}

// upSteps are the steps that begin with setting the interface up, in their order.
func (s State) upSteps(link netlink.Link) []step {
	steps := []step{
		{"up", s.Up, func() error { return netlink.LinkSetUp(link) }},
		{"polling threads", s.Threaded != "" && text(threadedFile(s.Name)) != s.Threaded, func() error {
			return os.WriteFile(threadedFile(s.Name), []byte(s.Threaded), 0)
		}},
		{"offloads", true, s.setFeatures},
		{"settings", s.Up, s.setSysctls}, // some of IPv6 are set anew when it comes up
	}
	for _, a := range s.Addrs {
		steps = append(steps, step{"address " + a.Net, true, func() error { return a.add(link) }})
	}
	for _, r := range s.Routes {
		steps = append(steps, step{"route " + r.Dst, true, func() error { return r.add(link) }})
	}
	return steps
}

func (s State) setSysctls() error {
	var errs []error
	for _, file := range different(s.Sysctls, sysctls(s.Name)) {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", file), []byte(s.Sysctls[file]), 0); err != nil &&
			!errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			errs = append(errs, err) // denied: one that is only read
		}
	}
	return errors.Join(errs...)
}

// features reads the offloads of an interface that can be changed, by ethtool's names.
func features(name string) (map[string]bool, error) {
	out, err := exec.Command("ethtool", "-k", name).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("reading the offloads of %s with ethtool: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return parseFeatures(string(out)), nil
}

// parseFeatures reads the output of ethtool -k. Instead of a group of offloads it lists the group's members.
func parseFeatures(printed string) map[string]bool {
	list := map[string]bool{}
	group := ""
	for line := range strings.Lines(printed) {
		name, value, found := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		if !found {
			continue
		}
		if strings.HasPrefix(name, "\t") {
			delete(list, group)
		} else {
			group = name
		}
		if strings.Contains(value, "[fixed]") {
			continue
		}
		on := strings.HasPrefix(value, "on")
		if strings.Contains(value, "[requested ") {
			on = strings.Contains(value, "[requested on]")
		}
		list[strings.TrimSpace(name)] = on
	}
	return list
}

func (s State) setFeatures() error {
	now, err := features(s.Name)
	if err != nil {
		return err
	}
	args := []string{"-K", s.Name}
	for _, name := range different(s.Features, now) {
		args = append(args, name, map[bool]string{true: "on", false: "off"}[s.Features[name]])
	}
	if len(args) == 2 {
		return nil
	}
	if out, err := exec.Command("ethtool", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (a address) add(link netlink.Link) error {
	addr, err := netlink.ParseAddr(a.Net)
	if err != nil {
		return err
	}
	addr.Broadcast, addr.Label, addr.Scope, addr.Flags = a.Broadcast, a.Label, a.Scope, a.Flags
	if a.Broadcast == nil && addr.IP.To4() != nil {
		addr.Broadcast = net.IPv4zero // else one would be made up
	}
	addr.ValidLft, addr.PreferedLft = a.Valid, a.Preferred
	if a.Peer != "" {
		peer, err := netlink.ParseIPNet(a.Peer)
		if err != nil {
			return err
		}
		addr.Peer = peer
	}
	return netlink.AddrReplace(link, addr)
}

func (r route) add(link netlink.Link) error {
	one := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: r.Gw, Src: r.Src, Table: r.Table,
		Protocol: netlink.RouteProtocol(r.Protocol), Scope: netlink.Scope(r.Scope), Type: r.Type, Priority: r.Priority,
		Flags: r.Flags, Family: r.Family, MTU: r.MTU}
	if r.Dst != "" {
		dst, err := netlink.ParseIPNet(r.Dst)
		if err != nil {
			return err
		}
		one.Dst = dst
	}
	err := netlink.RouteReplace(one)
	if errors.Is(err, unix.ENETUNREACH) {
		return fmt.Errorf("%w: its gateway cannot be reached yet", err)
	}
	return err
}
