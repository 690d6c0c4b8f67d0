// The counts of packets that the cache of flows forwards, for the flow log (tally.h).

package ebpf

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// tallies count the packets of each connection that the cache forwards, which connection tracking therefore does not
// count. They are pinned: a connection that a former daemon cached keeps its count.
type tallies struct {
	memory    *ebpf.Memory        // flow_tallies, mapped into memory; nil: nothing is tallied
	inherited []gatewayTallyKey   // of a former daemon, until Keep
	places    map[uint32]struct{} // of inherited
}

// tallying reports whether packets that pass by the cache are counted by connection.
func (c *Config) tallying() bool { return c.Flows && c.FlowCache != FlowCacheNever }

// openTallies reads the tallies of a former daemon, and returns the first unused place. Places without a connection, as
// of a daemon that was killed while it took some, are cleared.
func (d *Datapath) openTallies() (fresh uint32, err error) {
	fresh = 1
	if !d.cfg.tallying() {
		return fresh, nil
	}
	if d.tallies.memory, err = d.objs.FlowTallies.Memory(); err != nil {
		return fresh, fmt.Errorf("mapping the connections' tallies: %w", err)
	}
	d.tallies.places = map[uint32]struct{}{}
	all := d.objs.FlowTallied.Iterate()
	var k gatewayTallyKey
	for index := uint32(0); all.Next(&k, &index); {
		if index >= d.objs.FlowTallies.MaxEntries() {
			continue
		}
		d.tallies.inherited = append(d.tallies.inherited, k)
		d.tallies.places[index] = struct{}{}
		fresh = max(fresh, index+1)
	}
	if err := all.Err(); err != nil {
		return fresh, fmt.Errorf("reading the tallied connections: %w", err)
	}
	for index := range d.objs.FlowTallies.MaxEntries() {
		if _, used := d.tallies.places[index]; used {
			continue
		}
		if t, err := d.tally(index); err != nil {
			return fresh, err
		} else if t != (gatewayTally{}) {
			if err := d.setTally(index, gatewayTally{}); err != nil {
				return fresh, err
			}
		}
	}
	return fresh, nil
}

// freeTallies has the places below fresh that no connection has used again.
func (d *Datapath) freeTallies(fresh uint32) error {
	for index := uint32(1); index < fresh; index++ {
		if _, used := d.tallies.places[index]; used {
			continue
		}
		if err := d.flows.objs.FreeTallies.Put(nil, index); err != nil {
			return fmt.Errorf("listing the free tallies: %w", err)
		}
	}
	d.tallies.places = nil
	return nil
}

const tallySize = int64(unsafe.Sizeof(gatewayTally{}))

func bytesOf(t *gatewayTally) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(t)), tallySize) }

func (d *Datapath) tally(index uint32) (t gatewayTally, err error) {
	_, err = d.tallies.memory.ReadAt(bytesOf(&t), tallySize*int64(index))
	return t, err
}

func (d *Datapath) setTally(index uint32, t gatewayTally) error {
	_, err := d.tallies.memory.WriteAt(bytesOf(&t), tallySize*int64(index))
	return err
}

// tallyKey is a connection's; false: such connections are not tallied, because none of their packets is cached.
func tallyKey(c datapath.Tracked) (k gatewayTallyKey, ok bool) {
	if !c.From.Addr().Is4() || c.Start.IsZero() || c.Protocol != unix.IPPROTO_TCP && c.Protocol != unix.IPPROTO_UDP {
		return k, false
	}
	return gatewayTallyKey{
		Start: uint64(c.Start.UnixNano()), Saddr: networkOrder(c.From.Addr()), Daddr: networkOrder(c.To.Addr()),
		Sport: networkPort(c.From.Port()), Dport: networkPort(c.To.Port()), Protocol: uint16(c.Protocol),
	}, true
}

// Take returns what the kernel did not count of connections that have ended, because it passed by the cache, in their
// order, and forgets it. It waits until each packet on its way is counted. With an error it returns what it could read.
func (d *Datapath) Take(ended []datapath.Tracked) ([]datapath.Traffic, error) {
	out := make([]datapath.Traffic, len(ended))
	if d.tallies.memory == nil {
		return out, nil
	}
	stack.AwaitCPUs()
	var errs error
	for i, c := range ended {
		k, ok := tallyKey(c)
		if !ok {
			continue
		}
		t, err := d.takeTally(k)
		if err != nil && errs == nil {
			errs = err
		}
		out[i] = t
	}
	return out, errs
}

// Keep forgets the connections of a former daemon that are not there any more.
func (d *Datapath) Keep(tracked []datapath.Tracked) error {
	if len(d.tallies.inherited) == 0 {
		return nil
	}
	present := map[gatewayTallyKey]bool{}
	for _, c := range tracked {
		if k, ok := tallyKey(c); ok {
			present[k] = true
		}
	}
	stack.AwaitCPUs()
	var errs error
	for _, k := range d.tallies.inherited {
		if !present[k] {
			_, err := d.takeTally(k)
			errs = errors.Join(errs, err)
		}
	}
	d.tallies.inherited = nil
	return errs
}

// takeTally reads a connection's tally and gives its place back. A connection without one is no error.
func (d *Datapath) takeTally(k gatewayTallyKey) (t datapath.Traffic, err error) {
	var index uint32
	if err := d.objs.FlowTallied.LookupAndDelete(k, &index); errors.Is(err, ebpf.ErrKeyNotExist) {
		return t, nil
	} else if err != nil {
		return t, fmt.Errorf("taking a connection's tally: %w", err)
	}
	n, err := d.tally(index)
	if err == nil {
		err = d.setTally(index, gatewayTally{})
	}
	if err == nil && d.flows.loaded.Load() {
		err = d.flows.objs.FreeTallies.Put(nil, index)
	}
	if err != nil {
		err = fmt.Errorf("taking a connection's tally: %w", err)
	}
	return datapath.Traffic{
		UpBytes: n.UpBytes, UpPackets: n.UpPackets, DownBytes: n.DownBytes, DownPackets: n.DownPackets}, err
}
