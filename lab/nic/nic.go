// Package nic lends a machine's interfaces to a lab. It examines whether an interface may be taken, reads its state,
// moves it into the network namespace of a host of the lab, and later puts it back as it was. The lab configures only
// that namespace, so the machine's other interfaces stay as they are.
package nic

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// State is the state of an interface before it is lent. It is sent as JSON.
type State struct {
	Name     string `json:"name"` // on the machine
	Lent     string `json:"lent"` // in the lab's namespace
	Up       bool   `json:"up"`
	MTU      int    `json:"mtu"` // bytes
	MAC      string `json:"mac"`
	TxQLen   int    `json:"tx_queue_len"` // packets
	GROMax   uint32 `json:"gro_max"`      // bytes; 0: the kernel does not tell
	GROMaxV4 uint32 `json:"gro_max_ipv4"`
	GSOMax   uint32 `json:"gso_max"`
	Threaded string `json:"threaded"` // what /sys/class/net/NAME/threaded says; empty: the kernel has no such file

	Promisc  bool              `json:"promisc"`
	Filters  int               `json:"promiscuity"` // how many users of the interface want all frames
	AllMulti bool              `json:"all_multi"`
	Features map[string]bool   `json:"features"` // offloads that can be changed, by ethtool's names
	Sysctls  map[string]string `json:"sysctls"`  // of the interface, by their files below /proc/sys/net
	Addrs    []address         `json:"addrs"`
	Routes   []route           `json:"routes"`
}

// address is an address of an interface, without flags that the kernel sets by itself.
type address struct {
	Net       string `json:"net"` // 10.0.0.1/24
	Peer      string `json:"peer,omitempty"`
	Broadcast net.IP `json:"broadcast,omitempty"`
	Label     string `json:"label,omitempty"`
	Scope     int    `json:"scope"`
	Flags     int    `json:"flags"`
	Valid     int    `json:"valid"`     // s; 0: for ever
	Preferred int    `json:"preferred"` // s
}

// route is a route by an interface that was not made by the kernel.
type route struct {
	Dst      string `json:"dst,omitempty"` // empty: all
	Gw       net.IP `json:"gw,omitempty"`
	Src      net.IP `json:"src,omitempty"`
	Table    int    `json:"table"`
	Protocol int    `json:"protocol"`
	Scope    int    `json:"scope"`
	Type     int    `json:"type"`
	Priority int    `json:"priority"`
	Flags    int    `json:"flags"`
	Family   int    `json:"family"`
	MTU      int    `json:"mtu"`
}

// longestName is the greatest length of an interface's name by which its polling thread can be found, bytes: see
// meter.ThreadsNamed.
const longestName = 10

// LentName is the name of an interface in a lab. It is always the same for an interface, because a polling thread may
// keep the name that its interface had when the thread was made.
func LentName(name string) string {
	if len(name) <= longestName {
		return name
	}
	sum := uint32(2166136261) // FNV-1a
	for _, b := range []byte(name) {
		sum = (sum ^ uint32(b)) * 16777619
	}
	return fmt.Sprintf("gw%08x", sum)
}

// Read reads the state of an interface of the caller's network namespace. Its error wraps ErrRefused if the interface
// cannot be lent.
func Read(name string) (State, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return State{}, absent(name, err)
	}
	if err := lendable(link); err != nil {
		return State{}, fmt.Errorf("%s %w", name, err)
	}
	attrs := link.Attrs()
	s := State{
		Name: name, Lent: LentName(name), Up: attrs.Flags&net.FlagUp != 0, MTU: attrs.MTU, MAC: attrs.HardwareAddr.String(),
		TxQLen: attrs.TxQLen, GROMax: attrs.GROMaxSize, GROMaxV4: attrs.GROIPv4MaxSize, GSOMax: attrs.GSOMaxSize,
		Promisc: attrs.RawFlags&unix.IFF_PROMISC != 0, AllMulti: attrs.RawFlags&unix.IFF_ALLMULTI != 0,
		Filters: attrs.Promisc, Sysctls: sysctls(name),
	}
	s.Threaded = text(threadedFile(name))
	if s.Features, err = features(name); err != nil {
		return s, err
	}
	if s.Addrs, err = addresses(link); err != nil {
		return s, err
	}
	s.Routes, err = routes(link)
	return s, err
}

