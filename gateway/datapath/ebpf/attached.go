package ebpf

import (
	"net"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Attached says whether a data path with these pins has its programs on the LAN's
// interface: that of this network namespace, which another's may be named like.
func Attached(cfg Config) bool {
	lan, err := net.InterfaceByName(cfg.LAN)
	if err != nil {
		return false
	}
	return pinned(cfg.PinDir, lan) || filtered(lan)
}

// pinned looks among the programs at tcx for that of the pinned link.
func pinned(dir string, lan *net.Interface) bool {
	l, err := link.LoadPinnedLink(filepath.Join(dir, "link_lan_in"), nil)
	if err != nil {
		return false
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return false
	}
	there, err := link.QueryPrograms(link.QueryOptions{Target: lan.Index, Attach: ebpf.AttachTCXIngress})
	return err == nil && slices.ContainsFunc(there.Programs, func(p link.AttachedProgram) bool { return p.ID == info.Program })
}

// filtered looks for the filter that kernels before 6.6 have.
func filtered(lan *net.Interface) bool {
	filters, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: lan.Index}}, netlink.HANDLE_MIN_INGRESS)
	return err == nil && slices.ContainsFunc(filters, func(f netlink.Filter) bool {
		b, ok := f.(*netlink.BpfFilter)
		return ok && b.Handle == filterHandle && b.Priority == filterPriority
	})
}
