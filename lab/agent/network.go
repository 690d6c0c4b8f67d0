package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/client/persona"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/realtime"
)

// Network is the configuration of all links of a host.
type Network struct {
	Links  []Link  `json:"links"`
	Routes []Route `json:"routes"`
	// Sysctls are settings below /proc/sys/net of the host's network namespace: "ipv4/ip_forward" = "1".
	Sysctls map[string]string `json:"sysctls"`
	// Switch makes all Links ports of one Ethernet switch.
	Switch bool `json:"switch,omitempty"`
	// Floods makes the switch learn no addresses, so each frame leaves by all other ports.
	Floods bool `json:"floods,omitempty"`
}

// Link configures one interface.
type Link struct {
	Name  string         `json:"name"`
	Addrs []netip.Prefix `json:"addrs,omitempty"`
	// TxChecksum leaves transmit checksum offload on.
	TxChecksum bool `json:"tx_checksum"`
	// Aggregate lets GRO join received packets up to its default size. Without, GRO is limited to single
	// packets; it stays on, because a link without it has no polling thread.
	Aggregate bool `json:"aggregate"`
	// QueueLen is the length of the transmit queue (pfifo), packets.
	QueueLen int `json:"queue_len"`
	// Shape limits, delays or loses the frames that leave here. The zero value does none of it.
	Shape Shape `json:"shape,omitzero"`
	// CPUs are those that the link's polling thread may run on.
	CPUs []int `json:"cpus"`
	// Priority is the polling thread's real-time priority, one of package realtime, where it is permitted. Then other
	// programs on its CPU cannot keep it waiting until the link's ring of 256 frames overflows. 0: nice -20, as all
	// programs of the lab have.
	Priority uint32 `json:"priority,omitempty"`
}

// Route is an entry of the host's routing table.
type Route struct {
	To  netip.Prefix `json:"to,omitzero"` // destination; zero: everything
	Via netip.Addr   `json:"via"`         // next hop
}

// VethPair is a virtual link between two hosts: an interface on this one, and its other end in
// the network namespace of another process.
type VethPair struct {
	Name    string `json:"name"`     // interface on this host
	Peer    string `json:"peer"`     // interface at the other end
	PeerPID int    `json:"peer_pid"` // process id of the other host's agent
}

// AddVethPair makes the two interfaces in the network namespaces of their hosts. The
// machine's own namespace never has either.
func (*Agent) AddVethPair(_ context.Context, p VethPair) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = p.Name
	attrs.NumRxQueues, attrs.NumTxQueues = 1, 1
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: p.Peer, PeerNamespace: netlink.NsPid(p.PeerPID)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("adding the link %s – %s (the kernel needs CONFIG_VETH): %w", p.Name, p.Peer, err)
	}
	return nil
}

// Apply sets the host's sysctls, links, switch and routes, in this order, and then the links' polling threads.
func (*Agent) Apply(_ context.Context, n Network) error {
	if err := client.SetSysctls(n.Sysctls); err != nil {
		return err
	}
	var names []string
	for _, l := range n.Links {
		if err := l.apply(); err != nil {
			return fmt.Errorf("configuring %s: %w", l.Name, err)
		}
		names = append(names, l.Name)
	}
	if n.Switch {
		if err := joinToBridge(names, n.Floods); err != nil {
			return fmt.Errorf("making a switch of %s: %w", strings.Join(names, ", "), err)
		}
	}
	for _, r := range n.Routes {
		route := &netlink.Route{Gw: r.Via.AsSlice(), InitCwnd: client.InitialWindow}
		if r.To.IsValid() {
			route.Dst = persona.IPNet(r.To)
		}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("adding the route %v via %s: %w", r.To, r.Via, err)
		}
	}
	return n.bindPollingThreads(names)
}

// loopbackUp sets the loopback interface of the calling thread's network namespace up.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket to set lo up: %w", err)
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err == nil {
		r.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
	}
	if err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	return nil
}

// Neighbours are addresses of clients on one of the host's links.
type Neighbours struct {
	Link string           `json:"link"`
	List []client.Address `json:"list"`
}

// AddNeighbours enters clients into the host's neighbour table, marked as learned
// by a switch's control plane (extern_learn). All namespaces of a machine share one limit of
// neighbours, a thousand unless its administrator raised it (gc_thresh3), and the
// kernel drops packets to a neighbour beyond it. Marked entries do not count for the limit; otherwise they age
// like all others.
func (*Agent) AddNeighbours(_ context.Context, n Neighbours) error {
	h, err := netlink.NewHandle() // one socket for all
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer h.Close()
	link, err := h.LinkByName(n.Link)
	if err != nil {
		return fmt.Errorf("entering neighbours on %s: %w", n.Link, err)
	}
	for _, a := range n.List {
		mac, err := net.ParseMAC(a.MAC)
		if err != nil {
			return fmt.Errorf("entering client %d on %s: %w", a.Num, n.Link, err)
		}
		for _, ip := range a.IPs() {
			err := h.NeighSet(&netlink.Neigh{
				LinkIndex: link.Attrs().Index, IP: ip.AsSlice(), HardwareAddr: mac,
				State: netlink.NUD_REACHABLE, Flags: netlink.NTF_EXT_LEARNED,
			})
			if err != nil {
				return fmt.Errorf("entering the neighbour %s on %s: %w", ip, n.Link, err)
			}
		}
	}
	return nil
}

// switchName is the interface of the bridge on a host that is a switch.
const switchName = "switch0"

