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
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/client/persona"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/realtime"
)

// Network is the whole configuration of a host's lab links, applied at once.
type Network struct {
	Links  []Link  `json:"links"`
	Routes []Route `json:"routes"`
	// Sysctls are written below /proc/sys/net, which belongs to the host's namespace: "ipv4/ip_forward" = "1".
	Sysctls map[string]string `json:"sysctls"`
	// Switch makes all Links ports of one Ethernet switch.
	Switch bool `json:"switch,omitempty"`
	// Floods has the switch learn no addresses: each frame leaves by all other ports.
	Floods bool `json:"floods,omitempty"`
}

// Link configures one interface.
type Link struct {
	Name  string         `json:"name"`
	Addrs []netip.Prefix `json:"addrs,omitempty"`
	// TxChecksum leaves transmit checksum offload on.
	TxChecksum bool `json:"tx_checksum"`
	// Aggregate leaves GRO at its default size; false limits it to single
	// packets without taking the polling thread away, which "gro off" would.
	Aggregate bool `json:"aggregate"`
	// QueueLen is the length of the transmit queue (pfifo), packets.
	QueueLen int `json:"queue_len"`
	// Shape is what the link does to the frames that leave here; the zero value sends them at once.
	Shape Shape `json:"shape,omitzero"`
	// CPUs the polling thread may run on.
	CPUs []int `json:"cpus"`
	// Priority gives the polling thread real-time priority where that is permitted: whoever runs on its CPU, the link's
	// ring of 256 frames does not overflow meanwhile. Without, it goes before other ordinary programs, as all of the lab
	// does.
	Priority uint32 `json:"priority,omitempty"` // one of package realtime; 0: nice -20
}

// Route sends To (zero: everything) through Via.
type Route struct {
	To  netip.Prefix `json:"to,omitzero"`
	Via netip.Addr   `json:"via"`
}

// Pair is a new link: an interface here and its other end in the network
// namespace of another process.
type Pair struct {
	Name    string `json:"name"`
	Peer    string `json:"peer"`
	PeerPID int    `json:"peer_pid"`
}

// AddPair makes a veth pair whose other end appears directly in the peer's
// namespace: the machine's own namespace never sees either.
func (*Agent) AddPair(_ context.Context, p Pair) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = p.Name
	attrs.NumRxQueues, attrs.NumTxQueues = 1, 1
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: p.Peer, PeerNamespace: netlink.NsPid(p.PeerPID)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("adding the link %s – %s (the kernel needs CONFIG_VETH): %w", p.Name, p.Peer, err)
	}
	return nil
}

// Apply configures the host's links, then routes.
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

// Neighbours are machines on one of the host's links.
type Neighbours struct {
	Link string           `json:"link"`
	List []client.Address `json:"list"`
}

// AddNeighbours enters machines into the host's table of neighbours, as a switch's
// control plane does (extern_learn). Such entries age and are asked for like any
// other, but do not count: the kernel's table is one for the whole machine, and
// drops packets to those that no longer fit, a thousand unless its administrator
// says otherwise (gc_thresh3).
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
		if err == nil {
			err = h.NeighSet(&netlink.Neigh{
				LinkIndex: link.Attrs().Index, IP: a.IP.AsSlice(), HardwareAddr: mac,
				State: netlink.NUD_REACHABLE, Flags: netlink.NTF_EXT_LEARNED,
			})
		}
		if err != nil {
			return fmt.Errorf("entering the neighbour %s on %s: %w", a.IP, n.Link, err)
		}
	}
	return nil
}

// switchName is the bridge of a host that is a switch.
const switchName = "switch0"

// joinToBridge makes interfaces ports of one bridge. Without a spanning tree, which it
// does not run by itself, its ports forward at once.
func joinToBridge(names []string, floods bool) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = switchName
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if floods { // a switch that snoops joins a multicast group, and says so to all its ports (RFC 4286)
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

// noPollingThread is why no polling thread of a link was found. The kernel took the order to poll it by a thread.
func noPollingThread() string {
	if machine.OwnProcesses() {
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

func (l Link) apply() error {
	link, err := netlink.LinkByName(l.Name)
	if err != nil {
		return err
	}
	// The queue must exist before the link is up: a veth has none by itself and
	// drops bursts of SYNs. pfifo takes its limit from the queue length.
	root := netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
	err = netlink.LinkSetTxQLen(link, l.QueueLen)
	switch {
	case err != nil:
	case l.Shape != Shape{}:
		err = l.Shape.apply(l.Name)
	default:
		err = netlink.QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "pfifo"})
	}
	if err != nil {
		return fmt.Errorf("setting its queue: %w", err)
	}
	for _, a := range l.Addrs {
		if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: persona.IPNet(a)}); err != nil {
			return fmt.Errorf("adding the address %s: %w", a, err)
		}
	}
	if err := l.offloads(link); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting it up: %w", err)
	}
	// Only a link that is up with GRO on is polled, so this comes last.
	folder := filepath.Join("/sys/class/net", l.Name)
	err = os.WriteFile(filepath.Join(folder, "threaded"), []byte("1"), 0)
	if _, none := os.Stat(filepath.Join(folder, "device")); err != nil && none == nil {
		return nil // its driver cannot, and it is metered in interrupts
	}
	if err != nil {
		return fmt.Errorf("asking for a polling thread (threaded NAPI, Linux 5.12): %w", err)
	}
	return nil
}

// offloads sets where work is done: segmentation at the sender's end of every link, so that
// the router's CPU time does not include it; and GRO on, because only then is the link polled.
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