// absent is the error for an interface that does not exist. It lists those that do.
func absent(name string, err error) error {
	var missing netlink.LinkNotFoundError
	if !errors.As(err, &missing) {
		return fmt.Errorf("looking for the interface %s: %w", name, err)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing interfaces: %w", err)
	}
	var here []string
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback == 0 {
			here = append(here, l.Attrs().Name)
		}
	}
	return fmt.Errorf("%w: there is no interface %s: here are %s", ErrRefused, name, strings.Join(here, ", "))
}

func threadedFile(name string) string { return filepath.Join("/sys/class/net", name, "threaded") }

func text(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// sysctlFolders have a folder for each interface, below /proc/sys/net.
var sysctlFolders = []string{"ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh"}

// sysctls reads the settings of an interface, by file. The kernel forgets them when the interface is moved.
func sysctls(name string) map[string]string {
	all := map[string]string{}
	for _, folder := range sysctlFolders {
		dir := filepath.Join(folder, name)
		files, err := os.ReadDir(filepath.Join("/proc/sys/net", dir))
		if err != nil {
			continue // without IPv6
		}
		for _, f := range files {
			file := filepath.Join(dir, f.Name())
			if data, err := os.ReadFile(filepath.Join("/proc/sys/net", file)); err == nil && f.Type().IsRegular() {
				all[file] = strings.TrimSpace(string(data))
			}
		}
	}
	return all
}

func addresses(link netlink.Link) (list []address, err error) {
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range addrs {
		if a.IP.IsLinkLocalUnicast() && a.IP.To4() == nil && a.Flags&unix.IFA_F_PERMANENT != 0 &&
			a.Flags&unix.IFA_F_MANAGETEMPADDR == 0 && a.ValidLft == 0 {
			continue // the kernel's own
		}
		one := address{Net: a.IPNet.String(), Broadcast: a.Broadcast, Label: a.Label, Scope: a.Scope,
			Flags: a.Flags &^ (unix.IFA_F_PERMANENT | unix.IFA_F_TENTATIVE), Valid: a.ValidLft, Preferred: a.PreferedLft}
		if a.Peer != nil && a.Peer.String() != a.IPNet.String() {
			one.Peer = a.Peer.String()
		}
		list = append(list, one)
	}
	return list, nil
}

// routes lists the routes by an interface that the kernel does not make by itself.
func routes(link netlink.Link) (list []route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		found, err := netlink.RouteListFiltered(family,
			&netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_UNSPEC},
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("listing the routes by %s: %w", link.Attrs().Name, err)
		}
		for _, r := range found {
			if r.Protocol == unix.RTPROT_KERNEL || r.Table == unix.RT_TABLE_LOCAL || r.Protocol == unix.RTPROT_RA {
				continue
			}
			if r.Encap != nil || len(r.MultiPath) > 0 || r.Via != nil {
				return nil, fmt.Errorf("%w: a route by %s is of a kind that cannot be put back: %s; remove it first", ErrRefused,
					link.Attrs().Name, r)
			}
			one := route{Gw: r.Gw, Src: r.Src, Table: r.Table, Protocol: int(r.Protocol), Scope: int(r.Scope), Type: r.Type,
				Priority: r.Priority, Flags: r.Flags &^ (unix.RTNH_F_LINKDOWN | unix.RTNH_F_DEAD), Family: family, MTU: r.MTU}
			if ones := 0; r.Dst != nil {
				if ones, _ = r.Dst.Mask.Size(); ones > 0 || !r.Dst.IP.IsUnspecified() {
					one.Dst = r.Dst.String()
				}
			}
			list = append(list, one)
		}
	}
	return list, nil
}

// different lists, sorted, the keys that both maps have with different values.
func different[V comparable](want, have map[string]V) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if now, there := have[key]; there && now != want[key] {
			keys = append(keys, key)
		}
	}
	return keys
}