// joinToBridge makes interfaces ports of a new bridge. The bridge runs no spanning tree protocol, so
// its ports forward at once.
func joinToBridge(names []string, floods bool) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = switchName
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if floods { // with snooping on, the bridge would send multicast messages of its own to all ports (RFC 4286)
		bridge.MulticastSnooping = new(bool)
	}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("adding a bridge (the kernel needs CONFIG_BRIDGE): %w", err)
	}
	for _, name := range names {
		port, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetMaster(port, bridge)
		}
		if err == nil && floods {
			err = netlink.LinkSetLearning(port, false)
		}
		if err != nil {
			return fmt.Errorf("adding the port %s: %w", name, err)
		}
	}
	return netlink.LinkSetUp(bridge)
}

// noPollingThread is the likely reason why no polling thread of a link was found, although the kernel accepted the
// setting.
func noPollingThread() string {
	if machine.InPIDNamespace() {
		return machine.HiddenThreads
	}
	return "the kernel needs threaded NAPI (5.12 or newer)"
}

// bindPollingThreads binds the links' polling threads to their CPUs and gives them their priority.
func (n Network) bindPollingThreads(names []string) error {
	threads, err := meter.NAPIThreads(names)
	if err != nil {
		return err
	}
	for _, l := range n.Links {
		if len(threads[l.Name]) == 0 && meter.Threaded(l.Name) {
			return fmt.Errorf("%s has no polling thread that can be seen: %s", l.Name, noPollingThread())
		}
		for _, pid := range threads[l.Name] {
			if err := setAffinity(pid, l.CPUs); err != nil {
				return fmt.Errorf("polling thread of %s: %w", l.Name, err)
			}
			give := realtime.PrecedeThread
			if l.Priority != 0 {
				give = func(tid int) error { return realtime.Give(tid, l.Priority) }
			}
			if err := give(pid); err != nil && !errors.Is(err, realtime.ErrDenied) {
				return fmt.Errorf("priority of the polling thread of %s: %w", l.Name, err)
			}
		}
	}
	return nil
}

// apply configures the interface and sets it up.
func (l Link) apply() error {
	link, err := netlink.LinkByName(l.Name)
	if err != nil {
		return err
	}
	if err := l.queue(link); err != nil {
		return fmt.Errorf("setting its queue: %w", err)
	}
	if err := l.addAddresses(link); err != nil {
		return err
	}
	if err := l.offloads(link); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting it up: %w", err)
	}
	// The kernel makes a polling thread only for a link that is up and has GRO on, so this comes last.
	folder := filepath.Join("/sys/class/net", l.Name)
	err = os.WriteFile(filepath.Join(folder, "threaded"), []byte("1"), 0)
	if _, none := os.Stat(filepath.Join(folder, "device")); err != nil && none == nil {
		return nil // a card whose driver has no polling threads; package softirq meters its interrupts instead
	}
	if err != nil {
		return fmt.Errorf("asking for a polling thread (threaded NAPI, Linux 5.12): %w", err)
	}
	return nil
}

// addAddresses gives the link its addresses. IPv6 addresses are not checked for duplicates (RFC 4862, 5.4), so that
// they can be used as soon as the link is up: the lab knows all addresses of its networks. The same is set for the
// link-local address, which the kernel makes.
func (l Link) addAddresses(link netlink.Link) error {
	if slices.ContainsFunc(l.Addrs, func(a netip.Prefix) bool { return a.Addr().Is6() }) {
		settings := map[string]string{}
		for _, s := range []struct{ name, value string }{
			{"disable_ipv6", "0"}, {"accept_dad", "0"}, {"accept_ra", "0"}, {"router_solicitations", "0"},
		} {
			settings["ipv6/conf/"+l.Name+"/"+s.name] = s.value
		}
		if err := client.SetSysctls(settings); err != nil {
			return err
		}
	}
	for _, a := range l.Addrs {
		addr := &netlink.Addr{IPNet: persona.IPNet(a)}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("adding the address %s: %w", a, err)
		}
	}
	return nil
}

// queue gives the link its queue, or its shape. It must exist before the link is up: a veth has none by itself and drops
// bursts of SYNs. pfifo takes its limit from the queue length.
func (l Link) queue(link netlink.Link) error {
	if err := netlink.LinkSetTxQLen(link, l.QueueLen); err != nil {
		return err
	}
	if l.Shape != (Shape{}) {
		return l.Shape.apply(l.Name)
	}
	root := netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
	err := netlink.QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "pfifo"})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil // a kernel without CONFIG_NET_SCHED, whose links send at once, or qemu-user: see Port.NoQueue
	}
	return err
}

// offloads has senders segment packets before they enter a link, so that the router's CPU time
// does not include it. It switches GRO on, because only then does the link have a polling thread.
func (l Link) offloads(link netlink.Link) error {
	tx := map[bool]string{true: "on", false: "off"}[l.TxChecksum]
	set := exec.Command("ethtool", "-K", l.Name, "tso", "off", "tx-udp-segmentation", "off", "gro", "on", "tx", tx)
	if out, err := set.CombinedOutput(); err != nil {
		return fmt.Errorf("setting offloads with ethtool: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if !l.Aggregate {
		const onePacket = 1500
		err := errors.Join(netlink.LinkSetGROMaxSize(link, onePacket), netlink.LinkSetGROIPv4MaxSize(link, onePacket))
		if err != nil {
			return fmt.Errorf("switching aggregation off (needs gro_max_size, Linux 5.18): %w", err)
		}
	}
	return nil
}
