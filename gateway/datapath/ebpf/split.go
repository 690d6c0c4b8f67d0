// Several networks that share a WAN: what they have in common, and how each enters and leaves.

package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// split hands the packets from a WAN to the networks that share it (split.bpf.c). Programs and maps are pinned in a
// folder of their own, and go with the last network. The networks of a process have the same split.
type split struct {
	dir   string
	objs  splitObjects
	learn link.Link // of learn_split, which ends with the process
	users int       // guarded by splits.mu

	mu        sync.Mutex // held while the program at the WAN is attached, and numbers are given; guards what follows
	followers map[*stack.Follower]bool
}

// splitHook is the program at the WAN's ingress.
const splitHook = "wan_split"

// splits are those that are open in this process, by their folders.
var splits = struct {
	mu   sync.Mutex
	open map[string]*split // guarded by mu
}{open: map[string]*split{}}

// openSplit loads the split of a folder, or returns that of this process.
func openSplit(dir string, wan *net.Interface) (*split, error) {
	splits.mu.Lock()
	defer splits.mu.Unlock()
	s := splits.open[dir]
	if s == nil {
		s = &split{dir: dir, followers: map[*stack.Follower]bool{}}
		if err := s.load(wan); err != nil {
			return nil, errors.Join(fmt.Errorf("loading what several networks share: %w", err), s.objs.Close())
		}
		splits.open[dir] = s
	}
	s.users++
	return s, nil
}

// load takes over the maps of a former daemon. Those of another version are made anew, and its programs use theirs
// until they are replaced.
func (s *split) load(wan *net.Interface) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	spec, err := loadSplit()
	if err != nil {
		return err
	}
	delete(spec.Maps, "flow_settings") // which each network has
	for name, m := range spec.Maps {
		m.Pinning = ebpf.PinByName
		if err := removeUnfit(m, filepath.Join(s.dir, name)); err != nil {
			return err
		}
	}
	var objs struct {
		splitPrograms
		FlowPaths   *ebpf.Map `ebpf:"flow_paths"`
		LearnUps    *ebpf.Map `ebpf:"learn_ups"`
		Members     *ebpf.Map `ebpf:"members"`
		Parts       *ebpf.Map `ebpf:"parts"`
		Parts6      *ebpf.Map `ebpf:"parts6"`
		PartLengths *ebpf.Map `ebpf:"part_lengths"`
		Reaches     *ebpf.Map `ebpf:"reaches"`
		WanIns      *ebpf.Map `ebpf:"wan_ins"`
	}
	if err := spec.LoadAndAssign(&objs, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: s.dir}}); err != nil {
		return err
	}
	s.objs = splitObjects{splitPrograms: objs.splitPrograms, splitMaps: splitMaps{FlowPaths: objs.FlowPaths,
		LearnUps: objs.LearnUps, Members: objs.Members, Parts: objs.Parts, Parts6: objs.Parts6,
		PartLengths: objs.PartLengths, Reaches: objs.Reaches, WanIns: objs.WanIns}}
	if err := s.forgetGone(); err != nil {
		return err
	}
	s.learn, err = link.AttachTCX(link.TCXOptions{Program: s.objs.LearnSplit, Interface: wan.Index,
		Attach: ebpf.AttachTCXEgress, Anchor: link.Tail()})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("%w: several networks need Linux 6.6", datapath.ErrNotSupported)
	}
	if err != nil {
		return fmt.Errorf("attaching learn_split to %s: %w", wan.Name, err)
	}
	return nil
}

// removeUnfit removes the pin of a map whose type or sizes differ from those of this version.
func removeUnfit(m *ebpf.MapSpec, pin string) error {
	pinned, err := ebpf.LoadPinnedMap(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the pin %s: %w", pin, err)
	}
	defer pinned.Close()
	if m.Compatible(pinned) == nil {
		return nil
	}
	return os.Remove(pin)
}

// close closes the split once the last of its networks in this process has left. What is pinned stays.
func (s *split) close() error {
	if s == nil {
		return nil
	}
	splits.mu.Lock()
	defer splits.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	delete(splits.open, s.dir)
	return errors.Join(s.learn.Close(), s.objs.Close())
}

// number gives the network of an interface its number.
func (s *split) number(lan uint32) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers, err := s.members()
	if err != nil {
		return 0, err
	}
	n, known := numbers[lan]
	if known {
		return n, nil
	}
	taken := slices.Collect(maps.Values(numbers))
	for slices.Contains(taken, n) {
		n++
	}
	if err := s.objs.Members.Put(lan, n); err != nil {
		return 0, fmt.Errorf("numbering the networks, of which there can be %d: %w", s.objs.Members.MaxEntries(), err)
	}
	return n, s.ignoreClients()
}

// ignoreClients has no network look at its routing again when neighbours at another one's interface change: clients
// come and go. A next hop there is asked for again each second. mu is held.
func (s *split) ignoreClients() error {
	numbers, err := s.members()
	if err != nil {
		return err
	}
	var lans []int
	for lan := range numbers {
		lans = append(lans, int(lan))
	}
	for f := range s.followers {
		err = errors.Join(err, f.IgnoreNeighbours(lans...))
	}
	return err
}

// follow adds a network's follower, or removes it.
func (s *split) follow(f *stack.Follower, on bool) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !on {
		delete(s.followers, f)
		return nil
	}
	s.followers[f] = true
	return s.ignoreClients()
}

// members reads the networks' numbers, by their interfaces.
func (s *split) members() (map[uint32]uint32, error) {
	numbers := map[uint32]uint32{}
	var lan, n uint32
	all := s.objs.Members.Iterate()
	for all.Next(&lan, &n) {
		numbers[lan] = n
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("reading the networks' numbers: %w", err)
	}
	return numbers, nil
}

