package nic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrRefused is wrapped by the error for an interface that may not be lent, for instance because it could not be put
// back as it was.
var ErrRefused = errors.New("refused as a link of a lab")

// plainQdiscs are the queueing disciplines that the kernel gives interfaces by itself, also after they are moved.
var plainQdiscs = []string{"noqueue", "pfifo_fast", "mq", "fq_codel", "fq", "pfifo", "noop", "cake", "sfq"}

// lendable returns an error if an interface cannot be lent: it is in use, or part of its state could not be restored.
func lendable(link netlink.Link) error {
	attrs := link.Attrs()
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("is "+"%w: "+format, append([]any{ErrRefused}, args...)...)
	}
	if attrs.Flags&net.FlagLoopback != 0 || attrs.EncapType != "ether" {
		return refuse("it is no Ethernet interface")
	}
	dir := filepath.Join("/sys/class/net", attrs.Name)
	if _, err := os.Stat(filepath.Join(dir, "phy80211")); err == nil {
		return refuse("it is a wireless interface, which is no cable and cannot be moved alone")
	}
	if attrs.MasterIndex != 0 {
		master := fmt.Sprintf("interface %d", attrs.MasterIndex)
		if m, err := netlink.LinkByIndex(attrs.MasterIndex); err == nil {
			master = m.Attrs().Name
		}
		return refuse("it is in use: a port of %s; take it out: ip link set %s nomaster", master, attrs.Name)
	}
	if above := related(attrs.Name, "upper_"); len(above) > 0 {
		return refuse("it is in use: %s stands on it", strings.Join(above, ", "))
	}
	if attrs.Xdp != nil && attrs.Xdp.Attached {
		return refuse("an XDP program is attached, which could not be put back: ip link set %s xdp off", attrs.Name)
	}
	qdiscs, err := netlink.QdiscList(link)
	if errors.Is(err, unix.EOPNOTSUPP) { // a kernel without CONFIG_NET_SCHED has none to be put back
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the queues: %w", err)
	}
	for _, q := range qdiscs {
		if q.Attrs().Parent == netlink.HANDLE_ROOT && !slices.Contains(plainQdiscs, q.Type()) {
			return refuse("its queue is of kind %s, which could not be put back: tc qdisc del dev %s root", q.Type(), attrs.Name)
		}
		if q.Type() == "clsact" || q.Type() == "ingress" {
			return refuse("it has a %s hook, whose programs and rules could not be put back: tc qdisc del dev %s %[1]s",
				q.Type(), attrs.Name)
		}
	}
	return nil
}

// related lists the interfaces that are built on an interface ("upper_"), or that it is built on ("lower_").
func related(name, kind string) (names []string) {
	entries, err := os.ReadDir(filepath.Join("/sys/class/net", name))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if other, is := strings.CutPrefix(e.Name(), kind); is {
			names = append(names, other)
		}
	}
	return names
}

// Carriers returns the interfaces that must not be taken, each with the reason. They are those of the ssh connection,
// those of default routes, and all interfaces on which these are built. connection is the value that sshd sets for
// SSH_CONNECTION: "10.0.0.5 51234 10.0.0.11 22".
func Carriers(connection string) (map[string]string, error) {
	reasons := carriers{}
	if err := reasons.addConnection(connection); err != nil {
		return nil, err
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("listing routes: %w", err)
		}
		for _, r := range routes {
			if r.Dst != nil {
				if ones, _ := r.Dst.Mask.Size(); ones > 0 {
					continue
				}
			}
			const why = "it carries the machine's default route"
			reasons.add(r.LinkIndex, why)
			for _, hop := range r.MultiPath {
				reasons.add(hop.LinkIndex, why)
			}
		}
	}
	return reasons, nil
}

// carriers maps interfaces that must not be taken to the reasons.
type carriers map[string]string

// addConnection adds the interfaces of an ssh connection: the one with the connection's address, and the one by which
// answers leave.
func (c carriers) addConnection(connection string) error {
	words := strings.Fields(connection)
	const parts = 4
	if len(words) != parts {
		return fmt.Errorf("sshd names no connection in SSH_CONNECTION: %q", connection)
	}
	client, err1 := netip.ParseAddr(words[0])
	server, err2 := netip.ParseAddr(words[2])
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("reading SSH_CONNECTION: %w", err)
	}
	why := fmt.Sprintf("it carries this ssh connection (%s to %s)", client, server)
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing addresses: %w", err)
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap() == server.Unmap().WithZone("") {
			c.add(a.LinkIndex, why)
		}
	}
	routes, err := netlink.RouteGet(client.Unmap().WithZone("").AsSlice())
	if err != nil {
		return nil // none: the connection came another way
	}
	for _, r := range routes {
		c.add(r.LinkIndex, why)
	}
	return nil
}

// add adds an interface and all on which it is built.
func (c carriers) add(index int, why string) {
	if link, err := netlink.LinkByIndex(index); err == nil {
		c.addBelow(link.Attrs().Name, why)
	}
}

func (c carriers) addBelow(name, why string) {
	if _, known := c[name]; known {
		return
	}
	c[name] = why
	for _, below := range related(name, "lower_") {
		c.addBelow(below, why+", below "+name)
	}
}
