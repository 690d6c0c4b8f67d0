// Which programs are attached at the interfaces, gatewayd's own and those of others.

package ebpf

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// Attached reports whether a data path has its programs on the LAN's interface of this network namespace; another
// namespace may have an interface of the same name. Programs with other pins count if they can be inspected, which
// needs CAP_SYS_ADMIN.
func Attached(cfg Config) bool {
	lan, err := net.InterfaceByName(cfg.lan())
	if err != nil {
		return false
	}
	found, _ := programsAt(hook{name: "lan_in", dev: lan}, nil)
	return holdsLAN(cfg.PinDir, lan) || len(found.ownLinks) > 0
}

// InSight checks that the pins of attached programs can be seen, so that Remove finds them.
func InSight(cfg Config) error {
	if !Attached(cfg) {
		return nil
	}
	if err := onBPFFS(cfg.PinDir); err != nil {
		return fmt.Errorf("programs are attached to %s, and their pins are out of sight: %w; ip netns exec hides them: "+
			"use nsenter --net=/run/netns/NAME instead", cfg.lan(), err)
	}
	return nil
}

// holdsLAN reports whether the programs of these pins are on the LAN's interface.
func holdsLAN(dir string, lan *net.Interface) bool { return pinned(dir, lan) || filtered(lan) }

// pinned searches the programs at tcx for that of the pinned link.
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
	attached, err := link.QueryPrograms(link.QueryOptions{Target: lan.Index, Attach: ebpf.AttachTCXIngress})
	return err == nil &&
		slices.ContainsFunc(attached.Programs, func(p link.AttachedProgram) bool { return p.ID == info.Program })
}

// filtered searches for the filter used on kernels before 6.6.
func filtered(lan *net.Interface) bool {
	filters, err := stack.ConsistentList(func() ([]netlink.Filter, error) {
		return netlink.FilterList(
			&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: lan.Index}}, netlink.HANDLE_MIN_INGRESS)
	})
	return err == nil && slices.ContainsFunc(filters, func(f netlink.Filter) bool {
		b, ok := f.(*netlink.BpfFilter)
		return ok && b.Handle == filterHandle && b.Priority == filterPriority
	})
}

// hookPrograms are the programs attached at a hook beside the hook's own program.
type hookPrograms struct {
	attached []link.AttachedProgram
	ownLinks []link.ID // links of gatewayd's programs of the same name, with other pins
	before   []string  // other programs, which handle packets before our own
	after    []string  // and after it
}

// programsAt returns a hook's company without the programs of the pinned links in beside; an empty one for a hook
// without a program.
func programsAt(h hook, beside []string) (hookPrograms, error) {
	var c hookPrograms
	attached, err := link.QueryPrograms(link.QueryOptions{Target: h.dev.Index, Attach: h.attachType()})
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
		return c, nil // before 6.6 there is no tcx
	}
	if err != nil {
		return c, fmt.Errorf("listing the programs of %s: %w", h.dev.Name, err)
	}
	c.attached = attached.Programs
	id := ebpf.ProgramID(0)
	if h.prog != nil {
		if info, err := h.prog.Info(); err == nil {
			id, _ = info.ID()
		}
	}
	trusted := programs(beside)
	first := slices.IndexFunc(attached.Programs, func(p link.AttachedProgram) bool { return p.ID == id })
	for i, p := range attached.Programs {
		name, isOurs := identify(p.ID)
		linkID, linked := p.LinkID()
		switch {
		case p.ID == id, slices.Contains(trusted, p.ID):
		case isOurs && name == h.name && linked:
			c.ownLinks = append(c.ownLinks, linkID)
		case i < first:
			c.before = append(c.before, fmt.Sprintf("%s (id %d)", name, p.ID))
		default:
			c.after = append(c.after, fmt.Sprintf("%s (id %d)", name, p.ID))
		}
	}
	return c, nil
}

// programs returns the programs of pinned links. CAP_BPF is enough to ask links, while it takes CAP_SYS_ADMIN
// to look at programs by their IDs.
func programs(pins []string) (ids []ebpf.ProgramID) {
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			continue // not attached
		}
		if info, err := l.Info(); err == nil {
			ids = append(ids, info.Program)
		}
		l.Close()
	}
	return ids
}

// identify returns a program's name, and whether it is gatewayd's: other programs may have the same name, but not our
// maps.
func identify(id ebpf.ProgramID) (name string, isOurs bool) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "a program that takes CAP_SYS_ADMIN to look at", false
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "a program without a name", false
	}
	tables, _ := info.MapIDs()
	return info.Name, slices.ContainsFunc(tables, func(id ebpf.MapID) bool {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return false
		}
		defer m.Close()
		info, err := m.Info()
		return err == nil && info.Name == "client_counters"
	})
}

// dismiss detaches gatewayd's programs that have other pins, as after a change of datapath.pin_dir, and returns their
// number. A program whose last pin was just removed disappears by itself.
func dismiss(links []link.ID) (n int, err error) {
	for _, id := range links {
		l, e := link.NewFromID(id)
		if errors.Is(e, os.ErrNotExist) {
			continue
		}
		if e == nil {
			e = errors.Join(l.Detach(), l.Close())
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("detaching the program of link %d: %w", id, e))
			continue
		}
		n++
	}
	return n, err
}

// removeOwnOthers makes a hook's program the only one of gatewayd's there.
func (d *Datapath) removeOwnOthers(h hook) error {
	c, err := programsAt(h, nil)
	if err != nil {
		return err
	}
	n, err := dismiss(c.ownLinks)
	if n > 0 {
		d.cfg.Log.Warn("detached a program that was pinned elsewhere: its folder can be removed (a former datapath.pin_dir)",
			"program", h.name, "interface", h.dev.Name)
	}
	return err
}

// observe has the programs of others judged, which the kernel reports to nobody, when those at a hook are
// not those that were judged last.
func (d *Datapath) observe() {
	if d.programsChanged() {
		d.choose(d.judgePrograms)
	}
}

// programsChanged reports whether the programs at a hook of LAN or WAN are not those that were judged last. Other
// places, as between the interfaces that cut packets, are judged by nobody.
func (d *Datapath) programsChanged() bool {
	d.choosing.Lock()
	defer d.choosing.Unlock()
	return slices.ContainsFunc(d.places, func(p *pinnedProgram) bool {
		return p.link != nil && (p.dev == d.lan || p.dev == d.wan) && !slices.Equal(p.lastSeen, d.judgedPrograms[p.name])
	})
}

// warn logs the programs of others that see a hook's packets first, once while they stay the same.
func (d *Datapath) warn(h hook, c hookPrograms) {
	ahead := strings.Join(c.before, ", ")
	if ahead == d.loggedBefore[h.name] {
		return
	}
	d.loggedBefore[h.name] = ahead
	if ahead != "" {
		d.cfg.Log.Warn("programs of others see packets ahead of gatewayd's: what they pass on by themselves is not judged "+
			"(bpftool net show; bpftool net detach)",
			"interface", h.dev.Name, "hook", h.name, "programs", ahead)
	}
}
