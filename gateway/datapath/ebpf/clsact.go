// Filters at clsact, by which the programs are attached on kernels before 6.6. Notes among the pins tell a later
// process which filters and clsacts gatewayd made.

package ebpf

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// filterNote is a folder among the pins that records that a program is a filter of an interface's clsact, before kernel
// 6.6: the interface may be another one when the program is to go, and no link of a filter is pinned.
type filterNote struct {
	index int
	id    ebpf.ProgramID // other gateways' filters have the same handle
	name  string         // of the hook
}

func (n filterNote) String() string { return fmt.Sprintf("filter_%d_%d_%s", n.index, n.id, n.name) }

// isOf reports whether a note is of a hook.
func (n filterNote) isOf(h hook) bool { return n.name == h.name && n.index == h.dev.Index }

// filterNotes are the notes in a folder of pins, which may be missing, and the interfaces whose clsact gatewayd made.
func filterNotes(dir string) (filters []filterNote, made []int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading which interfaces have filters: %w", err)
	}
	for _, e := range entries {
		var n filterNote
		if _, err := fmt.Sscanf(e.Name(), "filter_%d_%d_%s", &n.index, &n.id, &n.name); err == nil {
			filters = append(filters, n)
		}
		if _, err := fmt.Sscanf(e.Name(), "clsact_%d", &n.index); err == nil {
			made = append(made, n.index)
		}
	}
	return filters, made, nil
}

// replace makes the hook's program the filter of its clsact, and notes that.
func (h hook) replace(dir string) error {
	info, err := h.prog.Info()
	if err != nil {
		return fmt.Errorf("reading the id of %s: %w", h.name, err)
	}
	now := filterNote{index: h.dev.Index, name: h.name}
	now.id, _ = info.ID()
	if err := os.Mkdir(filepath.Join(dir, now.String()), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("noting that %s has a filter: %w", h.dev.Name, err)
	}
	f := h.filter()
	f.Fd = h.prog.FD()
	if err := netlink.FilterReplace(f); err != nil {
		return err
	}
	all, _, err := filterNotes(dir)
	for _, n := range all {
		if n.isOf(h) && n != now {
			err = errors.Join(err, os.Remove(filepath.Join(dir, n.String())))
		}
	}
	return err
}

// leaveFilters removes the filters and each clsact that are noted in a folder of pins, but those of the kept hooks.
func leaveFilters(dir string, kept ...hook) error {
	filters, made, err := filterNotes(dir)
	for _, n := range filters {
		if slices.ContainsFunc(kept, n.isOf) {
			continue
		}
		left := n.remove()
		if left == nil {
			left = os.Remove(filepath.Join(dir, n.String()))
		}
		err = errors.Join(err, left)
	}
	for _, index := range made {
		if !slices.ContainsFunc(kept, func(h hook) bool { return h.dev.Index == index }) {
			err = errors.Join(
				err, hook{dev: &net.Interface{Index: index, Name: fmt.Sprintf("interface %d", index)}}.restore(dir))
		}
	}
	return err
}

// remove removes a noted filter, if it is there.
func (n filterNote) remove() error {
	h := hook{name: n.name, dev: &net.Interface{Index: n.index}, egress: n.name == "lan_out"}
	f := h.filter()
	all, err := stack.ConsistentList(func() ([]netlink.Filter, error) {
		return netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: n.index}}, f.Parent)
	})
	if err == nil && slices.ContainsFunc(all, n.matches) {
		err = netlink.FilterDel(f)
	}
	if err != nil && !isGone(err) && !noInterface(err) {
		return fmt.Errorf("removing the filter %s from interface %d: %w", n.name, n.index, err)
	}
	return nil
}

// matches reports whether a filter is the noted one.
func (n filterNote) matches(f netlink.Filter) bool {
	b, ok := f.(*netlink.BpfFilter)
	return ok && b.Handle == filterHandle && b.Priority == filterPriority && b.Id == int(n.id)
}