// setReached sets the networks, by their interfaces, whose clients and those of another one reach each other.
func (s *split) setReached(lan uint32, reached []uint32) error {
	if err := s.forgetReached(lan); err != nil {
		return err
	}
	for _, other := range reached {
		for _, p := range []splitPair{{From: lan, To: other}, {From: other, To: lan}} {
			if err := s.objs.Reaches.Put(p, uint8(1)); err != nil {
				return fmt.Errorf("letting clients of two networks reach each other: %w", err)
			}
		}
	}
	return nil
}

func (s *split) forgetReached(lan uint32) error {
	var former []splitPair
	var p splitPair
	var on uint8
	all := s.objs.Reaches.Iterate()
	for all.Next(&p, &on) {
		if p.From == lan || p.To == lan {
			former = append(former, p)
		}
	}
	err := all.Err()
	for _, p := range former {
		if e := s.objs.Reaches.Delete(p); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("keeping clients of two networks apart: %w", err)
	}
	return nil
}

// forget removes a network.
func (s *split) forget(lan, number uint32) (err error) {
	for _, e := range []error{
		s.objs.WanIns.Delete(number), s.objs.LearnUps.Delete(number), s.setParts(number, nil), s.setParts6(number, nil),
		s.forgetReached(lan), s.objs.Members.Delete(lan), // last: nobody else gets the number before
	} {
		if e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// forgetGone removes networks whose interface is gone.
func (s *split) forgetGone() error {
	numbers, err := s.members()
	for lan, n := range numbers {
		if !stack.IsThere(int(lan)) {
			err = errors.Join(err, s.forget(lan, n))
		}
	}
	return err
}

// leaveSplit removes a network from what it shares with others, and that too where no other network is left. What does
// not exist is no error.
func leaveSplit(dir, lan string) error {
	if dir == "" {
		return nil
	}
	var s split
	for name, m := range map[string]**ebpf.Map{
		"members": &s.objs.Members, "reaches": &s.objs.Reaches, "parts": &s.objs.Parts, "parts6": &s.objs.Parts6,
		"part_lengths": &s.objs.PartLengths, "wan_ins": &s.objs.WanIns, "learn_ups": &s.objs.LearnUps,
	} {
		var err error
		if *m, err = ebpf.LoadPinnedMap(filepath.Join(dir, name), nil); errors.Is(err, os.ErrNotExist) {
			return errors.Join(unlink(filepath.Join(dir, "link_"+splitHook)), os.RemoveAll(dir))
		} else if err != nil {
			return fmt.Errorf("reading what several networks share: %w", err)
		}
		defer (*m).Close()
	}
	err := s.forgetGone()
	numbers, e := s.members()
	if err = errors.Join(err, e); err != nil {
		return err
	}
	if dev, missing := net.InterfaceByName(lan); missing == nil {
		if n, known := numbers[uint32(dev.Index)]; known {
			err = s.forget(uint32(dev.Index), n)
			delete(numbers, uint32(dev.Index))
		}
	}
	for index := range numbers {
		if stack.IsThere(int(index)) {
			return err
		}
	}
	return errors.Join(err, unlink(filepath.Join(dir, "link_"+splitHook)), os.RemoveAll(dir))
}

// joinSplit gives the network its number among those that share its WAN, where it shares it.
func (d *Datapath) joinSplit(lan, wan *net.Interface) (err error) {
	if d.cfg.Shared == "" {
		return nil
	}
	if d.split, err = openSplit(d.cfg.Shared, wan); err != nil {
		return err
	}
	// Entries of the cache that a former network of this number made are of another generation.
	d.flowSettings.Generation = uint32(now())
	d.splitNumber, err = d.split.number(uint32(lan.Index))
	return err
}

// enterSplit has the network's packets from the WAN handed to its programs.
func (d *Datapath) enterSplit() error {
	if d.split == nil {
		return nil
	}
	var reached []uint32
	for _, name := range d.cfg.Reaches {
		if dev, err := net.InterfaceByName(name); err == nil { // the other one enters both when it comes
			reached = append(reached, uint32(dev.Index))
		}
	}
	err := d.split.objs.WanIns.Put(d.splitNumber, uint32(d.objs.WanIn.FD()))
	if err != nil {
		err = fmt.Errorf("having packets from the WAN handed to %s: %w", d.net, err)
	}
	return errors.Join(err, d.split.setReached(uint32(d.lan.Index), reached), d.enterParts())
}

// enterParts tells the split the network's addresses, with those of networks behind clients.
func (d *Datapath) enterParts() error {
	if d.split == nil {
		return nil
	}
	return d.split.setParts(
		d.splitNumber, slices.AppendSeq([]netip.Prefix{d.net.Prefix()}, maps.Keys(d.clientNetworks.All())))
}

// enterParts6 is enterParts for IPv6. addrs6Lock is held.
func (d *Datapath) enterParts6() error {
	if d.split == nil {
		return nil
	}
	n := &d.networks6
	parts := slices.Concat(n.prefixes, n.pools)
	for network := range n.owner {
		if !n.pooled(network) {
			parts = append(parts, network)
		}
	}
	return d.split.setParts6(d.splitNumber, parts)
}

// learnUp has the flows of packets that leave by the WAN learned; nil: no longer.
func (s *split) learnUp(number uint32, p *ebpf.Program) error {
	if p != nil {
		return s.objs.LearnUps.Put(number, uint32(p.FD()))
	}
	if err := s.objs.LearnUps.Delete(number); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}
